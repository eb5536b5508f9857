"""The closure of each reason, its end, and how a pool opens again (N4, N5, N6, I15, I16)."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tidemill.core.breaker import (
    OVERLOAD_BUDGET,
    Breaker,
    ClosedGate,
    OpenGate,
    check_gate,
    drop_expired_closures,
    drop_probe,
    finish_probe,
    forget_boot_times,
    pool_with_ramp_and_cap,
    ramp_share,
    record_refusal,
    reopen_breaker,
    spends_attempt,
    start_probe,
    with_current_ends,
)
from tidemill.core.calendars import Calendar, Day, Month, TimeOfDay, Week, period_at
from tidemill.core.closures import RefusalFacts, day_quota_share
from tidemill.core.feedback import OPERATOR_REASONS, PROBED_REASONS, UNCHARGED_REASONS, Reason, Refusal
from tidemill.core.limits import Limit
from tidemill.core.pools import PoolSettings, PoolState
from tidemill.core.reservations import ReservationGrant, UnitRequest, reserve_units
from tidemill.core.windows import Instant
from tidemill.core.windows.calendar_window import CalendarWindow

ANGELES = "America/Los_Angeles"
GEMINI = PoolSettings(
    limits=(
        Limit.requests(10, per="minute"),
        Limit.tokens(250_000, per="minute"),
        Limit.requests(250, per=Day(ANGELES)),
    )
)
SITE = PoolSettings(limits=(Limit.requests(1, per="second"),))
VOICES = PoolSettings(limits=(Limit.concurrent(5),))
SEEN = RefusalFacts(chance=0.5)
PROBE = RefusalFacts(chance=0.5, probe=True)


def local(text: str, zone: str = ANGELES) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


START = local("2026-11-16T12:00")


def at(seconds: float, start: float = START) -> Instant:
    return Instant(start + seconds, 1000.0 + seconds)


def trip(
    refusal: Refusal,
    pool: PoolSettings = GEMINI,
    breaker: Breaker | None = None,
    now: Instant | None = None,
    seen: RefusalFacts = SEEN,
) -> Breaker:
    return record_refusal(pool, breaker or Breaker(), refusal, now or at(0), seen)


def wait(breaker: Breaker, now: Instant | None = None, **units: float) -> float | None:
    """Returns the seconds until the gate opens; None if only an operator opens it."""
    answer = check_gate(breaker, units, now or at(0))
    if isinstance(answer, OpenGate):
        return 0.0
    return None if answer.until is None else answer.until - (now or at(0)).wall


def closed_until(breaker: Breaker) -> float:
    (closure,) = breaker.closures
    assert closure.until is not None
    return closure.until


# The table of reasons


@pytest.mark.parametrize(
    ("refusal", "pool", "seconds"),
    [
        (Refusal(reason=Reason.RATE, retry_after=20), GEMINI, 20.5),
        (Refusal(reason=Reason.RATE), GEMINI, 60.5),
        (Refusal(reason=Reason.RATE), SITE, 1.5),
        (Refusal(reason=Reason.RATE), VOICES, 60.5),
        (Refusal(reason=Reason.RATE, resets_at=START + 7), GEMINI, 7.5),
        (Refusal(reason=Reason.DAY_QUOTA), GEMINI, 12 * 3600 + 300),
        (Refusal(reason=Reason.STATED, resets_at=START + 5 * 3600), GEMINI, 5 * 3600 + 0.5),
        (Refusal(reason=Reason.SPENDING), GEMINI, None),
        (Refusal(reason=Reason.FORBIDDEN, retry_after=5), GEMINI, None),
        (Refusal(reason=Reason.OVERLOAD), GEMINI, 2.5),
        (Refusal(reason=Reason.OVERLOAD, retry_after=30), GEMINI, 32.5),
        (Refusal(reason=Reason.UNKNOWN), GEMINI, 60.5),
        (Refusal(reason=Reason.UNKNOWN, retry_after=3), GEMINI, 3.5),
        (Refusal(reason=Reason.TOO_LARGE), GEMINI, 0.0),
    ],
)
def test_each_reason_closes_for_its_time(refusal: Refusal, pool: PoolSettings, seconds: float | None) -> None:
    assert wait(trip(refusal, pool)) == (seconds if seconds is None else pytest.approx(seconds))


@given(
    reason=st.sampled_from(sorted(set(Reason) - OPERATOR_REASONS - {Reason.TOO_LARGE})),
    hint=st.floats(0, 5000),
    chance=st.floats(0, 1),
    times=st.integers(1, 6),
)
def test_a_hint_is_a_lower_bound_for_every_reason(
    reason: Reason, hint: float, chance: float, times: int
) -> None:
    """I16: the next try is never before Retry-After."""
    breaker, now = Breaker(), at(0)
    for _ in range(times):
        refusal = Refusal(reason=reason, retry_after=hint)
        breaker = record_refusal(GEMINI, breaker, refusal, now, RefusalFacts(chance=chance, probe=True))
        assert closed_until(breaker) >= now.wall + hint
        now = Instant(closed_until(breaker), now.boot + closed_until(breaker) - now.wall)


@pytest.mark.parametrize(
    ("hour", "minute", "good"), [(0, 0, True), (23, 59, True), (24, 0, False), (0, 60, False)]
)
def test_a_time_of_day_goes_from_midnight_to_the_last_minute(hour: int, minute: int, good: bool) -> None:
    assert (TimeOfDay(hour, minute).problem() is None) is good


def test_which_reasons_spend_an_attempt() -> None:
    for reason in Reason:
        spent = spends_attempt(Breaker(), Refusal(reason=reason), at(0), SEEN)
        assert spent == (reason is Reason.TOO_LARGE), reason
        assert spent <= (reason not in UNCHARGED_REASONS)


def test_overload_spends_attempts_after_the_budget_and_the_budget_refills() -> None:
    storm, breaker = Refusal(reason=Reason.OVERLOAD), Breaker()
    for second in range(int(OVERLOAD_BUDGET)):
        assert not spends_attempt(breaker, storm, at(second), PROBE)
        breaker = trip(storm, breaker=breaker, now=at(second), seen=PROBE)
    assert spends_attempt(breaker, storm, at(30), PROBE)
    assert not spends_attempt(breaker, storm, at(70), PROBE)


def test_calls_claimed_before_an_overload_closed_the_pool_belong_to_its_incident() -> None:
    """Forty calls in flight meet one overload: the pool pays once, and no job does."""
    storm, breaker = Refusal(reason=Reason.OVERLOAD), Breaker()
    for call in range(40):
        early = RefusalFacts(chance=0.5, claimed=at(-call / 100).boot)
        assert not spends_attempt(breaker, storm, at(1 + call / 100), early)
        breaker = trip(storm, breaker=breaker, now=at(1 + call / 100), seen=early)
    assert breaker.budget.left == OVERLOAD_BUDGET - 1
    opened = finish_probe(start_probe(breaker, "job"), "job", at(20))
    straggler = RefusalFacts(chance=0.5, claimed=at(0).boot)
    assert trip(storm, breaker=opened, now=at(21), seen=straggler).budget == opened.budget
    later = RefusalFacts(chance=0.5, claimed=at(20.5).boot)
    assert trip(storm, breaker=opened, now=at(21), seen=later).budget.left == pytest.approx(
        OVERLOAD_BUDGET - 2 + 1 / 3
    )


def test_an_overload_without_a_claim_belongs_to_the_current_closure() -> None:
    storm = Refusal(reason=Reason.OVERLOAD)
    breaker = trip(storm)
    assert breaker.budget.left == OVERLOAD_BUDGET - 1
    assert trip(storm, breaker=breaker, now=at(1)).budget == breaker.budget


def test_only_one_units_rate_is_closed() -> None:
    breaker = trip(Refusal(reason=Reason.RATE, unit="tokens", retry_after=20))
    assert wait(breaker, tokens=900) == pytest.approx(20.5)
    assert wait(breaker) == 0
    both = trip(Refusal(reason=Reason.RATE, unit="requests", retry_after=5), breaker=breaker)
    assert wait(both) == pytest.approx(5.5)
    assert wait(both, tokens=900) == pytest.approx(20.5)
    assert wait(both, at(6), tokens=0) == 0


# A day's quota


@pytest.mark.parametrize(
    ("met", "resumes"),
    [
        ("2026-11-16T12:00", "2026-11-17T00:05"),
        ("2026-03-07T23:00", "2026-03-08T00:05"),
        ("2026-03-08T12:00", "2026-03-09T00:05"),  # a day of 23 hours
        ("2026-11-01T00:30", "2026-11-02T00:05"),  # a day of 25 hours
    ],
)
def test_a_day_quota_is_free_after_midnight_in_the_providers_zone(met: str, resumes: str) -> None:
    """N4: also if the day has 23 or 25 hours."""
    breaker = trip(Refusal(reason=Reason.DAY_QUOTA), now=at(0, local(met)))
    assert closed_until(breaker) == local(resumes)


@given(
    tokens=st.sampled_from([Day("UTC"), Week("Asia/Shanghai"), Month("UTC")]),
    requests=st.sampled_from([Day(ANGELES), Week("UTC"), Month("Asia/Shanghai")]),
    start=st.integers(1_767_000_000, 1_799_000_000),
)
def test_a_refusal_with_a_unit_waits_for_the_calendar_of_that_unit(
    tokens: Calendar, requests: Calendar, start: int
) -> None:
    """A used-up month of tokens does not open at midnight because requests are counted by the day."""
    pool = PoolSettings(limits=(Limit.tokens(1e6, per=tokens), Limit.requests(250, per=requests)))
    for unit, calendar in (("tokens", tokens), ("requests", requests)):
        breaker = trip(Refusal(reason=Reason.DAY_QUOTA, unit=unit), pool, now=at(0, start))
        assert closed_until(breaker) == period_at(calendar, start).end + 300


def test_a_refusal_without_a_unit_waits_for_the_next_day() -> None:
    pool = PoolSettings(limits=(Limit.tokens(1e6, per=Month(ANGELES)), Limit.requests(250, per=Day(ANGELES))))
    for unit in (None, "characters"):
        breaker = trip(Refusal(reason=Reason.DAY_QUOTA, unit=unit), pool)
        assert closed_until(breaker) == local("2026-11-17T00:05")


def test_a_day_of_25_hours_is_waited_out() -> None:
    met = local("2026-11-01T00:30")
    assert closed_until(trip(Refusal(reason=Reason.DAY_QUOTA), now=at(0, met))) - met == 24.5 * 3600 + 300


def test_a_pool_without_a_calendar_waits_for_midnight_in_los_angeles() -> None:
    assert closed_until(trip(Refusal(reason=Reason.DAY_QUOTA), SITE)) == local("2026-11-17T00:05")


def test_a_fixed_time_of_day_can_be_set() -> None:
    """N4: 16:30 UTC+8, independent of the machine's zone."""
    pool = replace(GEMINI, resumes=TimeOfDay(16, 30, "Asia/Shanghai"))
    met = datetime(2026, 11, 16, 8, 29, tzinfo=UTC).timestamp()
    refusal = Refusal(reason=Reason.DAY_QUOTA)
    assert closed_until(trip(refusal, pool, now=at(0, met))) == met + 60
    assert closed_until(trip(refusal, pool, now=at(60, met))) == met + 60 + 86_400


def test_a_time_of_day_that_the_clocks_jump_over_or_repeat_comes_once() -> None:
    half_past_two = TimeOfDay(2, 30, ANGELES)
    assert half_past_two.after(local("2026-03-08T00:00")) == local("2026-03-08T03:30")
    half_past_one = TimeOfDay(1, 30, ANGELES)
    first = half_past_one.after(local("2026-11-01T00:00"))
    assert first == datetime(2026, 11, 1, 8, 30, tzinfo=UTC).timestamp()
    assert half_past_one.after(first) == local("2026-11-02T01:30")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"resumes": TimeOfDay(24, 0)}, "resumes: time of day: must be from 00:00 to 23:59, is 24:00"),
        ({"resumes": TimeOfDay(1, 0, "Mars/Base")}, "resumes: zone: 'Mars/Base' is not in the time zone"),
        ({"probe_every": 0.0}, "probe_every: must be above 0 seconds, is 0.0"),
    ],
)
def test_invalid_settings_are_named(changes: dict[str, object], problem: str) -> None:
    assert str(replace(GEMINI, **changes).problem()).startswith(problem)


def test_a_day_quota_with_a_short_hint_is_probed_once() -> None:
    """Our ledger shows little of the day used: one probe follows after the hint, and a second refusal
    confirms the day."""
    short = Refusal(reason=Reason.DAY_QUOTA, retry_after=20)
    first = trip(short)
    assert wait(first) == pytest.approx(20.5)
    late = trip(short, breaker=first, now=at(5))
    assert wait(late, at(5)) == pytest.approx(20.5), "a call sent before confirms nothing"
    again = trip(short, breaker=late, now=at(30), seen=PROBE)
    assert closed_until(again) == local("2026-11-17T00:05")


def test_a_short_hint_is_ignored_if_our_ledger_shows_the_day_as_used_up() -> None:
    period = local("2026-11-16T00:00")
    state = PoolState(windows={"requests per day": CalendarWindow(period, 226)})
    used = day_quota_share(GEMINI, state, None, at(0))
    assert used == pytest.approx(0.904)
    breaker = trip(
        Refusal(reason=Reason.DAY_QUOTA, retry_after=20), seen=RefusalFacts(chance=0.5, day_used=used)
    )
    assert closed_until(breaker) == local("2026-11-17T00:05")


def test_usage_of_yesterday_or_of_another_unit_does_not_count() -> None:
    state = PoolState(windows={"requests per day": CalendarWindow(local("2026-11-15T00:00"), 250)})
    assert day_quota_share(GEMINI, state, None, at(0)) == 0
    today = PoolState(windows={"requests per day": CalendarWindow(local("2026-11-16T00:00"), 250)})
    assert day_quota_share(GEMINI, today, "tokens", at(0)) == 0
    assert day_quota_share(GEMINI, today, "requests", at(0)) == 1


# Unknown refusals


def test_a_quota_phrase_closes_for_a_minute_first_and_then_for_a_day() -> None:
    """The text rule of N4."""
    refusal = Refusal(reason=Reason.UNKNOWN, then=Reason.DAY_QUOTA)
    first = trip(refusal, SITE)
    assert wait(first) == pytest.approx(1.5)
    assert closed_until(trip(refusal, SITE, first, at(2), PROBE)) == local("2026-11-17T00:05")


def waits_after_bare_refusals(pool: PoolSettings, times: int, seen: RefusalFacts) -> list[float]:
    breaker, waits, now = Breaker(), [], at(0)
    for _ in range(times):
        breaker = trip(Refusal(reason=Reason.UNKNOWN), pool, breaker, now, seen)
        waits.append(closed_until(breaker) - now.wall)
        now = at(closed_until(breaker) - START)
    return waits


def test_an_unknown_refusal_closes_for_the_day_if_our_ledger_shows_it() -> None:
    waits = waits_after_bare_refusals(GEMINI, 3, replace(PROBE, day_used=0.95))
    assert waits[:2] == [pytest.approx(60.5), pytest.approx(121)]
    assert waits[2] == pytest.approx(local("2026-11-17T00:05") - START - 181.5)


def test_unknown_refusals_never_close_a_day_with_little_usage() -> None:
    waits = waits_after_bare_refusals(GEMINI, 10, replace(PROBE, day_used=0.5))
    assert waits[:3] == [pytest.approx(60.5), pytest.approx(121), pytest.approx(242)]
    assert max(waits) == waits[-1] == pytest.approx(3600)


def test_a_pool_without_days_is_tried_less_and_less_often_and_at_least_hourly() -> None:
    waits = waits_after_bare_refusals(SITE, 16, PROBE)
    assert waits[:3] == [pytest.approx(1.5), pytest.approx(3), pytest.approx(6)]
    assert waits[-1] == pytest.approx(3600)


# Operators


def test_only_an_operator_reopens_after_such_reasons() -> None:
    breaker = trip(Refusal(reason=Reason.SPENDING, text="no credit"))
    assert wait(breaker, at(400 * 86_400)) is None
    assert wait(reopen_breaker()) == 0
    assert reopen_breaker() == Breaker()


def test_a_slow_probe_of_such_a_pool_is_opt_in() -> None:
    pool = replace(GEMINI, probe_every=3600.0)
    breaker = trip(Refusal(reason=Reason.FORBIDDEN), pool)
    assert wait(breaker) == 3600
    assert check_gate(breaker, {}, at(3601)) == OpenGate(probe=True)
    again = trip(Refusal(reason=Reason.FORBIDDEN), pool, breaker, at(3602), PROBE)
    assert wait(again, at(3602)) == 3600


def test_a_spending_cap_with_an_end_ends_then() -> None:
    december = local("2026-12-01T00:00", "UTC")
    breaker = trip(Refusal(reason=Reason.SPENDING, resets_at=december))
    assert closed_until(breaker) == december + 300
    monthly = PoolSettings(limits=(Limit.usd(100, per=Month("UTC")),))
    assert closed_until(trip(Refusal(reason=Reason.DAY_QUOTA), monthly)) == december + 300


# Several closures


def test_a_pool_is_closed_until_its_last_closure_ends() -> None:
    breaker = trip(Refusal(reason=Reason.RATE, retry_after=20))
    breaker = trip(Refusal(reason=Reason.DAY_QUOTA), breaker=breaker)
    breaker = trip(Refusal(reason=Reason.OVERLOAD), breaker=breaker)
    assert len(breaker.closures) == 3
    answer = check_gate(breaker, {}, at(0))
    assert isinstance(answer, ClosedGate)
    assert answer.closure.reason is Reason.DAY_QUOTA
    by_hand = trip(Refusal(reason=Reason.SPENDING), breaker=breaker)
    assert wait(by_hand) is None


def test_a_late_refusal_lengthens_and_never_shortens() -> None:
    breaker = trip(Refusal(reason=Reason.RATE, retry_after=50))
    assert wait(trip(Refusal(reason=Reason.RATE, retry_after=5), breaker=breaker)) == pytest.approx(50.5)
    assert wait(trip(Refusal(reason=Reason.RATE, retry_after=55), breaker=breaker)) == pytest.approx(55.5)
    spent = trip(Refusal(reason=Reason.SPENDING))
    ending = trip(Refusal(reason=Reason.SPENDING, resets_at=START + 60), breaker=spent)
    assert wait(ending) is None


# Probe and ramp


def test_one_job_probes_and_the_others_wait_for_it() -> None:
    """I15: there is one probe, even if its call takes long; if its job is given back, the next job probes."""
    breaker = trip(Refusal(reason=Reason.DAY_QUOTA))
    after = at(closed_until(breaker) - START)
    assert check_gate(breaker, {}, after) == OpenGate(probe=True)
    tried = start_probe(breaker, "first")
    late = Instant(after.wall + 600, after.boot + 600)
    assert wait(tried, after) is None
    assert isinstance(check_gate(tried, {}, late), ClosedGate)
    assert finish_probe(tried, "first", late).closures == ()
    second = start_probe(drop_probe(tried, "first"), "second")
    assert finish_probe(second, "first", late) == second, "the first was given up and says nothing now"
    assert finish_probe(second, "second", late).closures == ()


@pytest.mark.parametrize("reason", sorted(Reason))
def test_which_reasons_are_probed(reason: Reason) -> None:
    pool = replace(GEMINI, probe_every=100.0)
    breaker = trip(Refusal(reason=reason, retry_after=1), pool)
    late = at(40 * 86_400)
    assert check_gate(breaker, {}, late) == OpenGate(probe=reason in PROBED_REASONS)


def test_an_answer_to_an_earlier_call_opens_nothing() -> None:
    breaker = trip(Refusal(reason=Reason.OVERLOAD, retry_after=30))
    assert finish_probe(breaker, "old", at(1)) == breaker
    assert wait(finish_probe(breaker, "old", at(1))) == pytest.approx(32.5)


def test_a_probe_that_was_never_sent_lets_another_job_probe() -> None:
    breaker = start_probe(trip(Refusal(reason=Reason.UNKNOWN)), "job")
    assert drop_probe(breaker, "other") == breaker
    assert check_gate(drop_probe(breaker, "job"), {}, at(62)) == OpenGate(probe=True)


def test_a_probe_that_is_refused_for_another_reason_leaves_both() -> None:
    breaker = start_probe(trip(Refusal(reason=Reason.OVERLOAD)), "job")
    both = trip(Refusal(reason=Reason.RATE, retry_after=20), breaker=breaker, now=at(12), seen=PROBE)
    assert wait(both, at(12)) == pytest.approx(20.5)
    assert check_gate(both, {}, at(40)) == OpenGate(probe=True)
    assert drop_expired_closures(both, at(40)).closures == (both.closures[0],)


def test_a_successful_probe_keeps_closures_that_still_hold() -> None:
    breaker = start_probe(trip(Refusal(reason=Reason.OVERLOAD)), "job")
    breaker = trip(Refusal(reason=Reason.RATE, retry_after=60), breaker=breaker, now=at(11))
    after = finish_probe(breaker, "job", at(12))
    assert [closure.reason for closure in after.closures] == [Reason.RATE]
    assert wait(after, at(12)) == pytest.approx(59.5)


def test_the_ramp_grows_from_a_tenth_to_the_whole_over_one_window() -> None:
    breaker = finish_probe(start_probe(trip(Refusal(reason=Reason.OVERLOAD)), "job"), "job", at(20))
    amounts = {
        seconds: [limit.amount for limit in pool_with_ramp_and_cap(GEMINI, breaker, at(20 + seconds)).limits]
        for seconds in (0, 30, 60, 600)
    }
    assert amounts[0] == [pytest.approx(1), pytest.approx(25_000), 250]
    assert amounts[30] == [pytest.approx(5.5), pytest.approx(137_500), 250]
    assert amounts[60] == amounts[600] == [10, 250_000, 250]
    assert ramp_share(GEMINI, breaker, at(20)) == pytest.approx(0.1)
    assert ramp_share(GEMINI, breaker, at(80)) is None
    assert ramp_share(GEMINI, Breaker(), at(80)) is None


def test_a_ramp_never_closes_a_small_limit() -> None:
    breaker = Breaker(ramp=1000.0)
    assert pool_with_ramp_and_cap(SITE, breaker, at(0)).limits[0].amount == 1
    assert pool_with_ramp_and_cap(VOICES, breaker, at(0)).limits[0].amount == 1
    assert pool_with_ramp_and_cap(VOICES, breaker, at(60)) == VOICES


def test_waiting_workers_do_not_call_in_the_same_second() -> None:
    """A ramp admits one call a second, of 100 a minute."""
    pool = PoolSettings(limits=(Limit.requests(100, per="minute"),))
    breaker, state, sent = Breaker(ramp=1000.0), PoolState(), []
    for tenth in range(600):
        now = at(tenth / 10)
        answer = reserve_units(
            pool_with_ramp_and_cap(pool, breaker, now), state, UnitRequest(f"{tenth}", {}, 5), now
        )
        state = answer.state
        if isinstance(answer, ReservationGrant):
            sent.append(tenth / 10)
    assert len([moment for moment in sent if moment < 1]) == 10
    assert len([moment for moment in sent if moment < 30]) <= 55
    assert 95 <= len(sent) <= 100


def test_a_request_for_a_lower_rate_causes_a_ramp_without_a_probe() -> None:
    breaker = trip(Refusal(reason=Reason.RATE, retry_after=5, slow=True))
    opened = drop_expired_closures(breaker, at(10))
    assert check_gate(opened, {}, at(10)) == OpenGate()
    assert ramp_share(GEMINI, opened, at(10)) == pytest.approx(0.1)
    assert drop_expired_closures(trip(Refusal(reason=Reason.RATE, retry_after=5)), at(10)).ramp is None
    late = trip(Refusal(reason=Reason.RATE, retry_after=5), breaker=breaker, now=at(1))
    assert drop_expired_closures(late, at(10)).ramp is not None, "the wish stands"


# Too much concurrency


def test_too_much_concurrency_lowers_the_cap_which_grows_again() -> None:
    busy = Refusal(reason=Reason.CONCURRENCY)
    breaker = trip(busy, VOICES, seen=RefusalFacts(chance=0.5, running=5))
    assert breaker.closures == (), "it waits for a call to end, not for a time"
    assert pool_with_ramp_and_cap(VOICES, breaker, at(0)).limits[0].amount == 4
    lower = trip(busy, VOICES, breaker, at(1), RefusalFacts(chance=0.5, running=4))
    assert [
        pool_with_ramp_and_cap(VOICES, lower, at(seconds)).limits[0].amount for seconds in (1, 60, 61, 121)
    ] == [
        3,
        3,
        4,
        5,
    ]


def test_a_late_refusal_does_not_raise_the_cap() -> None:
    busy = Refusal(reason=Reason.CONCURRENCY)
    low = trip(busy, VOICES, seen=RefusalFacts(chance=0.5, running=2))
    late = trip(busy, VOICES, low, at(1), RefusalFacts(chance=0.5, running=5))
    assert pool_with_ramp_and_cap(VOICES, late, at(1)).limits[0].amount == 1


def test_a_single_call_refused_for_concurrency_waits() -> None:
    busy = Refusal(reason=Reason.CONCURRENCY)
    assert wait(trip(busy, VOICES, seen=RefusalFacts(chance=1.0, running=1))) == pytest.approx(5)
    assert wait(trip(busy, SITE, seen=RefusalFacts(chance=1.0, running=9))) == pytest.approx(5)


# Stored


def test_a_breaker_is_plain_data() -> None:
    """N5: closures survive a restart of everything."""
    breaker = start_probe(trip(Refusal(reason=Reason.DAY_QUOTA, text="x" * 9000)), "job")
    stored = msgspec.json.encode(breaker)
    assert len(stored) < 1000
    assert msgspec.json.decode(stored, type=Breaker) == breaker


def test_another_boot_drops_boot_times_and_keeps_closures() -> None:
    breaker = trip(Refusal(reason=Reason.DAY_QUOTA))
    later = forget_boot_times(replace(start_probe(breaker, "job"), ramp=5.0))
    assert later == Breaker(closures=(replace(breaker.closures[0], until_boot=None),))


def stepped(breaker: Breaker, seconds: float, by: float) -> Breaker:
    """Returns the breaker that many seconds later, after the wall clock was set."""
    now = at(seconds)
    return with_current_ends(breaker, Instant(now.wall + by, now.boot))


@pytest.mark.parametrize("by", [3600.0, -86_400.0, 86_400.0])
@pytest.mark.parametrize("reason", [Reason.RATE, Reason.STATED, Reason.UNKNOWN])
def test_i26_a_wait_in_seconds_uses_the_boot_clock(reason: Reason, by: float) -> None:
    breaker = trip(Refusal(reason=reason, retry_after=1800))
    for seconds, holds in ((5, True), (1800, True), (1801, False)):
        (closure,) = stepped(breaker, seconds, by).closures
        assert closure.holds(at(seconds).wall + by) is holds


@pytest.mark.parametrize(("by", "longer"), [(3600.0, 0.0), (-600.0, 600.0), (-86_400.0, 3600.0)])
def test_i26_a_day_ends_when_both_clocks_agree_and_at_most_an_hour_later(by: float, longer: float) -> None:
    breaker = trip(Refusal(reason=Reason.DAY_QUOTA))
    ends = closed_until(breaker) - START + longer
    for seconds, holds in ((ends - 1, True), (ends + 1, False)):
        (closure,) = stepped(breaker, seconds, by).closures
        assert closure.holds(at(seconds).wall + by) is holds
    again = stepped(stepped(breaker, 5, by), ends + 1, by)
    assert not again.closures[0].holds(at(ends + 1).wall + by), "looking at it changes nothing"


@pytest.mark.parametrize("by", [0.5, -0.5, 0.01, -0.01])
def test_i26_a_small_step_of_the_wall_clock_moves_the_end(by: float) -> None:
    breaker = trip(Refusal(reason=Reason.RATE, retry_after=30))
    until = closed_until(breaker)
    assert closed_until(stepped(breaker, 10, by)) == pytest.approx(until + by, abs=0.001)


def test_i26_rounding_errors_change_nothing() -> None:
    breaker = trip(Refusal(reason=Reason.RATE, retry_after=30))
    assert stepped(breaker, 10, 0.0005).closures[0] is breaker.closures[0]


def test_i26_a_stated_time_of_day_also_holds_by_the_wall_clock() -> None:
    """A wall clock that was set back may have been wrong when the time was stated; this extends a closure
    by one hour at most."""
    breaker = trip(Refusal(reason=Reason.STATED, resets_at=START + 1800))
    for seconds, holds in ((1801, True), (1800 + 599, True), (1800 + 602, False)):
        (closure,) = stepped(breaker, seconds, -600.0).closures
        assert closure.holds(at(seconds).wall - 600) is holds


def test_i26_after_another_boot_the_wall_clock_decides() -> None:
    breaker = forget_boot_times(trip(Refusal(reason=Reason.RATE, retry_after=1800)))
    assert breaker.closures[0].holds(at(1799).wall)
    assert not stepped(breaker, 5, 3600).closures[0].holds(at(5).wall + 3600)


@given(st.lists(st.tuples(st.sampled_from(sorted(Reason)), st.booleans(), st.floats(0, 100)), max_size=12))
def test_no_order_of_refusals_opens_early_or_doubles_a_closure(
    events: list[tuple[Reason, bool, float]],
) -> None:
    breaker, now = Breaker(), 0.0
    for reason, probe, hint in events:
        before = wait(breaker, at(now))
        refusal = Refusal(reason=reason, retry_after=hint)
        breaker = trip(refusal, breaker=breaker, now=at(now), seen=RefusalFacts(chance=0.3, probe=probe))
        after = wait(breaker, at(now))
        if not probe and before != 0:
            assert after is None or (before is not None and after >= before - 1e-6)
        reasons = [closure.reason for closure in breaker.closures]
        assert len(reasons) == len(set(reasons))
        now += 10
