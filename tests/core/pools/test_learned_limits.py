"""Stated amounts and refusals lower a limit at once, and raise it again only when confirmed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tidemill.core import accounts, learned_limits, pool_statistics
from tidemill.core.accounts import Account, UnitDenial, UnitGrant
from tidemill.core.breaker import Breaker
from tidemill.core.feedback import Observation, Reason, Refusal
from tidemill.core.limits import Limit
from tidemill.core.pools import PoolSettings
from tidemill.core.reservations import UnitRequest
from tidemill.core.windows import Instant

NAME = "requests per minute"
POOL = PoolSettings(limits=(Limit.requests(60, per="minute"),))
START = 1_800_040_000.0


def at(seconds: float) -> Instant:
    return Instant(START + seconds, 100.0 + seconds)


def observe(
    account: Account, seconds: float, amount: float | None = None, *, refused: bool = False
) -> Account:
    seen = Observation(
        pool="p",
        amounts={} if amount is None else {NAME: amount},
        refusal=Refusal(reason=Reason.RATE, retry_after=1) if refused else None,
    )
    return accounts.record_observation(POOL, account, seen, None, at(seconds), chance=0.5, running=1)


def allowed(account: Account, seconds: float) -> float:
    return accounts.pool_with_learned_limits(POOL, account, at(seconds)).limits[0].amount


def granted(account: Account, seconds: float, most: int = 100) -> tuple[Account, int]:
    count = 0
    while count < most:
        answer = accounts.request_units(POOL, account, UnitRequest(f"{seconds} {count}", {}, 5), at(seconds))
        if isinstance(answer, UnitDenial):
            break
        account, count = answer.account, count + 1
    return account, count


def test_a_lower_amount_is_used_at_once_and_a_higher_one_when_confirmed() -> None:
    account = observe(Account(), 0, 30)
    assert granted(account, 1)[1] == 30
    assert account.learned[NAME].since == START
    more = observe(account, 100, 45)
    assert allowed(more, 100) == 30
    assert allowed(observe(more, 101, 45), 101) == 30, "at the same moment is not again"
    assert allowed(observe(more, 161, 45), 161) == 45
    assert allowed(observe(more, 161, 40), 161) == 40, "of two the lower"


def test_a_lower_amount_in_between_is_used() -> None:
    account = observe(observe(Account(), 0, 30), 100, 60)
    account = observe(account, 130, 20)
    assert allowed(observe(account, 170, 60), 170) == 20
    assert observe(observe(account, 170, 60), 240, 60).learned == {}


@pytest.mark.parametrize("stated", [60, 61, 10_000])
def test_a_learned_limit_never_exceeds_the_configured_one(stated: float) -> None:
    account = observe(observe(Account(), 0, stated), 100, stated)
    assert allowed(account, 100) == 60
    assert account.learned == {}


def test_a_call_larger_than_a_learned_limit_goes_alone() -> None:
    """The provider refuses it for good, instead of the pool blocking it for ever without a message."""
    pool = PoolSettings(limits=(Limit.tokens(1000, per="minute"),))
    seen = Observation(pool="p", amounts={"tokens per minute": 100})
    account = accounts.record_observation(pool, Account(), seen, None, at(0), chance=0.5, running=1)
    small = accounts.request_units(pool, account, UnitRequest("small", {"tokens": 50}, 5), at(0))
    assert isinstance(small, UnitGrant)
    answer = accounts.request_units(pool, small.account, UnitRequest("big", {"tokens": 500}, 5), at(1))
    assert isinstance(answer, UnitDenial)
    assert 59 < answer.wait < 61
    assert isinstance(
        accounts.request_units(pool, answer.account, UnitRequest("big", {"tokens": 500}, 5), at(61)),
        UnitGrant,
    )


def test_a_second_refusal_without_an_amount_lowers_the_limit() -> None:
    account, _ = granted(Account(), 0, 31)
    account = observe(account, 1, refused=True)
    assert allowed(account, 1) == 60, "it may have been somebody else's traffic"
    assert allowed(observe(account, 10, refused=True), 10) == 60, "the same burst"
    account, _ = granted(account, 62, 31)
    account = observe(account, 63, refused=True)
    assert allowed(account, 63) == 30
    lasts = learned_limits.GUESS_LIFETIME_WINDOWS * 60
    assert allowed(account, 63 + lasts - 1) == 30
    assert allowed(account, 63 + lasts) == 60, "a guess is forgotten"


def test_refusals_far_apart_do_not_lower_the_limit() -> None:
    account = observe(Account(), 0, refused=True)
    account = observe(account, 1000, refused=True)
    assert allowed(account, 1000) == 60


@pytest.mark.parametrize(("seconds", "kept"), [(0, True), (61, True), (180, True), (181, False)])
def test_an_account_is_kept_while_a_second_refusal_would_lower_a_limit(seconds: float, kept: bool) -> None:
    """An unused account is deleted, and with it the first of two refusals."""
    account = observe(Account(), 0, refused=True)
    assert account.learned == {}
    assert learned_limits.has_effect(POOL, {}, account.suspects, START + seconds) is kept
    assert pool_statistics.is_at_rest(POOL, replace(account, breaker=Breaker()), at(seconds)) is not kept


def test_a_stated_amount_is_not_a_guess() -> None:
    account = observe(observe(Account(), 0, 50, refused=True), 60, 50, refused=True)
    assert allowed(account, 61) == 50
    assert account.learned[NAME].until is None


def test_opening_the_pool_drops_learned_limits() -> None:
    assert allowed(accounts.open_account(observe(Account(), 0, 30)), 1) == 60


def test_changing_the_amount_drops_the_learned_limit() -> None:
    """A provider that states its amounts only with a refusal would never state the new one."""
    account = observe(Account(), 0, 30)
    raised = PoolSettings(limits=(Limit.requests(600, per="minute"),))
    assert accounts.pool_with_learned_limits(raised, account, at(1)).limits[0].amount == 600
    seen = Observation(pool="p", amounts={NAME: 30})
    again = accounts.record_observation(raised, account, seen, None, at(2), chance=0.5, running=1)
    assert accounts.pool_with_learned_limits(raised, again, at(2)).limits[0].amount == 30, (
        "the provider has the last word"
    )
    assert not learned_limits.has_effect(raised, account.learned, {}, START)


def well(account: Account, seconds: float) -> Account:
    return accounts.record_success(POOL, account, at(seconds))


def guessed() -> Account:
    """Returns an account refused twice in two windows; from second 70 on its limit is guessed at half."""
    account = observe(Account(), 0, refused=True)
    account = observe(account, 70, refused=True)
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


def test_another_refusal_lowers_the_guess_again_and_for_longer() -> None:
    account = well(guessed(), 130)
    account = observe(account, 140, refused=True)
    assert allowed(account, 140) == 22.5, "half of what was believed"
    assert allowed(well(account, 201), 201) == 22.5, "two windows, this time"
    account = well(account, 261)
    assert allowed(account, 261) == 37.5
    assert observe(account, 262, refused=True).learned[NAME].rise_windows == 4


def test_refusals_of_one_burst_lower_the_guess_once() -> None:
    account = well(guessed(), 130)
    for second in (140, 141, 150):
        account = observe(account, second, refused=True)
    assert allowed(account, 150) == 22.5


def test_a_recovered_guess_is_kept_until_it_expires() -> None:
    account = well(well(guessed(), 130), 190)
    assert allowed(account, 190) == 60
    assert allowed(observe(account, 200, refused=True), 200) == 30
    forgotten = 70 + learned_limits.GUESS_LIFETIME_WINDOWS * 60
    assert allowed(observe(account, forgotten, refused=True), forgotten) == 60


def test_a_stated_amount_does_not_rise_with_successes() -> None:
    account = observe(Account(), 0, 30)
    for second in range(0, 600, 10):
        account = well(account, second)
    assert allowed(account, 600) == 30


@given(st.lists(st.tuples(st.floats(0.1, 90), st.booleans()), max_size=60))
def test_a_guess_never_exceeds_the_configured_amount_and_always_recovers(
    steps: list[tuple[float, bool]],
) -> None:
    account, now = Account(), 0.0
    for wait, refused in steps:
        now += wait
        account = observe(account, now, refused=True) if refused else well(account, now)
        assert 1 <= allowed(account, now) <= 60
    for _ in range(learned_limits.GUESS_LIFETIME_WINDOWS * 4):
        now += 15
        account = well(account, now)
        assert allowed(account, now) <= 60
    if not any(spacing.confirmed for spacing in account.spacings.values()):
        assert allowed(account, now) == 60
    for _ in range(24 * 7):  # a confirmed spacing is shortened at most once an hour (P24)
        now += 3600
        account = well(account, now)
    assert allowed(account, now) == 60
