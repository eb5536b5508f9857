"""What a store keeps of a pool, and what each verb makes of it."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from tidemill.core import accounts, ledger, usage
from tidemill.core.accounts import Account, Denied, HandClosure, Taken
from tidemill.core.breaker import Breaker
from tidemill.core.calendars import Day
from tidemill.core.foreign import CallFacts
from tidemill.core.limits import Limit
from tidemill.core.pool_news import news_of
from tidemill.core.pools import PoolChanges, PoolSettings
from tidemill.core.refusals import Reason, Refusal
from tidemill.core.reserving import Ask, room
from tidemill.core.spending import Observation, Spent, Usage
from tidemill.core.windows import Instant

POOL = PoolSettings(
    limits=(Limit.requests(10, per="minute"), Limit.requests(250, per=Day("America/Los_Angeles")))
)
START = 1_800_040_000.0


def at(seconds: float) -> Instant:
    return Instant(START + seconds, 100.0 + seconds)


def ask(account: Account, job: str, seconds: float) -> Taken | Denied:
    return accounts.ask(POOL, account, Ask(job, {}, 5), at(seconds))


def refused(account: Account, refusal: Refusal, seconds: float, job: str = "a") -> Account:
    seen = Observation(pool="gemini", refusal=refusal)
    return accounts.observed(POOL, account, seen, job, at(seconds), chance=0.5, running=1)


def test_a_pool_closed_by_hand_gives_nothing_until_it_is_opened() -> None:
    closed = accounts.closed(Account(), HandClosure(by="ann", since=START))
    answer = ask(closed, "a", 0)
    assert isinstance(answer, Denied)
    assert (answer.cause, answer.wait) == ("closed", math.inf)
    assert isinstance(ask(accounts.opened(closed), "a", 1), Taken)


def test_after_a_days_quota_one_job_probes_and_then_a_ramp_opens() -> None:
    """I15: no call before the stored time, then one, then few."""
    account = refused(Account(), Refusal(reason=Reason.DAY_QUOTA), 0)
    answer = ask(account, "a", 60)
    assert isinstance(answer, Denied)
    opens = 60 + answer.wait + 1
    probe = ask(account, "a", opens)
    assert isinstance(probe, Taken)
    assert probe.probe
    assert isinstance(ask(probe.account, "b", opens + 1), Denied), "one probe for the whole fleet"
    given_up = accounts.heard(probe.account, "a", at(opens + 2), well=False)
    assert isinstance(ask(given_up, "b", opens + 2), Taken), "a dead prober is replaced"
    account = accounts.heard(probe.account, "a", at(opens + 2), well=True)
    granted = 0
    while isinstance(answer := ask(account, f"job {granted}", opens + 3), Taken):
        account, granted = answer.account, granted + 1
    assert granted < 5, "the ramp begins at a tenth"


def test_less_left_than_we_know_of_was_used_by_others() -> None:
    answer = ask(Account(), "a", 0)
    assert isinstance(answer, Taken)
    seen = Observation(pool="gemini", remaining={"requests per minute": 3})
    account = accounts.observed(POOL, answer.account, seen, "a", at(1), chance=0.5, running=1)
    assert room(POOL, account.state, at(1))["requests per minute"] == 3
    assert usage.foreign(POOL, account, at(1)) == {"requests per minute": 6}
    assert usage.foreign(POOL, account, at(62)) == {}, "forgotten with its window"


def test_more_left_than_we_know_of_is_not_believed_while_calls_are_under_way() -> None:
    answer = ask(Account(), "a", 0)
    assert isinstance(answer, Taken)
    seen = Observation(pool="gemini", remaining={"requests per minute": 10})
    account = accounts.observed(POOL, answer.account, seen, "a", at(1), chance=0.5, running=1)
    assert room(POOL, account.state, at(1))["requests per minute"] == 9


def test_an_account_of_another_boot_starts_with_nothing_left_and_keeps_its_closures() -> None:
    account = accounts.current(POOL, Account(), "one", at(0))
    account = refused(account, Refusal(reason=Reason.DAY_QUOTA), 0)
    later = accounts.current(POOL, account, "two", at(5))
    assert room(POOL, later.state, at(5))["requests per minute"] == 0
    ends = [[closure.until for closure in each.breaker.closures] for each in (account, later)]
    assert ends[0] == ends[1] != []


def test_answers_that_are_slow_to_come_are_not_taken_for_strangers() -> None:
    """The provider counted when the call came in; by the time it answers our own count has moved on."""
    account = Account()
    for n in range(10):
        account = taken(ask(account, f"early {n}", 0)).account
    answer = taken(ask(account, "late", 61))
    account = accounts.settled(POOL, answer.account, answer.reservation, None, at(90))
    seen = Observation(pool="gemini", remaining={"requests per minute": 9})
    told = accounts.observed(
        POOL,
        account,
        seen,
        "late",
        at(90),
        chance=0.5,
        running=1,
        call=CallFacts(left=answer.reservation.left),
    )
    assert usage.foreign(POOL, told, at(90)) == {}
    early = taken(ask(Account(), "a", 0))
    account = early.account
    for n in range(9):
        account = taken(ask(account, f"{n}", 1)).account
    seen = Observation(pool="gemini", remaining={"requests per minute": 0})
    told = accounts.observed(
        POOL, account, seen, "a", at(20), chance=0.5, running=1, call=CallFacts(left=early.reservation.left)
    )
    assert usage.foreign(POOL, told, at(20)) == {}, "it was counted last, with all our calls in it"


def test_i15_a_rate_that_asked_for_less_speed_is_followed_by_a_ramp() -> None:
    account = refused(Account(), Refusal(reason=Reason.RATE, retry_after=30, slow=True), 0)
    assert isinstance(ask(account, "a", 30), Denied)
    answer = ask(account, "a", 31)
    assert isinstance(answer, Taken)
    assert not answer.probe
    second = ask(answer.account, "b", 31)
    assert isinstance(second, Denied), "a tenth of ten"
    assert second.wait == pytest.approx(60 / 9, abs=0.01), "two of ten, by when the ramp has grown so far"
    assert isinstance(ask(answer.account, "b", 31 + second.wait), Taken)
    assert isinstance(ask(answer.account, "b", 31 + second.wait - 0.1), Denied)


def test_a_big_call_knows_when_the_ramp_lets_it_in() -> None:
    pool = PoolSettings(limits=(Limit.tokens(1000, per="minute"), Limit.tokens(5000, per=Day())))
    account = Account(breaker=Breaker(ramp=100.0))
    answer = accounts.ask(pool, account, Ask("a", {"tokens": 800}, 5), at(5))
    assert isinstance(answer, Denied)
    assert answer.wait == pytest.approx(60 * 0.7 / 0.9 - 5, abs=0.01), "its windows now would say never"
    full = taken(accounts.ask(pool, Account(), Ask("a", {"tokens": 1000}, 5), at(0))).account
    answer = accounts.ask(pool, replace(full, breaker=account.breaker), Ask("b", {"tokens": 500}, 5), at(40))
    assert isinstance(answer, Denied)
    assert 20 < answer.wait < 22, "what is in the window must pass as well"
    answer = accounts.ask(pool, replace(full, breaker=account.breaker), Ask("c", {"tokens": 800}, 5), at(40))
    assert isinstance(answer, Denied)
    assert 20 < answer.wait < 22, "it passes while the ramp is waited for"


def test_n6_what_is_over_is_cleared_and_a_persons_mark_stays() -> None:
    account = refused(Account(), Refusal(reason=Reason.RATE, retry_after=30), 0)
    account = accounts.closed(account, HandClosure(by="ann", since=START))
    answer = ask(account, "a", 60)
    assert isinstance(answer, Denied)
    assert answer.account.breaker.closures == ()
    assert answer.account.closed is not None


def taken(answer: Taken | Denied) -> Taken:
    assert isinstance(answer, Taken)
    return answer


@pytest.mark.parametrize("amount", [0.0, -1.0, math.inf, math.nan])
def test_an_override_must_be_a_number_above_0(amount: float) -> None:
    problem = PoolChanges(amounts={"requests per minute": amount}).problem(POOL)
    assert problem == f"requests per minute: must be above 0, is {amount}; close the pool to allow nothing"
    assert PoolChanges(amounts={"requests per minute": 0.5}).problem(POOL) is None


def test_a_pool_that_opens_on_a_ramp_it_was_on_before_begins_none() -> None:
    closed = refused(Account(), Refusal(reason=Reason.RATE, retry_after=5), 0)
    opened = replace(closed, breaker=replace(closed.breaker, closures=()))

    def ramps(before: float | None, after: float | None) -> list[bool]:
        old = replace(closed, breaker=replace(closed.breaker, ramp=before))
        new = replace(opened, breaker=replace(opened.breaker, ramp=after))
        return [news.ramp for news in news_of(("gemini", None), "a", old, new)]

    assert ramps(None, 50.0) == [True]
    assert ramps(50.0, 50.0) == [False]
    assert ramps(None, None) == [False]


@pytest.mark.parametrize(("used", "left"), [(100.0, 900.0), (30.0, 970.0), (150.0, 900.0)])
def test_what_was_left_at_the_claim_grows_by_what_the_call_did_not_use(used: float, left: float) -> None:
    pool = PoolSettings(limits=(Limit.tokens(1000, per="minute"),))
    answer = taken(accounts.ask(pool, Account(), Ask("a", {"tokens": 100}, 5), at(0)))
    ended = [ledger.Reserved("m", None, answer.reservation)]
    spent = Spent(usages=(Usage(pool="m", units={"tokens": used}),))
    assert ledger._left(pool, ended, spent) == {"tokens per minute": left}
    assert ledger._left(pool, ended, Spent()) == {"tokens per minute": 900.0}


def test_a_call_knows_what_it_left_of_every_limit_a_provider_may_speak_of() -> None:
    """No provider's count says how many calls of ours are under way."""
    pool = PoolSettings(
        limits=(
            Limit.requests(10, per="minute"),
            Limit.tokens(100, per=Day("UTC")),
            Limit.concurrent(4),
        )
    )
    account = Account()
    for number in range(1, 4):
        answer = taken(accounts.ask(pool, account, Ask(f"{number}", {"tokens": 20}, 5), at(number)))
        account = answer.account
        assert answer.reservation.left == {
            "requests per minute": 10 - number,
            "tokens per day": 100 - 20 * number,
        }
