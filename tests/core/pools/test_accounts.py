"""The account of a pool, and the change that each verb makes to it."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from tidemill.core import accounts, ledger, pool_statistics
from tidemill.core.accounts import Account, OperatorClosure, UnitDenial, UnitGrant
from tidemill.core.breaker import Breaker
from tidemill.core.calendars import Day
from tidemill.core.external_usage import CallFacts
from tidemill.core.feedback import Observation, PoolUsage, Reason, Refusal, UsageReport
from tidemill.core.limits import Limit
from tidemill.core.pool_statistics import compare_accounts
from tidemill.core.pools import LimitChanges, PoolSettings
from tidemill.core.reservations import UnitRequest, remaining_units
from tidemill.core.windows import Instant

POOL = PoolSettings(
    limits=(Limit.requests(10, per="minute"), Limit.requests(250, per=Day("America/Los_Angeles")))
)
START = 1_800_040_000.0


def at(seconds: float) -> Instant:
    return Instant(START + seconds, 100.0 + seconds)


def ask(account: Account, job: str, seconds: float) -> UnitGrant | UnitDenial:
    return accounts.request_units(POOL, account, UnitRequest(job, {}, 5), at(seconds))


def refused(account: Account, refusal: Refusal, seconds: float, job: str = "a") -> Account:
    seen = Observation(pool="gemini", refusal=refusal)
    return accounts.record_observation(POOL, account, seen, job, at(seconds), chance=0.5, running=1)


def test_a_pool_closed_by_an_operator_grants_nothing_until_it_is_opened() -> None:
    closed = accounts.close_account(Account(), OperatorClosure(by="ann", since=START))
    answer = ask(closed, "a", 0)
    assert isinstance(answer, UnitDenial)
    assert (answer.cause, answer.wait) == ("closed", math.inf)
    assert isinstance(ask(accounts.open_account(closed), "a", 1), UnitGrant)


def test_after_a_day_quota_one_job_probes_and_then_a_ramp_opens() -> None:
    """I15: no call before the stored time, then one, then few."""
    account = refused(Account(), Refusal(reason=Reason.DAY_QUOTA), 0)
    answer = ask(account, "a", 60)
    assert isinstance(answer, UnitDenial)
    opens = 60 + answer.wait + 1
    probe = ask(account, "a", opens)
    assert isinstance(probe, UnitGrant)
    assert probe.probe
    assert isinstance(ask(probe.account, "b", opens + 1), UnitDenial), "one probe for the whole fleet"
    given_up = accounts.record_call_end(probe.account, "a", at(opens + 2), is_success=False)
    assert isinstance(ask(given_up, "b", opens + 2), UnitGrant), "a dead prober is replaced"
    account = accounts.record_call_end(probe.account, "a", at(opens + 2), is_success=True)
    granted = 0
    while isinstance(answer := ask(account, f"job {granted}", opens + 3), UnitGrant):
        account, granted = answer.account, granted + 1
    assert granted < 5, "the ramp begins at a tenth"


def test_missing_units_count_as_external_usage() -> None:
    answer = ask(Account(), "a", 0)
    assert isinstance(answer, UnitGrant)
    seen = Observation(pool="gemini", remaining={"requests per minute": 3})
    account = accounts.record_observation(POOL, answer.account, seen, "a", at(1), chance=0.5, running=1)
    assert remaining_units(POOL, account.state, at(1))["requests per minute"] == 3
    assert pool_statistics.external_units(POOL, account, at(1)) == {"requests per minute": 6}
    assert pool_statistics.external_units(POOL, account, at(62)) == {}, "forgotten with its window"


def test_a_higher_remaining_amount_is_ignored_while_calls_are_in_flight() -> None:
    answer = ask(Account(), "a", 0)
    assert isinstance(answer, UnitGrant)
    seen = Observation(pool="gemini", remaining={"requests per minute": 10})
    account = accounts.record_observation(POOL, answer.account, seen, "a", at(1), chance=0.5, running=1)
    assert remaining_units(POOL, account.state, at(1))["requests per minute"] == 9


def test_an_account_of_another_boot_starts_with_nothing_left_and_keeps_its_closures() -> None:
    account = accounts.refresh_account(POOL, Account(), "one", at(0))
    account = refused(account, Refusal(reason=Reason.DAY_QUOTA), 0)
    later = accounts.refresh_account(POOL, account, "two", at(5))
    assert remaining_units(POOL, later.state, at(5))["requests per minute"] == 0
    ends = [[closure.until for closure in each.breaker.closures] for each in (account, later)]
    assert ends[0] == ends[1] != []


def test_slow_answers_do_not_count_as_external_usage() -> None:
    """The provider counted when the call arrived; when it answers, our own count has changed."""
    account = Account()
    for n in range(10):
        account = taken(ask(account, f"early {n}", 0)).account
    answer = taken(ask(account, "late", 61))
    account = accounts.settle_units(POOL, answer.account, answer.reservation, None, at(90))
    seen = Observation(pool="gemini", remaining={"requests per minute": 9})
    updated = accounts.record_observation(
        POOL,
        account,
        seen,
        "late",
        at(90),
        chance=0.5,
        running=1,
        call=CallFacts(left=answer.reservation.left),
    )
    assert pool_statistics.external_units(POOL, updated, at(90)) == {}
    early = taken(ask(Account(), "a", 0))
    account = early.account
    for n in range(9):
        account = taken(ask(account, f"{n}", 1)).account
    seen = Observation(pool="gemini", remaining={"requests per minute": 0})
    updated = accounts.record_observation(
        POOL, account, seen, "a", at(20), chance=0.5, running=1, call=CallFacts(left=early.reservation.left)
    )
    assert pool_statistics.external_units(POOL, updated, at(20)) == {}, (
        "it was counted last, with all our calls in it"
    )


def test_i15_a_request_for_a_lower_rate_is_followed_by_a_ramp() -> None:
    account = refused(Account(), Refusal(reason=Reason.RATE, retry_after=30, slow=True), 0)
    assert isinstance(ask(account, "a", 30), UnitDenial)
    answer = ask(account, "a", 31)
    assert isinstance(answer, UnitGrant)
    assert not answer.probe
    second = ask(answer.account, "b", 31)
    assert isinstance(second, UnitDenial), "a tenth of ten"
    assert second.wait == pytest.approx(60 / 9, abs=0.01), "two of ten, by when the ramp has grown so far"
    assert isinstance(ask(answer.account, "b", 31 + second.wait), UnitGrant)
    assert isinstance(ask(answer.account, "b", 31 + second.wait - 0.1), UnitDenial)


def test_a_large_call_knows_when_the_ramp_admits_it() -> None:
    pool = PoolSettings(limits=(Limit.tokens(1000, per="minute"), Limit.tokens(5000, per=Day())))
    account = Account(breaker=Breaker(ramp=100.0))
    answer = accounts.request_units(pool, account, UnitRequest("a", {"tokens": 800}, 5), at(5))
    assert isinstance(answer, UnitDenial)
    assert answer.wait == pytest.approx(60 * 0.7 / 0.9 - 5, abs=0.01), "its windows now would say never"
    full = taken(
        accounts.request_units(pool, Account(), UnitRequest("a", {"tokens": 1000}, 5), at(0))
    ).account
    answer = accounts.request_units(
        pool, replace(full, breaker=account.breaker), UnitRequest("b", {"tokens": 500}, 5), at(40)
    )
    assert isinstance(answer, UnitDenial)
    assert 20 < answer.wait < 22, "what is in the window must pass as well"
    answer = accounts.request_units(
        pool, replace(full, breaker=account.breaker), UnitRequest("c", {"tokens": 800}, 5), at(40)
    )
    assert isinstance(answer, UnitDenial)
    assert 20 < answer.wait < 22, "it passes while the ramp is waited for"


def test_n6_expired_closures_are_removed_and_an_operators_closure_stays() -> None:
    account = refused(Account(), Refusal(reason=Reason.RATE, retry_after=30), 0)
    account = accounts.close_account(account, OperatorClosure(by="ann", since=START))
    answer = ask(account, "a", 60)
    assert isinstance(answer, UnitDenial)
    assert answer.account.breaker.closures == ()
    assert answer.account.closed is not None


def taken(answer: UnitGrant | UnitDenial) -> UnitGrant:
    assert isinstance(answer, UnitGrant)
    return answer


@pytest.mark.parametrize("amount", [0.0, -1.0, math.inf, math.nan])
def test_an_override_must_be_a_number_above_0(amount: float) -> None:
    problem = LimitChanges(amounts={"requests per minute": amount}).problem(POOL)
    assert problem == f"requests per minute: must be above 0, is {amount}; close the pool to allow nothing"
    assert LimitChanges(amounts={"requests per minute": 0.5}).problem(POOL) is None


def test_a_pool_that_opens_during_a_ramp_begins_no_new_ramp() -> None:
    closed = refused(Account(), Refusal(reason=Reason.RATE, retry_after=5), 0)
    opened = replace(closed, breaker=replace(closed.breaker, closures=()))

    def ramps(before: float | None, after: float | None) -> list[bool]:
        old = replace(closed, breaker=replace(closed.breaker, ramp=before))
        new = replace(opened, breaker=replace(opened.breaker, ramp=after))
        return [news.ramp for news in compare_accounts(("gemini", None), "a", old, new)]

    assert ramps(None, 50.0) == [True]
    assert ramps(50.0, 50.0) == [False]
    assert ramps(None, None) == [False]


@pytest.mark.parametrize(("used", "left"), [(100.0, 900.0), (30.0, 970.0), (150.0, 900.0)])
def test_the_remaining_units_at_the_claim_grow_by_the_unused_ones(used: float, left: float) -> None:
    pool = PoolSettings(limits=(Limit.tokens(1000, per="minute"),))
    answer = taken(accounts.request_units(pool, Account(), UnitRequest("a", {"tokens": 100}, 5), at(0)))
    ended = [ledger.HeldReservation("m", None, answer.reservation)]
    spent = UsageReport(usages=(PoolUsage(pool="m", units={"tokens": used}),))
    assert ledger._remaining_at_claim(pool, ended, spent) == {"tokens per minute": left}
    assert ledger._remaining_at_claim(pool, ended, UsageReport()) == {"tokens per minute": 900.0}


def test_a_reservation_stores_what_is_left_of_every_windowed_limit() -> None:
    """A provider's count does not show how many of our calls are in flight."""
    pool = PoolSettings(
        limits=(
            Limit.requests(10, per="minute"),
            Limit.tokens(100, per=Day("UTC")),
            Limit.concurrent(4),
        )
    )
    account = Account()
    for number in range(1, 4):
        answer = taken(
            accounts.request_units(pool, account, UnitRequest(f"{number}", {"tokens": 20}, 5), at(number))
        )
        account = answer.account
        assert answer.reservation.left == {
            "requests per minute": 10 - number,
            "tokens per day": 100 - 20 * number,
        }
