"""What a store keeps of a pool, and what each verb makes of it."""

from __future__ import annotations

import math

from tidemill.core import accounts
from tidemill.core.accounts import Account, Denied, HandClosure, Taken
from tidemill.core.calendars import Day
from tidemill.core.limits import Limit
from tidemill.core.pools import PoolSettings
from tidemill.core.refusals import Reason, Refusal
from tidemill.core.reserving import Ask, room
from tidemill.core.spending import Observation
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
    second = ask(probe.account, "b", opens + 61)
    assert isinstance(second, Taken), "a dead prober is replaced"
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
    assert account.foreign == {"requests per minute": 6}


def test_more_left_than_we_know_of_is_not_believed_while_calls_are_under_way() -> None:
    answer = ask(Account(), "a", 0)
    assert isinstance(answer, Taken)
    seen = Observation(pool="gemini", remaining={"requests per minute": 10})
    account = accounts.observed(POOL, answer.account, seen, "a", at(1), chance=0.5, running=1)
    assert room(POOL, account.state, at(1))["requests per minute"] == 9


def test_an_account_of_another_boot_starts_with_nothing_left_and_keeps_its_closures() -> None:
    account = accounts.at_boot(POOL, Account(), "one", at(0))
    account = refused(account, Refusal(reason=Reason.DAY_QUOTA), 0)
    later = accounts.at_boot(POOL, account, "two", at(5))
    assert room(POOL, later.state, at(5))["requests per minute"] == 0
    assert later.breaker.closures == account.breaker.closures
