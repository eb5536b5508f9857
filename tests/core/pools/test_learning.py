"""What providers state or refuse lowers a limit at once, and raises it again only when confirmed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tidemill.core import accounts, learning, usage
from tidemill.core.accounts import Account, Denied, Taken
from tidemill.core.breaker import Breaker
from tidemill.core.limits import Limit
from tidemill.core.pools import PoolSettings
from tidemill.core.refusals import Reason, Refusal
from tidemill.core.reserving import Ask
from tidemill.core.spending import Observation
from tidemill.core.windows import Instant

NAME = "requests per minute"
POOL = PoolSettings(limits=(Limit.requests(60, per="minute"),))
START = 1_800_040_000.0


def at(seconds: float) -> Instant:
    return Instant(START + seconds, 100.0 + seconds)


def told(account: Account, seconds: float, amount: float | None = None, *, refused: bool = False) -> Account:
    seen = Observation(
        pool="p",
        amounts={} if amount is None else {NAME: amount},
        refusal=Refusal(reason=Reason.RATE, retry_after=1) if refused else None,
    )
    return accounts.observed(POOL, account, seen, None, at(seconds), chance=0.5, running=1)


def allowed(account: Account, seconds: float) -> float:
    return accounts.believed(POOL, account, at(seconds)).limits[0].amount


def granted(account: Account, seconds: float, most: int = 100) -> tuple[Account, int]:
    count = 0
    while count < most:
        answer = accounts.ask(POOL, account, Ask(f"{seconds} {count}", {}, 5), at(seconds))
        if isinstance(answer, Denied):
            break
        account, count = answer.account, count + 1
    return account, count


def test_less_is_believed_at_once_and_more_when_it_is_said_again() -> None:
    account = told(Account(), 0, 30)
    assert granted(account, 1)[1] == 30
    assert account.learned[NAME].since == START
    more = told(account, 100, 45)
    assert allowed(more, 100) == 30
    assert allowed(told(more, 101, 45), 101) == 30, "at the same moment is not again"
    assert allowed(told(more, 161, 45), 161) == 45
    assert allowed(told(more, 161, 40), 161) == 40, "of two the lower"


def test_something_lower_in_between_is_believed() -> None:
    account = told(told(Account(), 0, 30), 100, 60)
    account = told(account, 130, 20)
    assert allowed(told(account, 170, 60), 170) == 20
    assert told(told(account, 170, 60), 240, 60).learned == {}


@pytest.mark.parametrize("said", [60, 61, 10_000])
def test_never_more_than_people_set(said: float) -> None:
    account = told(told(Account(), 0, said), 100, said)
    assert allowed(account, 100) == 60
    assert account.learned == {}


def test_a_call_larger_than_what_was_learned_goes_alone() -> None:
    """The provider itself refuses it for good, rather than the pool for ever without a word."""
    pool = PoolSettings(limits=(Limit.tokens(1000, per="minute"),))
    seen = Observation(pool="p", amounts={"tokens per minute": 100})
    account = accounts.observed(pool, Account(), seen, None, at(0), chance=0.5, running=1)
    small = accounts.ask(pool, account, Ask("small", {"tokens": 50}, 5), at(0))
    assert isinstance(small, Taken)
    answer = accounts.ask(pool, small.account, Ask("big", {"tokens": 500}, 5), at(1))
    assert isinstance(answer, Denied)
    assert 59 < answer.wait < 61
    assert isinstance(accounts.ask(pool, answer.account, Ask("big", {"tokens": 500}, 5), at(61)), Taken)


def test_a_second_refusal_that_names_no_amount_lowers_what_is_believed() -> None:
    account, _ = granted(Account(), 0, 31)
    account = told(account, 1, refused=True)
    assert allowed(account, 1) == 60, "it may have been somebody else's traffic"
    assert allowed(told(account, 10, refused=True), 10) == 60, "the same burst"
    account, _ = granted(account, 62, 31)
    account = told(account, 63, refused=True)
    assert allowed(account, 63) == 30
    lasts = learning.GUESS_LASTS * 60
    assert allowed(account, 63 + lasts - 1) == 30
    assert allowed(account, 63 + lasts) == 60, "a guess is forgotten"


def test_refusals_far_apart_say_nothing_of_the_limit() -> None:
    account = told(Account(), 0, refused=True)
    account = told(account, 1000, refused=True)
    assert allowed(account, 1000) == 60


@pytest.mark.parametrize(("seconds", "kept"), [(0, True), (61, True), (180, True), (181, False)])
def test_an_account_is_kept_while_a_second_refusal_would_tell_something(seconds: float, kept: bool) -> None:
    """An account at rest is forgotten, and with it the first of two refusals."""
    account = told(Account(), 0, refused=True)
    assert account.learned == {}
    assert learning.matters(POOL, {}, account.suspects, START + seconds) is kept
    assert usage.at_rest(POOL, replace(account, breaker=Breaker()), at(seconds)) is not kept


def test_a_stated_amount_is_no_guess() -> None:
    account = told(told(Account(), 0, 50, refused=True), 60, 50, refused=True)
    assert allowed(account, 61) == 50
    assert account.learned[NAME].until is None


def test_a_person_who_opens_the_pool_knows_better() -> None:
    assert allowed(accounts.opened(told(Account(), 0, 30)), 1) == 60


def test_people_who_set_another_amount_know_better() -> None:
    """A provider that states its amounts only with a refusal would never state the new one."""
    account = told(Account(), 0, 30)
    raised = PoolSettings(limits=(Limit.requests(600, per="minute"),))
    assert accounts.believed(raised, account, at(1)).limits[0].amount == 600
    seen = Observation(pool="p", amounts={NAME: 30})
    again = accounts.observed(raised, account, seen, None, at(2), chance=0.5, running=1)
    assert accounts.believed(raised, again, at(2)).limits[0].amount == 30, "the provider has the last word"
    assert not learning.matters(raised, account.learned, {}, START)


def well(account: Account, seconds: float) -> Account:
    return accounts.succeeded(POOL, account, at(seconds))


def guessed() -> Account:
    """Refused twice in two windows; from second 70 on half is believed."""
    account = told(Account(), 0, refused=True)
    account = told(account, 70, refused=True)
    assert allowed(account, 70) == 30
    return account


def test_a_guess_recovers_within_a_few_windows_of_successes() -> None:
    account = guessed()
    for second in range(70, 70 + 121):
        account = well(account, second)
    assert allowed(account, 129) == allowed(account, 190) == 60
    stays = guessed()
    assert allowed(well(stays, 129), 129) == 30, "not before a window is over"
    assert allowed(well(stays, 130), 130) == 45
    assert allowed(stays, 600) == 30, "without successes it stays"


def test_one_more_refusal_backs_off_again_and_for_longer() -> None:
    account = well(guessed(), 130)
    account = told(account, 140, refused=True)
    assert allowed(account, 140) == 22.5, "half of what was believed"
    assert allowed(well(account, 201), 201) == 22.5, "two windows, this time"
    account = well(account, 261)
    assert allowed(account, 261) == 37.5
    assert told(account, 262, refused=True).learned[NAME].patience == 4


def test_refusals_of_one_burst_back_off_once() -> None:
    account = well(guessed(), 130)
    for second in (140, 141, 150):
        account = told(account, second, refused=True)
    assert allowed(account, 150) == 22.5


def test_a_guess_that_is_whole_again_is_remembered_until_its_time() -> None:
    account = well(well(guessed(), 130), 190)
    assert allowed(account, 190) == 60
    assert allowed(told(account, 200, refused=True), 200) == 30
    forgotten = 70 + learning.GUESS_LASTS * 60
    assert allowed(told(account, forgotten, refused=True), forgotten) == 60


def test_a_stated_amount_does_not_rise_with_successes() -> None:
    account = told(Account(), 0, 30)
    for second in range(0, 600, 10):
        account = well(account, second)
    assert allowed(account, 600) == 30


@given(st.lists(st.tuples(st.floats(0.1, 90), st.booleans()), max_size=60))
def test_a_guess_never_passes_what_people_set_and_always_recovers(steps: list[tuple[float, bool]]) -> None:
    account, now = Account(), 0.0
    for wait, refused in steps:
        now += wait
        account = told(account, now, refused=True) if refused else well(account, now)
        assert 1 <= allowed(account, now) <= 60
    for _ in range(learning.GUESS_LASTS * 4):
        now += 15
        account = well(account, now)
        assert allowed(account, now) <= 60
    assert allowed(account, now) == 60
