"""What each reason closes, until when, and how a pool opens again (N4, N5, N6, I15, I16)."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tidemill.core.breaker import (
    BUDGET,
    Breaker,
    Open,
    Shut,
    answered,
    as_of,
    gate,
    probing,
    ramp_share,
    rebooted,
    refused,
    reopened,
    restrained,
    spends_attempt,
    tidied,
    unprobed,
)
from tidemill.core.calendars import Calendar, Day, Month, Week, period_at
from tidemill.core.closing import Seen, day_used
from tidemill.core.daytime import TimeOfDay
from tidemill.core.limits import Limit
from tidemill.core.pools import PoolSettings, PoolState
from tidemill.core.refusals import BY_HAND, PROBED, UNCHARGED, Reason, Refusal
from tidemill.core.reserving import Ask, Granted, reserve
from tidemill.core.windows import Instant
from tidemill.core.windows.calendar import CalendarCount

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
SEEN = Seen(chance=0.5)
PROBE = Seen(chance=0.5, probe=True)


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
    seen: Seen = SEEN,
) -> Breaker:
    return refused(pool, breaker or Breaker(), refusal, now or at(0), seen)


def wait(breaker: Breaker, now: Instant | None = None, **units: float) -> float | None:
    """Seconds until the gate opens; None: by hand."""
    answer = gate(breaker, units, now or at(0))
    if isinstance(answer, Open):
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
def test_how_long_each_reason_closes(refusal: Refusal, pool: PoolSettings, seconds: float | None) -> None:
    assert wait(trip(refusal, pool)) == (seconds if seconds is None else pytest.approx(seconds))


@given(
    reason=st.sampled_from(sorted(set(Reason) - BY_HAND - {Reason.TOO_LARGE})),
    hint=st.floats(0, 5000),
    chance=st.floats(0, 1),
    times=st.integers(1, 6),
)
def test_a_hint_is_a_floor_whatever_the_reason(
    reason: Reason, hint: float, chance: float, times: int
) -> None:
    """I16: the next try is never before Retry-After."""
    breaker, now = Breaker(), at(0)
    for _ in range(times):
        refusal = Refusal(reason=reason, retry_after=hint)
        breaker = refused(GEMINI, breaker, refusal, now, Seen(chance=chance, probe=True))
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
        assert spent <= (reason not in UNCHARGED)


def test_overload_spends_attempts_once_the_budget_is_gone_and_it_comes_back() -> None:
    storm, breaker = Refusal(reason=Reason.OVERLOAD), Breaker()
    for second in range(int(BUDGET)):
        assert not spends_attempt(breaker, storm, at(second), PROBE)
        breaker = trip(storm, breaker=breaker, now=at(second), seen=PROBE)
    assert spends_attempt(breaker, storm, at(30), PROBE)
    assert not spends_attempt(breaker, storm, at(70), PROBE)


def test_calls_claimed_before_an_overload_closed_the_pool_belong_to_its_incident() -> None:
    """Forty calls under way meet one overload: the pool pays once, and no job does."""
    storm, breaker = Refusal(reason=Reason.OVERLOAD), Breaker()
    for call in range(40):
        early = Seen(chance=0.5, claimed=at(-call / 100).boot)
        assert not spends_attempt(breaker, storm, at(1 + call / 100), early)
        breaker = trip(storm, breaker=breaker, now=at(1 + call / 100), seen=early)
    assert breaker.budget.left == BUDGET - 1
    opened = answered(probing(breaker, "job"), "job", at(20))
    straggler = Seen(chance=0.5, claimed=at(0).boot)
    assert trip(storm, breaker=opened, now=at(21), seen=straggler).budget == opened.budget
    later = Seen(chance=0.5, claimed=at(20.5).boot)
    assert trip(storm, breaker=opened, now=at(21), seen=later).budget.left == pytest.approx(
        BUDGET - 2 + 1 / 3
    )


def test_an_overload_without_a_claim_belongs_to_the_closure_that_stands() -> None:
    storm = Refusal(reason=Reason.OVERLOAD)
    breaker = trip(storm)
    assert breaker.budget.left == BUDGET - 1
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
def test_a_days_quota_is_back_after_midnight_in_the_providers_zone(met: str, resumes: str) -> None:
    """N4: also where the day has 23 or 25 hours."""
    breaker = trip(Refusal(reason=Reason.DAY_QUOTA), now=at(0, local(met)))
    assert closed_until(breaker) == local(resumes)


@given(
    tokens=st.sampled_from([Day("UTC"), Week("Asia/Shanghai"), Month("UTC")]),
    requests=st.sampled_from([Day(ANGELES), Week("UTC"), Month("Asia/Shanghai")]),
    start=st.integers(1_767_000_000, 1_799_000_000),
)
def test_a_refusal_that_names_its_unit_waits_for_that_units_calendar(
    tokens: Calendar, requests: Calendar, start: int
) -> None:
    """A month of tokens that is used up does not open at midnight because requests are counted by the day."""
    pool = PoolSettings(limits=(Limit.tokens(1e6, per=tokens), Limit.requests(250, per=requests)))
    for unit, calendar in (("tokens", tokens), ("requests", requests)):
        breaker = trip(Refusal(reason=Reason.DAY_QUOTA, unit=unit), pool, now=at(0, start))
        assert closed_until(breaker) == period_at(calendar, start).end + 300


def test_a_refusal_that_names_no_unit_waits_for_the_next_day() -> None:
    pool = PoolSettings(limits=(Limit.tokens(1e6, per=Month(ANGELES)), Limit.requests(250, per=Day(ANGELES))))
    for unit in (None, "characters"):
        breaker = trip(Refusal(reason=Reason.DAY_QUOTA, unit=unit), pool)
        assert closed_until(breaker) == local("2026-11-17T00:05")


def test_a_day_of_25_hours_is_waited_out() -> None:
    met = local("2026-11-01T00:30")
    assert closed_until(trip(Refusal(reason=Reason.DAY_QUOTA), now=at(0, met))) - met == 24.5 * 3600 + 300


def test_a_pool_that_counts_no_days_waits_for_midnight_in_los_angeles() -> None:
    assert closed_until(trip(Refusal(reason=Reason.DAY_QUOTA), SITE)) == local("2026-11-17T00:05")


def test_a_fixed_time_of_day_can_be_set() -> None:
    """N4: the old 16:30 UTC+8, whatever the zone of the machine."""
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
def test_bad_settings_are_named(changes: dict[str, object], problem: str) -> None:
    assert str(replace(GEMINI, **changes).problem()).startswith(problem)


def test_a_short_hint_on_a_days_quota_is_probed_once_and_then_believed() -> None:
    """Our ledger shows little of the day used: one probe after the hint, a second refusal confirms."""
    short = Refusal(reason=Reason.DAY_QUOTA, retry_after=20)
    first = trip(short)
    assert wait(first) == pytest.approx(20.5)
    late = trip(short, breaker=first, now=at(5))
    assert wait(late, at(5)) == pytest.approx(20.5), "a call sent before confirms nothing"
    again = trip(short, breaker=late, now=at(30), seen=PROBE)
    assert closed_until(again) == local("2026-11-17T00:05")


def test_a_short_hint_is_not_believed_when_our_ledger_says_that_the_day_is_gone() -> None:
    period = local("2026-11-16T00:00")
    state = PoolState(windows={"requests per day": CalendarCount(period, 226)})
    used = day_used(GEMINI, state, None, at(0))
    assert used == pytest.approx(0.904)
    breaker = trip(Refusal(reason=Reason.DAY_QUOTA, retry_after=20), seen=Seen(chance=0.5, day_used=used))
    assert closed_until(breaker) == local("2026-11-17T00:05")


def test_yesterdays_use_and_another_unit_are_no_use_of_today() -> None:
    state = PoolState(windows={"requests per day": CalendarCount(local("2026-11-15T00:00"), 250)})
    assert day_used(GEMINI, state, None, at(0)) == 0
    today = PoolState(windows={"requests per day": CalendarCount(local("2026-11-16T00:00"), 250)})
    assert day_used(GEMINI, today, "tokens", at(0)) == 0
    assert day_used(GEMINI, today, "requests", at(0)) == 1


# Unknown refusals


def test_a_quota_phrase_is_a_minute_first_and_a_day_when_it_comes_again() -> None:
    """N4's text rule."""
    said = Refusal(reason=Reason.UNKNOWN, then=Reason.DAY_QUOTA)
    first = trip(said, SITE)
    assert wait(first) == pytest.approx(1.5)
    assert closed_until(trip(said, SITE, first, at(2), PROBE)) == local("2026-11-17T00:05")


def waits_after_bare_refusals(pool: PoolSettings, times: int, seen: Seen) -> list[float]:
    breaker, waits, now = Breaker(), [], at(0)
    for _ in range(times):
        breaker = trip(Refusal(reason=Reason.UNKNOWN), pool, breaker, now, seen)
        waits.append(closed_until(breaker) - now.wall)
        now = at(closed_until(breaker) - START)
    return waits


def test_a_refusal_that_says_nothing_is_the_day_when_our_ledger_says_so() -> None:
    waits = waits_after_bare_refusals(GEMINI, 3, replace(PROBE, day_used=0.95))
    assert waits[:2] == [pytest.approx(60.5), pytest.approx(121)]
    assert waits[2] == pytest.approx(local("2026-11-17T00:05") - START - 181.5)


def test_refusals_that_say_nothing_never_close_a_day_that_is_hardly_used() -> None:
    waits = waits_after_bare_refusals(GEMINI, 10, replace(PROBE, day_used=0.5))
    assert waits[:3] == [pytest.approx(60.5), pytest.approx(121), pytest.approx(242)]
    assert max(waits) == waits[-1] == pytest.approx(3600)


def test_a_site_without_days_is_tried_ever_more_seldom_and_at_least_hourly() -> None:
    waits = waits_after_bare_refusals(SITE, 16, PROBE)
    assert waits[:3] == [pytest.approx(1.5), pytest.approx(3), pytest.approx(6)]
    assert waits[-1] == pytest.approx(3600)


# By hand


def test_only_a_person_reopens_what_needs_one() -> None:
    breaker = trip(Refusal(reason=Reason.SPENDING, text="no credit"))
    assert wait(breaker, at(400 * 86_400)) is None
    assert wait(reopened()) == 0
    assert reopened() == Breaker()


def test_a_slow_probe_of_such_a_pool_is_opt_in() -> None:
    pool = replace(GEMINI, probe_every=3600.0)
    breaker = trip(Refusal(reason=Reason.FORBIDDEN), pool)
    assert wait(breaker) == 3600
    assert gate(breaker, {}, at(3601)) == Open(probe=True)
    again = trip(Refusal(reason=Reason.FORBIDDEN), pool, breaker, at(3602), PROBE)
    assert wait(again, at(3602)) == 3600


def test_a_spending_cap_with_an_end_ends_then() -> None:
    december = local("2026-12-01T00:00", "UTC")
    breaker = trip(Refusal(reason=Reason.SPENDING, resets_at=december))
    assert closed_until(breaker) == december + 300
    monthly = PoolSettings(limits=(Limit.usd(100, per=Month("UTC")),))
    assert closed_until(trip(Refusal(reason=Reason.DAY_QUOTA), monthly)) == december + 300


# Several closures


def test_a_pool_is_closed_until_the_last_of_its_closures() -> None:
    breaker = trip(Refusal(reason=Reason.RATE, retry_after=20))
    breaker = trip(Refusal(reason=Reason.DAY_QUOTA), breaker=breaker)
    breaker = trip(Refusal(reason=Reason.OVERLOAD), breaker=breaker)
    assert len(breaker.closures) == 3
    answer = gate(breaker, {}, at(0))
    assert isinstance(answer, Shut)
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
    """I15: one probe, however long its call takes; whoever gives it up leaves it to the next."""
    breaker = trip(Refusal(reason=Reason.DAY_QUOTA))
    after = at(closed_until(breaker) - START)
    assert gate(breaker, {}, after) == Open(probe=True)
    tried = probing(breaker, "first")
    late = Instant(after.wall + 600, after.boot + 600)
    assert wait(tried, after) is None
    assert isinstance(gate(tried, {}, late), Shut)
    assert answered(tried, "first", late).closures == ()
    second = probing(unprobed(tried, "first"), "second")
    assert answered(second, "first", late) == second, "the first was given up and says nothing now"
    assert answered(second, "second", late).closures == ()


@pytest.mark.parametrize("reason", sorted(Reason))
def test_which_reasons_are_probed(reason: Reason) -> None:
    pool = replace(GEMINI, probe_every=100.0)
    breaker = trip(Refusal(reason=reason, retry_after=1), pool)
    late = at(40 * 86_400)
    assert gate(breaker, {}, late) == Open(probe=reason in PROBED)


def test_an_answer_to_a_call_sent_before_opens_nothing() -> None:
    breaker = trip(Refusal(reason=Reason.OVERLOAD, retry_after=30))
    assert answered(breaker, "old", at(1)) == breaker
    assert wait(answered(breaker, "old", at(1))) == pytest.approx(32.5)


def test_a_probe_that_was_never_sent_frees_its_place() -> None:
    breaker = probing(trip(Refusal(reason=Reason.UNKNOWN)), "job")
    assert unprobed(breaker, "other") == breaker
    assert gate(unprobed(breaker, "job"), {}, at(62)) == Open(probe=True)


def test_a_probe_that_is_refused_for_another_reason_leaves_both() -> None:
    breaker = probing(trip(Refusal(reason=Reason.OVERLOAD)), "job")
    both = trip(Refusal(reason=Reason.RATE, retry_after=20), breaker=breaker, now=at(12), seen=PROBE)
    assert wait(both, at(12)) == pytest.approx(20.5)
    assert gate(both, {}, at(40)) == Open(probe=True)
    assert tidied(both, at(40)).closures == (both.closures[0],)


def test_a_good_probe_leaves_what_still_holds() -> None:
    breaker = probing(trip(Refusal(reason=Reason.OVERLOAD)), "job")
    breaker = trip(Refusal(reason=Reason.RATE, retry_after=60), breaker=breaker, now=at(11))
    after = answered(breaker, "job", at(12))
    assert [closure.reason for closure in after.closures] == [Reason.RATE]
    assert wait(after, at(12)) == pytest.approx(59.5)


def test_the_ramp_grows_from_a_tenth_to_the_whole_over_one_window() -> None:
    breaker = answered(probing(trip(Refusal(reason=Reason.OVERLOAD)), "job"), "job", at(20))
    amounts = {
        seconds: [limit.amount for limit in restrained(GEMINI, breaker, at(20 + seconds)).limits]
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
    assert restrained(SITE, breaker, at(0)).limits[0].amount == 1
    assert restrained(VOICES, breaker, at(0)).limits[0].amount == 1
    assert restrained(VOICES, breaker, at(60)) == VOICES


def test_a_fleet_that_waited_does_not_arrive_in_one_second() -> None:
    """The limits of a ramp, asked as a claim asks them: a call a second, of 100 a minute."""
    pool = PoolSettings(limits=(Limit.requests(100, per="minute"),))
    breaker, state, sent = Breaker(ramp=1000.0), PoolState(), []
    for tenth in range(600):
        now = at(tenth / 10)
        answer = reserve(restrained(pool, breaker, now), state, Ask(f"{tenth}", {}, 5), now)
        state = answer.state
        if isinstance(answer, Granted):
            sent.append(tenth / 10)
    assert len([moment for moment in sent if moment < 1]) == 10
    assert len([moment for moment in sent if moment < 30]) <= 55
    assert 95 <= len(sent) <= 100


def test_a_provider_that_asks_for_less_speed_gets_a_ramp_without_a_probe() -> None:
    breaker = trip(Refusal(reason=Reason.RATE, retry_after=5, slow=True))
    opened = tidied(breaker, at(10))
    assert gate(opened, {}, at(10)) == Open()
    assert ramp_share(GEMINI, opened, at(10)) == pytest.approx(0.1)
    assert tidied(trip(Refusal(reason=Reason.RATE, retry_after=5)), at(10)).ramp is None
    late = trip(Refusal(reason=Reason.RATE, retry_after=5), breaker=breaker, now=at(1))
    assert tidied(late, at(10)).ramp is not None, "the wish stands"


# Too many at once


def test_too_many_at_once_lowers_the_cap_which_grows_again() -> None:
    busy = Refusal(reason=Reason.CONCURRENCY)
    breaker = trip(busy, VOICES, seen=Seen(chance=0.5, running=5))
    assert breaker.closures == (), "it waits for a call to end, not for a time"
    assert restrained(VOICES, breaker, at(0)).limits[0].amount == 4
    lower = trip(busy, VOICES, breaker, at(1), Seen(chance=0.5, running=4))
    assert [restrained(VOICES, lower, at(seconds)).limits[0].amount for seconds in (1, 60, 61, 121)] == [
        3,
        3,
        4,
        5,
    ]


def test_a_late_refusal_does_not_raise_the_cap() -> None:
    busy = Refusal(reason=Reason.CONCURRENCY)
    low = trip(busy, VOICES, seen=Seen(chance=0.5, running=2))
    late = trip(busy, VOICES, low, at(1), Seen(chance=0.5, running=5))
    assert restrained(VOICES, late, at(1)).limits[0].amount == 1


def test_a_lone_call_that_was_one_too_many_waits() -> None:
    busy = Refusal(reason=Reason.CONCURRENCY)
    assert wait(trip(busy, VOICES, seen=Seen(chance=1.0, running=1))) == pytest.approx(5)
    assert wait(trip(busy, SITE, seen=Seen(chance=1.0, running=9))) == pytest.approx(5)


# Stored


def test_a_breaker_is_plain_data() -> None:
    """N5: what is closed survives a restart of everything."""
    breaker = probing(trip(Refusal(reason=Reason.DAY_QUOTA, text="x" * 9000)), "job")
    stored = msgspec.json.encode(breaker)
    assert len(stored) < 1000
    assert msgspec.json.decode(stored, type=Breaker) == breaker


def test_another_boot_forgets_its_times_and_keeps_what_is_closed() -> None:
    breaker = trip(Refusal(reason=Reason.DAY_QUOTA))
    later = rebooted(replace(probing(breaker, "job"), ramp=5.0))
    assert later == Breaker(closures=(replace(breaker.closures[0], ends=None),))


def stepped(breaker: Breaker, seconds: float, by: float) -> Breaker:
    """As of so many seconds later, when somebody has set the wall."""
    now = at(seconds)
    return as_of(breaker, Instant(now.wall + by, now.boot))


@pytest.mark.parametrize("by", [3600.0, -86_400.0, 86_400.0])
@pytest.mark.parametrize("reason", [Reason.RATE, Reason.STATED, Reason.UNKNOWN])
def test_i26_a_wait_in_seconds_goes_by_the_boot_clock(reason: Reason, by: float) -> None:
    breaker = trip(Refusal(reason=reason, retry_after=1800))
    for seconds, holds in ((5, True), (1800, True), (1801, False)):
        (closure,) = stepped(breaker, seconds, by).closures
        assert closure.holds(at(seconds).wall + by) is holds


@pytest.mark.parametrize(("by", "longer"), [(3600.0, 0.0), (-600.0, 600.0), (-86_400.0, 3600.0)])
def test_i26_a_day_ends_when_both_clocks_say_so_and_no_hour_later(by: float, longer: float) -> None:
    breaker = trip(Refusal(reason=Reason.DAY_QUOTA))
    ends = closed_until(breaker) - START + longer
    for seconds, holds in ((ends - 1, True), (ends + 1, False)):
        (closure,) = stepped(breaker, seconds, by).closures
        assert closure.holds(at(seconds).wall + by) is holds
    again = stepped(stepped(breaker, 5, by), ends + 1, by)
    assert not again.closures[0].holds(at(ends + 1).wall + by), "looking at it changes nothing"


@pytest.mark.parametrize("by", [0.5, -0.5, 0.01, -0.01])
def test_i26_a_wall_that_is_set_by_little_moves_the_end_with_it(by: float) -> None:
    breaker = trip(Refusal(reason=Reason.RATE, retry_after=30))
    until = closed_until(breaker)
    assert closed_until(stepped(breaker, 10, by)) == pytest.approx(until + by, abs=0.001)


def test_i26_sums_of_times_that_do_not_come_out_even_change_nothing() -> None:
    breaker = trip(Refusal(reason=Reason.RATE, retry_after=30))
    assert stepped(breaker, 10, 0.0005).closures[0] is breaker.closures[0]


def test_i26_a_stated_time_of_day_holds_by_the_wall_too() -> None:
    """A wall that was set back may have been wrong when the time was stated; for an hour at most."""
    breaker = trip(Refusal(reason=Reason.STATED, resets_at=START + 1800))
    for seconds, holds in ((1801, True), (1800 + 599, True), (1800 + 602, False)):
        (closure,) = stepped(breaker, seconds, -600.0).closures
        assert closure.holds(at(seconds).wall - 600) is holds


def test_i26_after_another_boot_the_wall_decides() -> None:
    breaker = rebooted(trip(Refusal(reason=Reason.RATE, retry_after=1800)))
    assert breaker.closures[0].holds(at(1799).wall)
    assert not stepped(breaker, 5, 3600).closures[0].holds(at(5).wall + 3600)


@given(st.lists(st.tuples(st.sampled_from(sorted(Reason)), st.booleans(), st.floats(0, 100)), max_size=12))
def test_no_order_of_refusals_opens_early_or_keeps_two_closures_of_a_reason(
    events: list[tuple[Reason, bool, float]],
) -> None:
    breaker, now = Breaker(), 0.0
    for reason, probe, hint in events:
        before = wait(breaker, at(now))
        refusal = Refusal(reason=reason, retry_after=hint)
        breaker = trip(refusal, breaker=breaker, now=at(now), seen=Seen(chance=0.3, probe=probe))
        after = wait(breaker, at(now))
        if not probe and before != 0:
            assert after is None or (before is not None and after >= before - 1e-6)
        reasons = [closure.reason for closure in breaker.closures]
        assert len(reasons) == len(set(reasons))
        now += 10
