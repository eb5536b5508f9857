"""Limits that are taken out of a pool and declared again while calls are under way (P1, I14)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tidemill.core import accounts, reserving
from tidemill.core.accounts import Account, HandClosure, Taken
from tidemill.core.breaker import Breaker
from tidemill.core.learning import Learned
from tidemill.core.limits import Limit
from tidemill.core.pools import PoolSettings, going_on
from tidemill.core.reserving import Ask, Reservation, room
from tidemill.core.windows import Instant
from tidemill.core.windows.rolling import Rolling

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


def test_what_a_call_holds_of_a_limit_that_is_taken_out_is_let_go() -> None:
    """The reservation forgets it, so it could not return the units to a limit that is declared again."""
    pool, without = PoolSettings(limits=LIMITS), PoolSettings(limits=LIMITS[:1])
    account, kept = _taken(pool)
    for before, after in ((pool, without), (without, pool)):
        account, kept = _declared(before, after, account, kept)
    assert account.state.held == {}
    account = accounts.settled(pool, account, kept, {"tokens": 100.0}, at(2))
    assert room(pool, account.state, at(2))["tokens per minute"] == 1000


@given(st.sets(st.sampled_from([limit.name for limit in LIMITS])))
def test_p1_of_a_limit_that_is_taken_out_nothing_is_kept(names: set[str]) -> None:
    """Neither its own count nor that of others, nor what calls hold of it, nor what was learned of it."""
    every = [limit.name for limit in LIMITS]
    account, _ = _taken(PoolSettings(limits=LIMITS))
    account = replace(
        account,
        breaker=Breaker(ramp=7.0),
        closed=HandClosure(by="ann", since=0.0),
        state=replace(account.state, windows=dict.fromkeys(every, Rolling()), held=dict.fromkeys(every, 3.0)),
        foreign=dict.fromkeys(every, Rolling()),
        learned=dict.fromkeys(every, Learned(amount=1.0, below=2.0, since=0.0)),
        suspects=dict.fromkeys(every, 5.0),
    )
    after = accounts.redeclared(account, frozenset(names))
    for kept in (after.state.windows, after.state.held, after.foreign, after.learned):
        assert set(kept) == names
    assert after.suspects == {}
    assert after.state.revision == account.state.revision + 1
    assert (after.breaker, after.closed) == (account.breaker, account.closed)


@given(declarations, st.sampled_from(["settle", "release", "count anew"]))
def test_whatever_is_declared_during_a_call_nothing_is_lost_for_good(
    declared: list[PoolSettings], end: str
) -> None:
    whole = PoolSettings(limits=LIMITS)
    account, kept = _taken(whole)
    pool = whole
    for after in [*declared, whole]:
        account, kept = _declared(pool, after, account, kept)
        pool = after
    if end == "settle":
        account = accounts.settled(pool, account, kept, {"tokens": 70.0}, at(2))
    elif end == "release":
        account = accounts.released(pool, account, kept, at(2))
    else:
        account = accounts.counted_anew(pool, account, kept, at(2))
    later = at(3 * 3600)
    assert room(whole, account.state, later) == room(whole, Account().state, later)


def _taken(pool: PoolSettings) -> tuple[Account, Reservation]:
    answer = accounts.ask(pool, Account(), Ask("a", {"tokens": 100.0}, 5), at(0))
    assert isinstance(answer, Taken)
    return answer.account, answer.reservation


def _declared(
    before: PoolSettings, after: PoolSettings, account: Account, kept: Reservation
) -> tuple[Account, Reservation]:
    """As a store does it."""
    names = going_on(before, after)
    return accounts.redeclared(account, names), reserving.redeclared(kept, names)
