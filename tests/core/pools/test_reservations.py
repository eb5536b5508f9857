"""Units are taken once, and returned or kept exactly once (I14)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.core.limits import Limit, ShapeName
from tidemill.core.pools import PoolSettings, PoolState, refresh_after_boot
from tidemill.core.reservations import (
    Reservation,
    ReservationDenial,
    ReservationGrant,
    UnitRequest,
    recount_units,
    release_reservation,
    remaining_units,
    reserve_units,
    settle_reservation,
)
from tidemill.core.windows import Instant

MODEL = PoolSettings(
    limits=(Limit.requests(10, per="minute"), Limit.tokens(10_000, per="minute"), Limit.concurrent(3))
)
PER_MINUTE = "tokens per minute"


def at(seconds: float) -> Instant:
    return Instant(1.8e9 + seconds, 1000.0 + seconds)


def granted(pool: PoolSettings, state: PoolState, tokens: float, seconds: float = 0.0) -> ReservationGrant:
    answer = reserve_units(pool, state, UnitRequest("job", {"tokens": tokens}, 5), at(seconds))
    assert isinstance(answer, ReservationGrant)
    return answer


def refused(
    pool: PoolSettings, state: PoolState, ask: UnitRequest, seconds: float = 0.0
) -> ReservationDenial:
    answer = reserve_units(pool, state, ask, at(seconds))
    assert isinstance(answer, ReservationDenial)
    return answer


def test_a_denial_takes_nothing_and_names_the_limit_that_opens_last() -> None:
    state = granted(MODEL, PoolState(), 9_000).state
    no = refused(MODEL, state, UnitRequest("next", {"tokens": 2_000}, 5))
    assert no.limit == PER_MINUTE
    assert no.wait == pytest.approx(60.5, abs=0.3)
    assert no.state.windows == state.windows


def test_unused_units_are_free_at_once() -> None:
    """Estimate 2 000, actual 700."""
    yes = granted(MODEL, PoolState(), 2_000)
    after = settle_reservation(MODEL, yes.state, yes.reservation, {"tokens": 700}, at(5))
    assert remaining_units(MODEL, after, at(5))[PER_MINUTE] == 9_300
    assert after.revision > yes.state.revision


def test_units_beyond_the_reservation_are_a_debt() -> None:
    """Estimate 2 000, actual 5 000, of 10 000."""
    yes = granted(MODEL, PoolState(), 2_000)
    after = settle_reservation(MODEL, yes.state, yes.reservation, {"tokens": 12_000}, at(5))
    assert remaining_units(MODEL, after, at(5))[PER_MINUTE] == -2_000
    assert refused(MODEL, after, UnitRequest("next", {"tokens": 1}, 5), 5).wait == pytest.approx(
        60.5, abs=0.3
    )


def test_a_provider_that_charges_the_reservation_returns_nothing() -> None:
    pool = PoolSettings(limits=(Limit.tokens(10_000, per="minute", charge="reserved"),))
    yes = granted(pool, PoolState(), 2_000)
    after = settle_reservation(pool, yes.state, yes.reservation, {"tokens": 700}, at(5))
    assert remaining_units(pool, after, at(5))[PER_MINUTE] == 8_000


def test_a_call_that_was_never_made_costs_nothing() -> None:
    yes = granted(MODEL, PoolState(), 2_000)
    after = release_reservation(MODEL, yes.state, yes.reservation, at(0.2))
    assert remaining_units(MODEL, after, at(0.2)) == remaining_units(MODEL, PoolState(), at(0.2))


def test_the_units_of_a_silent_worker_are_recounted_and_its_concurrency_is_free() -> None:
    yes = granted(MODEL, PoolState(), 4_000)
    after = recount_units(MODEL, yes.state, yes.reservation, at(40))
    assert remaining_units(MODEL, after, at(40)) == {
        "requests per minute": 8,
        PER_MINUTE: 2_000,
        "calls at once": 3,
    }
    assert remaining_units(MODEL, after, at(75))[PER_MINUTE] == 6_000


def test_an_unknown_outcome_counts_in_full() -> None:
    yes = granted(MODEL, PoolState(), 4_000)
    after = settle_reservation(MODEL, yes.state, yes.reservation, None, at(5))
    assert remaining_units(MODEL, after, at(5))[PER_MINUTE] == 6_000
    assert remaining_units(MODEL, after, at(5))["calls at once"] == 3


def test_concurrency_is_freed_when_a_call_ends() -> None:
    state = PoolState()
    for _ in range(3):
        state = granted(MODEL, state, 1).state
    no = refused(MODEL, state, UnitRequest("fourth", {"tokens": 1}, 5))
    assert (no.limit, no.wait) == ("calls at once", math.inf)


def test_a_share_is_reserved_for_urgent_priorities() -> None:
    pool = PoolSettings(limits=(Limit.requests(10, per="minute"),), reserved_share=0.2, urgent=1)
    state = PoolState()
    for _ in range(8):
        state = granted(pool, state, 0).state
    assert isinstance(reserve_units(pool, state, UnitRequest("ordinary", {}, 5), at(0)), ReservationDenial)
    assert isinstance(reserve_units(pool, state, UnitRequest("urgent", {}, 1), at(0)), ReservationGrant)


def test_a_large_call_starts_among_endless_small_ones() -> None:
    """A call of 200k tokens among endless calls of 2k, at 250k a minute, starts within two windows."""
    pool = PoolSettings(limits=(Limit.tokens(250_000, per="minute"),))
    state, big = PoolState(), UnitRequest("big", {"tokens": 200_000}, 5)
    second = 0.0
    while second < 200:
        for _ in range(5):  # small calls come all the time
            answer = reserve_units(pool, state, UnitRequest("small", {"tokens": 2_000}, 5), at(second))
            state = answer.state
        if second >= 30:
            answer = reserve_units(pool, state, big, at(second))
            state = answer.state
            if isinstance(answer, ReservationGrant):
                break
        second += 1
    assert 30 < second <= 30 + 2 * 60.5


def test_a_hold_yields_to_more_urgent_calls_and_lapses_when_unused() -> None:
    pool = PoolSettings(limits=(Limit.tokens(10_000, per="minute"),))
    state = granted(pool, PoolState(), 5_000).state
    big = UnitRequest("big", {"tokens": 9_000}, 5)
    state = refused(pool, state, big).state
    assert isinstance(
        reserve_units(pool, state, UnitRequest("small", {"tokens": 4_000}, 5), at(1)), ReservationGrant
    ), "not firm yet"
    state = refused(pool, state, big, 1).state
    assert refused(pool, state, UnitRequest("small", {"tokens": 4_000}, 5), 1).limit == "held for job big"
    assert isinstance(
        reserve_units(pool, state, UnitRequest("urgent", {"tokens": 4_000}, 1), at(1)), ReservationGrant
    )
    assert isinstance(
        reserve_units(pool, state, UnitRequest("tiny", {"tokens": 1_000}, 5), at(1)), ReservationGrant
    ), "delays nobody"
    assert isinstance(
        reserve_units(pool, state, UnitRequest("small", {"tokens": 4_000}, 5), at(130)), ReservationGrant
    )


def test_another_boot_starts_with_nothing_left() -> None:
    state = refresh_after_boot(MODEL, granted(MODEL, PoolState(boot="one"), 1).state, "two", at(0))
    assert remaining_units(MODEL, state, at(0))[PER_MINUTE] == 0
    assert (
        remaining_units(MODEL, refresh_after_boot(MODEL, PoolState(), "two", at(0)), at(0))[PER_MINUTE]
        == 10_000
    ), "a new pool"


steps = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.1, 1.0, 9.0, 40.0]),
        st.floats(1.0, 9_000.0),
        st.sampled_from(["settle", "unknown", "release", "die", "keep"]),
        st.floats(0.0, 1.0),
    ),
    max_size=40,
)


@given(steps)
@settings(max_examples=300, deadline=None)
def test_no_units_leak_in_any_sequence_of_calls(asked: list[tuple[float, float, str, float]]) -> None:
    """After a quiet hour everything is free again. The units that a provider saw never exceed the limit,
    also if a dead worker made its call at any time."""
    state, second = PoolState(), 0.0
    open_: list[Reservation] = []
    seen: list[tuple[float, float]] = []
    for gap, tokens, fate, used in asked:
        second += gap
        answer = reserve_units(MODEL, state, UnitRequest("job", {"tokens": tokens}, 5), at(second))
        state = answer.state
        if isinstance(answer, ReservationDenial):
            continue
        kept = answer.reservation
        match fate:
            case "settle":
                state = settle_reservation(MODEL, state, kept, {"tokens": tokens * used}, at(second))
                seen.append((second, tokens * used))
            case "unknown":
                state = settle_reservation(MODEL, state, kept, None, at(second))
                seen.append((second, tokens))
            case "release":
                state = release_reservation(MODEL, state, kept, at(second))
            case "die":
                state = recount_units(MODEL, state, kept, at(second))
                seen.append((second + 0.5, tokens))
            case _:
                open_.append(kept)
                seen.append((second, tokens))
    for since, _ in seen:
        assert sum(tokens for when, tokens in seen if since <= when <= since + 60) <= 10_000 + 1e-6
    for kept in open_:
        state = settle_reservation(MODEL, state, kept, None, at(second))
    assert remaining_units(MODEL, state, at(second + 3600)) == pytest.approx(
        remaining_units(MODEL, PoolState(), at(0))
    )


@pytest.mark.parametrize("shape", ["rolling", "bucket", "paced"])
def test_units_counted_with_the_answer_begin_to_expire_with_it(shape: ShapeName) -> None:
    """A call of two minutes: counted at its claim, it would expire before the provider counts it."""
    limit = Limit.of("output_tokens", 1_000, per="minute", shape=shape, charge="completed")
    pool = PoolSettings(limits=(limit,))
    ask = UnitRequest("job", {"output_tokens": 1_000}, 5)
    yes = reserve_units(pool, PoolState(), ask, at(0))
    assert isinstance(yes, ReservationGrant)
    assert refused(pool, yes.state, UnitRequest("next", {"output_tokens": 900}, 5), 119).wait == math.inf
    after = settle_reservation(pool, yes.state, yes.reservation, {"output_tokens": 800}, at(120))
    no = refused(pool, after, UnitRequest("next", {"output_tokens": 900}, 5), 120)
    assert 40 < no.wait <= 61
    assert after.held == {}
    assert no.state.counted(limit, at(120), pool.guards) == pytest.approx(800)


def test_units_held_for_a_call_that_was_not_made_are_free() -> None:
    limit = Limit.of("output_tokens", 1_000, per="minute", charge="completed")
    pool = PoolSettings(limits=(limit,))
    yes = reserve_units(pool, PoolState(), UnitRequest("job", {"output_tokens": 1_000}, 5), at(0))
    assert isinstance(yes, ReservationGrant)
    assert remaining_units(pool, release_reservation(pool, yes.state, yes.reservation, at(1)), at(1)) == {
        limit.name: 1_000
    }
    anew = recount_units(pool, yes.state, yes.reservation, at(30))
    assert remaining_units(pool, anew, at(80)) == {limit.name: 0}, (
        "it counts from when its worker was given up"
    )


def test_only_the_reservation_counts_with_charge_reserved() -> None:
    pool = PoolSettings(limits=(Limit.tokens(1_000, per="minute", charge="reserved"),))
    yes = granted(pool, PoolState(), 500)
    for used in (100, 900):
        after = settle_reservation(pool, yes.state, yes.reservation, {"tokens": used}, at(1))
        assert remaining_units(pool, after, at(1)) == {PER_MINUTE: 500}


def test_a_job_given_back_uses_the_hold_of_its_lane() -> None:
    """It comes before the job that has the hold: if it had to wait for it, both would wait for ever."""
    pool = PoolSettings(limits=(Limit.tokens(10_000, per="minute"),))
    state = granted(pool, PoolState(), 9_000).state
    for second in (1, 2):
        state = refused(pool, state, UnitRequest("next", {"tokens": 9_000}, 5, "default"), second).state
    assert state.hold is not None
    assert state.hold.firm
    older = UnitRequest("given back", {"tokens": 5_000}, 5, "default")
    other = UnitRequest("of another queue", {"tokens": 5_000}, 5, "mail")
    assert refused(pool, state, other, 61).limit == "held for job next"
    answer = reserve_units(pool, state, older, at(61))
    assert isinstance(answer, ReservationGrant)
    assert answer.state.hold is None


@pytest.mark.parametrize("end", [settle_reservation, release_reservation, recount_units])
def test_a_call_without_cost_for_a_limit_returns_nothing_to_it(end: object) -> None:
    """It may still cost something of another limit."""
    state = granted(MODEL, PoolState(), 5_000).state
    free = granted(MODEL, state, 0)
    if end is settle_reservation:
        after = settle_reservation(MODEL, free.state, free.reservation, {"tokens": 0.0}, at(1))
    elif end is release_reservation:
        after = release_reservation(MODEL, free.state, free.reservation, at(1))
    else:
        after = recount_units(MODEL, free.state, free.reservation, at(1))
    assert remaining_units(MODEL, after, at(1))[PER_MINUTE] == 5_000


def test_capacity_is_held_for_the_call_with_the_larger_share_of_a_limit() -> None:
    """Two of three concurrent calls are a larger share than 5 000 of 10 000 tokens."""
    pool = PoolSettings(limits=(Limit.tokens(10_000, per="minute"), Limit.concurrent(3)))
    full = PoolState()
    for _ in range(3):
        answer = reserve_units(pool, full, UnitRequest("first", {"tokens": 100}, 5), at(0))
        assert isinstance(answer, ReservationGrant)
        full = answer.state
    slots = refused(pool, full, UnitRequest("slots", {"tokens": 100, "concurrent": 2}, 5)).state
    tokens = refused(pool, slots, UnitRequest("tokens", {"tokens": 5_000}, 5)).state
    assert tokens.hold is not None
    assert tokens.hold.job == "slots"
