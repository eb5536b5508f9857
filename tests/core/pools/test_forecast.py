"""The forecast as arithmetic: no store, no worker, no clock."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tidemill.core import accounts
from tidemill.core.accounts import Account, HandClosure, Taken
from tidemill.core.calendars import Day
from tidemill.core.forecast import answer, building, meeting
from tidemill.core.forecast.answer import alone, concerned, ends
from tidemill.core.forecast.filling import Wanting, fill
from tidemill.core.forecast.known import Known
from tidemill.core.forecast.lines import SLOTS, Line, Work
from tidemill.core.forecast.meeting import Asked, Crew
from tidemill.core.forecast.meters import Held, Refilled
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.pools import PoolChanges, PoolOverride, PoolSettings
from tidemill.core.reserving import Ask
from tidemill.core.windows import Instant

NOW = Instant(1_777_593_600.0, 5_000.0)  # a noon of no calendar that is used here
LIMITS = (
    Limit.requests(3, per="second"),
    Limit.requests(10, per="minute"),
    Limit.requests(30, per="minute", shape="bucket"),
    Limit.requests(20, per="minute", shape="paced"),
    Limit.requests(200, per="hour"),
    Limit.requests(90, per=Day("Asia/Shanghai")),
    Limit.concurrent(4),
)
limits = st.lists(st.sampled_from(LIMITS), min_size=1, max_size=3, unique_by=lambda limit: limit.name)


def known(*limits: Limit, taken: int = 0, **account: object) -> Known:
    """A pool of which so many calls were taken just now."""
    settings = PoolSettings(limits=limits)
    state = Account(**account)  # type: ignore[arg-type]
    for number in range(taken):
        answer = accounts.ask(settings, state, Ask(f"{number}", {}, 5), NOW)
        assert isinstance(answer, Taken)
        state = answer.account
    return Known(
        name="api", key=None, declared=settings, override=None, account=state, now=NOW, settings=settings
    )


def line(calls: float, priority: int = 5, pool: str = "api", **options: float) -> Line:
    return Line(work=(Work(calls, (Need(pool),)),), priority=priority, **options)  # type: ignore[arg-type]


def seconds(pool: Known, *lines: Line, takes: float = 2.0, crew: Crew | None = None) -> list[float]:
    """Until the last call of each line starts."""
    asked = Asked(lines=lines, know=lambda _: pool, takes=takes, crew=crew or Crew())
    return [found[-1] for found in ends(asked)]


def test_a_rolling_window_lets_its_amount_in_at_once_and_again_after_window_and_jitter() -> None:
    pool = known(Limit.requests(10, per="minute"))
    slot = 60.5 + 60.5 / 512
    assert seconds(pool, line(10)) == [0.0]
    assert seconds(pool, line(11)) == [pytest.approx(slot)]
    assert seconds(pool, line(35)) == [pytest.approx(3 * slot)]
    assert seconds(known(Limit.requests(10, per="minute"), taken=4), line(7))[0] == pytest.approx(
        60.5, abs=0.3
    )


def test_the_slowest_of_several_holds_from_each_fill_on() -> None:
    """100 at three in 1.5 s take 49.5 s, and the second hundred begins when the minute lets it."""
    pool = known(Limit.requests(3, per="second"), Limit.requests(100, per="minute"))
    [first], [second] = seconds(pool, line(100)), seconds(pool, line(200))
    assert first == pytest.approx(33 * 1.5, rel=0.02)
    assert second == pytest.approx(60.5 + 33 * 1.5, rel=0.02)


def test_a_large_call_takes_its_whole_place() -> None:
    """Of ten units three calls of three start, not three and a third."""
    pool = known(Limit.tokens(10, per="minute"))
    three = Line(work=(Work(30.0, (Need("api", None, {"tokens": 3.0}),)),), priority=5)
    assert seconds(pool, three) == [pytest.approx(9 * 60.6, rel=0.01)]


def test_a_window_that_is_taken_as_a_flow_counts_half_a_slot_too() -> None:
    """Of so many windows the half slot of each adds up: 3 s in a thousand windows."""
    [took] = seconds(known(Limit.requests(3, per="second")), line(3000))
    assert took == pytest.approx(999 * 1.5 * (1 + 1 / 512), rel=3e-4)


def test_what_is_kept_back_from_one_line_is_not_from_a_more_urgent_one() -> None:
    """Three urgent calls of three fit into ten units, whatever part of them the others must leave alone."""
    settings = PoolSettings(limits=(Limit.tokens(10, per="minute"),), held_back=0.5, urgent=1)
    pool = replace(known(Limit.tokens(10, per="minute")), declared=settings, settings=settings)
    urgent, other = (
        Line(work=(Work(calls, (Need("api", None, {"tokens": 3.0}),)),), priority=priority)
        for calls, priority in ((9.0, 1), (1.0, 5))
    )
    for lines in ([urgent, other], [other, urgent]):
        took = dict(zip((one.priority for one in lines), seconds(pool, *lines), strict=True))
        assert took[1] == pytest.approx(2 * 60.6, rel=0.01)


def test_calls_at_once_go_by_how_long_they_take() -> None:
    pool = known(Limit.concurrent(4))
    assert seconds(pool, line(20), takes=5.0) == [pytest.approx(20.0)]
    assert seconds(pool, line(20), takes=0.0) == [0.0], "nobody knows: it is no bound"


def test_slots_and_queues_are_bounds() -> None:
    pool = known(Limit.requests(1_000, per="second"))
    crew = Crew(slots=2.0, at_once={"q": 1.0})
    assert seconds(pool, line(10), crew=crew) == [pytest.approx(8.0)]
    assert seconds(pool, line(10, queue="q"), crew=crew) == [pytest.approx(18.0)]  # type: ignore[arg-type]


def test_more_urgent_lines_go_first_and_equal_ones_by_weight() -> None:
    pool = known(Limit.requests(10, per="minute"))
    late, urgent = seconds(pool, line(20), line(20, priority=1))
    assert urgent == pytest.approx(60.6, rel=0.01)
    assert late == pytest.approx(3 * 60.6, rel=0.01)
    heavy, light = seconds(pool, line(30, weight=3.0), line(30))
    assert heavy < light
    assert light == pytest.approx(5 * 60.6, rel=0.01)


def test_what_is_closed_for_ever_is_never_done_and_holds_up_nobody_else() -> None:
    closed = known(Limit.requests(10, per="minute"), closed=HandClosure(by="ann", since=0.0))
    assert seconds(closed, line(1)) == [math.inf]
    open_ = known(Limit.requests(10, per="minute"))
    lines = [line(5), line(5, pool="other"), line(5, pool="other", opens=math.inf)]
    asked = Asked(lines=lines, know=lambda place: closed if place[0] == "api" else open_)
    assert [found[-1] for found in ends(asked)] == [math.inf, 0.0, math.inf]
    assert concerned(asked, [1]) == [1, 2], "the first has nothing to do with it"


def test_each_limit_alone() -> None:
    pool = known(*LIMITS[:2])
    asked = Asked(lines=[line(100)], know=lambda _: pool)
    found = {which[2]: took for which, took in alone(asked, [0]).items()}
    assert found["requests per minute"] == pytest.approx(9 * 60.6, rel=0.01)
    assert found["requests per second"] == pytest.approx(33 * 1.5, rel=0.02)


def test_a_long_window_that_is_no_bound_does_not_blur_a_short_one() -> None:
    """Of 200 an hour 17 start at once: what holds them up is a window of a second, told in its steps."""
    second = Limit.requests(3, per="second")
    [by_itself] = seconds(known(second), line(17))
    assert seconds(known(second, Limit.requests(200, per="hour")), line(17)) == [by_itself]
    asked = Asked(lines=[line(500)], know=lambda _: known(second, Limit.requests(10, per="minute")))
    [lone] = seconds(known(second), line(500))
    assert alone(asked, [0])["api", None, second.name] == lone


@settings(deadline=None, max_examples=40)
@given(limits=limits, calls=st.integers(1, 2_000), more=st.integers(1, 500))
def test_more_calls_are_never_done_earlier(limits: list[Limit], calls: int, more: int) -> None:
    pool = known(*limits)
    [few], [many] = seconds(pool, line(calls)), seconds(pool, line(calls + more))
    assert many >= few * 0.98 - 1e-6, "a window so short that it is taken as a flow may be half a window off"


@settings(deadline=None, max_examples=40)
@given(limits=limits, calls=st.integers(1, 2_000))
@example(limits=[LIMITS[4], LIMITS[0]], calls=17)
def test_one_limit_alone_is_never_slower_than_all(limits: list[Limit], calls: int) -> None:
    pool = known(*limits)
    [together] = seconds(pool, line(calls))
    for limit in limits:
        [by_itself] = seconds(known(limit), line(calls))
        assert by_itself <= together * 1.02 + 1e-6


@settings(deadline=None, max_examples=40)
@given(limits=limits, calls=st.lists(st.integers(1, 300), min_size=2, max_size=4))
def test_lines_that_share_a_pool_take_as_long_as_one(limits: list[Limit], calls: list[int]) -> None:
    pool = known(*limits)
    apart = seconds(pool, *(line(count) for count in calls))
    [one] = seconds(pool, line(sum(calls)))
    assert max(apart) == pytest.approx(one, rel=0.02, abs=0.5)


def test_filling_is_fair_and_lets_nobody_take_what_another_goes_on_for() -> None:
    which = ("api", None, "requests per minute")
    small = Wanting(5, 1.0, 1.0, {which: 1.0}, {which: 10.0})
    large = Wanting(5, 1.0, 100.0, {which: 1.0}, {which: 10.0})
    assert fill([small, large]) == [1.0, 9.0]
    small.goes_on = True
    assert fill([small, large]) == [1.0, 1.0]


def test_filling_goes_on_behind_a_line_that_nothing_bounds() -> None:
    which = ("api", None, "requests per minute")
    free = Wanting(1, 1.0, math.inf, {}, {})
    bound = Wanting(5, 1.0, math.inf, {which: 1.0}, {which: 10.0})
    assert fill([free, bound, free]) == [math.inf, 10.0, math.inf]
    assert fill([bound, free]) == [10.0, math.inf]


def test_of_too_many_lines_the_short_ones_count_as_done_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the slots of all workers take longer for all of it."""
    monkeypatch.setattr(answer, "MOST_APART", 1)
    pool = known(Limit.requests(10, per="minute"))
    lines = [line(20, pool="a"), line(35, pool="b"), line(30, pool="c")]
    asked = Asked(lines=lines, know=lambda _: pool, takes=2.0)
    assert ends(asked) == [[0.0], [pytest.approx(3 * 60.6, rel=0.01)], [0.0]]
    monkeypatch.setattr(meeting, "TIED", 2)
    asked = replace(asked, crew=Crew(slots=1.0))
    assert ends(asked) == [[168.0], [pytest.approx(3 * 60.6, rel=0.01)], [168.0]]


@pytest.mark.parametrize("until", [None, NOW.wall + 3600])
def test_an_override_counts_with_and_without_an_end(until: float | None) -> None:
    limit = Limit.requests(10, per="minute")
    changes = PoolChanges(amounts={limit.name: 5})
    override = PoolOverride(changes=changes, by="ann", since=0.0, until=until)
    pool = known(limit)
    pool = replace(pool, override=override, settings=changes.over(pool.declared))
    assert seconds(pool, line(20)) == [pytest.approx(3 * 60.6, rel=0.01)]


def test_a_window_that_passes_very_often_is_taken_as_a_flow() -> None:
    """Step by step a million calls would not be walked to their end."""
    second, minute = Limit.requests(3, per="second"), Limit.requests(100, per="minute")
    pool = known(second, minute)
    few, many = (Asked(lines=[line(calls)], know=lambda _: pool, takes=2.0) for calls in (50, 20_000))
    for asked, kinds in ((few, {Held}), (many, {Refilled})):
        meters = answer._meters(asked, asked.lines, None)
        assert {type(meters["api", None, second.name])} == kinds


def test_slots_that_turn_over_very_often_are_taken_as_a_flow() -> None:
    pool = known(Limit.requests(1_000, per="second"))
    for calls, slots, kind in ((300, 2.0, Held), (1_000, 2.0, Refilled), (10_000, 1_000.0, Held)):
        asked = Asked(lines=[line(calls)], know=lambda _: pool, takes=2.0, crew=Crew(slots=slots))
        assert type(answer._meters(asked, asked.lines, None)[SLOTS]) is kind


@pytest.mark.parametrize(("units", "windows"), [(1.0, 9.0), (2.0, 19.0), (0.5, 4.0)])
def test_how_long_a_limit_alone_takes_goes_by_the_units_of_a_call(units: float, windows: float) -> None:
    limit = Limit.tokens(10, per="minute")
    call = building.Call(units, 0.0, 0.0, 0.0)
    assert building.lasts(limit, 0.5, 100, call) == pytest.approx(windows * 60.5)
    assert building.lasts(limit, 0.5, 5 / units, call) == 0.0
