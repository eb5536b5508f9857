"""External units count as long as the provider says, or else for a whole window."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core import accounts, pool_statistics
from tidemill.core.accounts import Account, UnitDenial, UnitGrant
from tidemill.core.external_usage import CallFacts
from tidemill.core.feedback import Observation, Reason, Refusal
from tidemill.core.limits import Limit, ShapeName
from tidemill.core.pools import PoolSettings
from tidemill.core.reservations import UnitRequest, remaining_units
from tidemill.core.windows import Instant
from tidemill.core.windows.rolling_window import SLOTS_PER_WINDOW

NAME = "requests per minute"
START = 1_800_040_000.0
A_SLOT = 60 / SLOTS_PER_WINDOW


def at(seconds: float) -> Instant:
    return Instant(START + seconds, 100.0 + seconds)


def pool_of(shape: ShapeName) -> PoolSettings:
    return PoolSettings(limits=(Limit.requests(60, per="minute", shape=shape),))


ROLLING = pool_of("rolling")


def after(
    pool: PoolSettings = ROLLING,
    *,
    left: float = 0,
    retry_after: float | None = None,
    resets: float | None = None,
    refused: bool = True,
) -> Account:
    """Returns the account after one call of ours, whose answer at second 0 reports how much is left."""
    taken = accounts.request_units(pool, Account(), UnitRequest("a", {}, 5), at(0))
    assert isinstance(taken, UnitGrant)
    account = accounts.settle_units(pool, taken.account, taken.reservation, None, at(0))
    seen = Observation(
        pool="p",
        remaining={NAME: left},
        resets={} if resets is None else {NAME: START + resets},
        refusal=Refusal(reason=Reason.RATE, retry_after=retry_after) if refused else None,
    )
    facts = CallFacts(left=taken.reservation.left, units={"requests": 1.0}, claimed=100.0)
    return accounts.record_observation(pool, account, seen, None, at(0), chance=0.5, running=1, call=facts)


def free(account: Account, seconds: float, pool: PoolSettings = ROLLING) -> float:
    return remaining_units(pool, account.state, at(seconds))[NAME]


@pytest.mark.parametrize("shape", ["rolling", "paced", "bucket"])
def test_a_call_fits_after_the_hinted_wait(shape: ShapeName) -> None:
    pool = pool_of(shape)
    account = after(pool, retry_after=3)
    early = accounts.request_units(pool, account, UnitRequest("a", {}, 5), at(3.4))
    assert isinstance(early, UnitDenial)
    assert isinstance(
        accounts.request_units(pool, account, UnitRequest("a", {}, 5), at(3.5 + A_SLOT)), UnitGrant
    )


def test_the_rest_returns_evenly_over_the_window() -> None:
    """The provider said when one call fits. If all units were free then, the next calls would be refused."""
    account = after(retry_after=3)
    assert free(account, 4) == pytest.approx(3, abs=0.5)
    assert free(account, 30) == pytest.approx(29, abs=3)
    assert free(account, 62) == 60
    assert pool_statistics.external_units(ROLLING, account, at(62)) == {}


def test_a_few_calls_a_minute_wait_no_longer_than_the_hint() -> None:
    pool = PoolSettings(limits=(Limit.requests(5, per="minute"),))
    account = after(pool, retry_after=3)
    assert free(account, 3.5 + A_SLOT, pool) >= 1


@pytest.mark.parametrize("refused", [True, False])
def test_all_units_are_free_at_the_reset(refused: bool) -> None:
    account = after(resets=10, refused=refused)
    assert free(account, 10.4) == pytest.approx(0)
    assert free(account, 10.5 + A_SLOT) == 59, "all but our own call"


def test_a_reset_in_the_past_is_ignored() -> None:
    account = after(resets=-5, refused=False)
    assert free(account, 59) == pytest.approx(0)


def test_without_a_hint_units_count_for_a_whole_window() -> None:
    account = after(refused=False)
    assert free(account, 60) == pytest.approx(0)
    assert free(account, 61) == 60


def test_the_hint_does_not_apply_to_a_limit_with_enough_left() -> None:
    account = after(left=30, retry_after=3)
    assert free(account, 59) == pytest.approx(30)


@given(
    left=st.floats(0, 50),
    wait=st.none() | st.floats(0, 100),
    resets=st.none() | st.floats(-10, 100),
    shape=st.sampled_from(["rolling", "paced"]),
    then=st.floats(0, 130),
)
def test_a_hint_only_shortens_the_wait(
    left: float, wait: float | None, resets: float | None, shape: ShapeName, then: float
) -> None:
    pool = pool_of(shape)
    hinted = after(pool, left=left, retry_after=wait, resets=resets)
    plain = after(pool, left=left, refused=False)
    assert pool_statistics.external_units(pool, hinted, at(then)).get(NAME, 0.0) <= (
        pool_statistics.external_units(pool, plain, at(then)).get(NAME, 0.0) + 1e-6
    )
    hints = [hint for hint in (wait, resets) if hint is not None and hint >= 0]
    if left == 0 and hints and then < min(*hints, 60):
        assert free(hinted, then, pool) <= 1e-6
