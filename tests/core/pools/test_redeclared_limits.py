"""Limits that are removed from a pool and declared again while calls are in flight (P1, I14)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tidemill.core import accounts, reservations
from tidemill.core.accounts import Account, OperatorClosure, UnitGrant
from tidemill.core.breaker import Breaker
from tidemill.core.learned_limits import LearnedLimit
from tidemill.core.limits import Limit
from tidemill.core.pools import PoolSettings, surviving_limits
from tidemill.core.reservations import Reservation, UnitRequest, remaining_units
from tidemill.core.windows import Instant
from tidemill.core.windows.rolling_window import RollingWindow

LIMITS = (
    Limit.requests(50, per="minute"),
    Limit.tokens(1000, per="minute", charge="completed"),
    Limit.tokens(5000, per="hour", shape="bucket"),
    Limit.concurrent(20),
)
declarations = st.lists(
    st.sets(st.sampled_from(range(len(LIMITS))), min_size=1).map(
        lambda chosen: PoolSettings(limits=tuple(LIMITS[index] for index in sorted(chosen)))
    ),
    max_size=6,
)


def at(seconds: float) -> Instant:
    return Instant(1.8e9 + seconds, 1000.0 + seconds)


def test_a_removed_limit_releases_the_units_that_calls_hold() -> None:
    """The reservation drops the mark, so it cannot return units to a limit that is declared again."""
    pool, without = PoolSettings(limits=LIMITS), PoolSettings(limits=LIMITS[:1])
    account, kept = _taken(pool)
    for before, after in ((pool, without), (without, pool)):
        account, kept = _declared(before, after, account, kept)
    assert account.state.held == {}
    account = accounts.settle_units(pool, account, kept, {"tokens": 100.0}, at(2))
    assert remaining_units(pool, account.state, at(2))["tokens per minute"] == 1000


@given(st.sets(st.sampled_from([limit.name for limit in LIMITS])))
def test_p1_nothing_of_a_removed_limit_is_kept(names: set[str]) -> None:
    """Neither its count, nor external usage, nor units held by calls, nor the learned limit."""
    every = [limit.name for limit in LIMITS]
    account, _ = _taken(PoolSettings(limits=LIMITS))
    account = replace(
        account,
        breaker=Breaker(ramp=7.0),
        closed=OperatorClosure(by="ann", since=0.0),
        state=replace(
            account.state, windows=dict.fromkeys(every, RollingWindow()), held=dict.fromkeys(every, 3.0)
        ),
        external_usage=dict.fromkeys(every, RollingWindow()),
        learned=dict.fromkeys(every, LearnedLimit(amount=1.0, below=2.0, since=0.0)),
        suspects=dict.fromkeys(every, 5.0),
    )
    after = accounts.redeclare_account(account, frozenset(names))
    for kept in (after.state.windows, after.state.held, after.external_usage, after.learned):
        assert set(kept) == names
    assert after.suspects == {}
    assert after.state.revision == account.state.revision + 1
    assert (after.breaker, after.closed) == (account.breaker, account.closed)


@given(declarations, st.sampled_from(["settle", "release", "count anew"]))
def test_no_units_are_lost_by_declarations_during_a_call(declared: list[PoolSettings], end: str) -> None:
    whole = PoolSettings(limits=LIMITS)
    account, kept = _taken(whole)
    pool = whole
    for after in [*declared, whole]:
        account, kept = _declared(pool, after, account, kept)
        pool = after
    if end == "settle":
        account = accounts.settle_units(pool, account, kept, {"tokens": 70.0}, at(2))
    elif end == "release":
        account = accounts.release_units(pool, account, kept, at(2))
    else:
        account = accounts.recount_account(pool, account, kept, at(2))
    later = at(3 * 3600)
    assert remaining_units(whole, account.state, later) == remaining_units(whole, Account().state, later)


def _taken(pool: PoolSettings) -> tuple[Account, Reservation]:
    answer = accounts.request_units(pool, Account(), UnitRequest("a", {"tokens": 100.0}, 5), at(0))
    assert isinstance(answer, UnitGrant)
    return answer.account, answer.reservation


def _declared(
    before: PoolSettings, after: PoolSettings, account: Account, kept: Reservation
) -> tuple[Account, Reservation]:
    """Declares a pool as a store does."""
    names = surviving_limits(before, after)
    return accounts.redeclare_account(account, names), reservations.redeclare_reservation(kept, names)
