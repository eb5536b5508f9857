"""The forecast as arithmetic: no store, no worker, no clock."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tidemill.core import accounts
from tidemill.core.accounts import Account, OperatorClosure, UnitGrant
from tidemill.core.calendars import Day
from tidemill.core.forecast import completion, pool_outlook
from tidemill.core.forecast.backlog import SLOTS_METER, CallGroup, LaneBacklog
from tidemill.core.forecast.completion import (
    ForecastRequest,
    WorkerCapacity,
    completion_times,
    completion_times_by_limit,
    related_backlogs,
)
from tidemill.core.forecast.meters import BucketMeter, WindowMeter
from tidemill.core.forecast.pool_outlook import PoolOutlook
from tidemill.core.forecast.simulation import ShareRequest, share_fairly
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.overrides import Override
from tidemill.core.pools import LimitChanges, PoolSettings
from tidemill.core.reservations import UnitRequest
from tidemill.core.windows import Instant

NOW = Instant(1_777_593_600.0, 5_000.0)  # noon in every calendar used here
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


def known(*limits: Limit, taken: int = 0, **account: object) -> PoolOutlook:
    """Returns a pool from which that many calls were taken just now."""
    settings = PoolSettings(limits=limits)
    state = Account(**account)  # type: ignore[arg-type]
    for number in range(taken):
        answer = accounts.request_units(settings, state, UnitRequest(f"{number}", {}, 5), NOW)
        assert isinstance(answer, UnitGrant)
        state = answer.account
    return PoolOutlook(
        name="api", key=None, declared=settings, override=None, account=state, now=NOW, settings=settings
    )


def line(calls: float, priority: int = 5, pool: str = "api", **options: float) -> LaneBacklog:
    return LaneBacklog(work=(CallGroup(calls, (Need(pool),)),), priority=priority, **options)  # type: ignore[arg-type]


def seconds(
    pool: PoolOutlook, *lines: LaneBacklog, takes: float = 2.0, worker_capacity: WorkerCapacity | None = None
) -> list[float]:
    """Returns the seconds until the last call of each backlog starts."""
    request = ForecastRequest(
        lines=lines,
        know=lambda _: pool,
        call_seconds=takes,
        worker_capacity=worker_capacity or WorkerCapacity(),
    )
    return [found[-1] for found in completion_times(request)]


def test_a_rolling_window_admits_its_amount_at_once_and_again_after_window_and_jitter() -> None:
    pool = known(Limit.requests(10, per="minute"))
    slot = 60.5 + 60.5 / 512
    assert seconds(pool, line(10)) == [0.0]
    assert seconds(pool, line(11)) == [pytest.approx(slot)]
    assert seconds(pool, line(35)) == [pytest.approx(3 * slot)]
    assert seconds(known(Limit.requests(10, per="minute"), taken=4), line(7))[0] == pytest.approx(
        60.5, abs=0.3
    )


def test_the_slowest_of_several_limits_decides() -> None:
    """100 calls at three in 1.5 s take 49.5 s, and the second hundred begins when the minute allows it."""
    pool = known(Limit.requests(3, per="second"), Limit.requests(100, per="minute"))
    [first], [second] = seconds(pool, line(100)), seconds(pool, line(200))
    assert first == pytest.approx(33 * 1.5, rel=0.02)
    assert second == pytest.approx(60.5 + 33 * 1.5, rel=0.02)


def test_only_whole_calls_start() -> None:
    """From ten units three calls of three start, not three and a third."""
    pool = known(Limit.tokens(10, per="minute"))
    three = LaneBacklog(work=(CallGroup(30.0, (Need("api", None, {"tokens": 3.0}),)),), priority=5)
    assert seconds(pool, three) == [pytest.approx(9 * 60.6, rel=0.01)]


def test_a_window_as_a_flow_counts_half_a_slot_too() -> None:
    """Over a thousand windows the half slot of each adds up to 3 s."""
    [took] = seconds(known(Limit.requests(3, per="second")), line(3000))
    assert took == pytest.approx(999 * 1.5 * (1 + 1 / 512), rel=3e-4)


def test_the_reserved_share_is_open_to_urgent_backlogs() -> None:
    """Three urgent calls of three fit into ten units, for any share that the others must not use."""
    settings = PoolSettings(limits=(Limit.tokens(10, per="minute"),), reserved_share=0.5, urgent=1)
    pool = replace(known(Limit.tokens(10, per="minute")), declared=settings, settings=settings)
    urgent, other = (
        LaneBacklog(work=(CallGroup(calls, (Need("api", None, {"tokens": 3.0}),)),), priority=priority)
        for calls, priority in ((9.0, 1), (1.0, 5))
    )
    for lines in ([urgent, other], [other, urgent]):
        took = dict(zip((one.priority for one in lines), seconds(pool, *lines), strict=True))
        assert took[1] == pytest.approx(2 * 60.6, rel=0.01)


def test_concurrency_depends_on_the_length_of_calls() -> None:
    pool = known(Limit.concurrent(4))
    assert seconds(pool, line(20), takes=5.0) == [pytest.approx(20.0)]
    assert seconds(pool, line(20), takes=0.0) == [0.0], "nobody knows: it is no bound"


def test_slots_and_queue_concurrency_are_bounds() -> None:
    pool = known(Limit.requests(1_000, per="second"))
    worker_capacity = WorkerCapacity(slots=2.0, at_once={"q": 1.0})
    assert seconds(pool, line(10), worker_capacity=worker_capacity) == [pytest.approx(8.0)]
    assert seconds(pool, line(10, queue="q"), worker_capacity=worker_capacity) == [pytest.approx(18.0)]  # type: ignore[arg-type]


def test_more_urgent_backlogs_start_first_and_equal_ones_by_weight() -> None:
    pool = known(Limit.requests(10, per="minute"))
    late, urgent = seconds(pool, line(20), line(20, priority=1))
    assert urgent == pytest.approx(60.6, rel=0.01)
    assert late == pytest.approx(3 * 60.6, rel=0.01)
    heavy, light = seconds(pool, line(30, weight=3.0), line(30))
    assert heavy < light
    assert light == pytest.approx(5 * 60.6, rel=0.01)


def test_a_closed_pool_is_never_done_and_delays_no_other() -> None:
    closed = known(Limit.requests(10, per="minute"), closed=OperatorClosure(by="ann", since=0.0))
    assert seconds(closed, line(1)) == [math.inf]
    open_ = known(Limit.requests(10, per="minute"))
    lines = [line(5), line(5, pool="other"), line(5, pool="other", opens=math.inf)]
    request = ForecastRequest(lines=lines, know=lambda place: closed if place[0] == "api" else open_)
    assert [found[-1] for found in completion_times(request)] == [math.inf, 0.0, math.inf]
    assert related_backlogs(request, [1]) == [1, 2], "the first has nothing to do with it"


def test_each_limit_alone() -> None:
    pool = known(*LIMITS[:2])
    request = ForecastRequest(lines=[line(100)], know=lambda _: pool)
    found = {which[2]: took for which, took in completion_times_by_limit(request, [0]).items()}
    assert found["requests per minute"] == pytest.approx(9 * 60.6, rel=0.01)
    assert found["requests per second"] == pytest.approx(33 * 1.5, rel=0.02)


def test_a_long_window_that_is_no_bound_does_not_change_a_short_one() -> None:
    """Of 200 an hour, 17 start at once: the bound is a window of one second, simulated in its steps."""
    second = Limit.requests(3, per="second")
    [by_itself] = seconds(known(second), line(17))
    assert seconds(known(second, Limit.requests(200, per="hour")), line(17)) == [by_itself]
    request = ForecastRequest(
        lines=[line(500)], know=lambda _: known(second, Limit.requests(10, per="minute"))
    )
    [lone] = seconds(known(second), line(500))
    assert completion_times_by_limit(request, [0])["api", None, second.name] == lone


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
def test_backlogs_that_share_a_pool_take_as_long_as_one(limits: list[Limit], calls: list[int]) -> None:
    pool = known(*limits)
    apart = seconds(pool, *(line(count) for count in calls))
    [one] = seconds(pool, line(sum(calls)))
    assert max(apart) == pytest.approx(one, rel=0.02, abs=0.5)


def test_sharing_is_fair_and_keeps_the_share_of_a_backlog_that_continues() -> None:
    which = ("api", None, "requests per minute")
    small = ShareRequest(5, 1.0, 1.0, {which: 1.0}, {which: 10.0})
    large = ShareRequest(5, 1.0, 100.0, {which: 1.0}, {which: 10.0})
    assert share_fairly([small, large]) == [1.0, 9.0]
    small.continues = True
    assert share_fairly([small, large]) == [1.0, 1.0]


def test_sharing_continues_after_an_unbounded_backlog() -> None:
    which = ("api", None, "requests per minute")
    free = ShareRequest(1, 1.0, math.inf, {}, {})
    bound = ShareRequest(5, 1.0, math.inf, {which: 1.0}, {which: 10.0})
    assert share_fairly([free, bound, free]) == [math.inf, 10.0, math.inf]
    assert share_fairly([bound, free]) == [10.0, math.inf]


def test_with_too_many_backlogs_the_short_ones_count_as_done_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the workers' slots need longer for all calls."""
    monkeypatch.setattr(completion, "MAX_INDEPENDENT_GROUPS", 1)
    pool = known(Limit.requests(10, per="minute"))
    lines = [line(20, pool="a"), line(35, pool="b"), line(30, pool="c")]
    request = ForecastRequest(lines=lines, know=lambda _: pool, call_seconds=2.0)
    assert completion_times(request) == [[0.0], [pytest.approx(3 * 60.6, rel=0.01)], [0.0]]
    monkeypatch.setattr(completion, "MAX_BACKLOGS_SHARING_SLOTS", 2)
    request = replace(request, worker_capacity=WorkerCapacity(slots=1.0))
    assert completion_times(request) == [[168.0], [pytest.approx(3 * 60.6, rel=0.01)], [168.0]]


@pytest.mark.parametrize("until", [None, NOW.wall + 3600])
def test_an_override_counts_with_and_without_an_end(until: float | None) -> None:
    limit = Limit.requests(10, per="minute")
    changes = LimitChanges(amounts={limit.name: 5})
    override = Override(changes=changes, by="ann", since=0.0, until=until)
    pool = known(limit)
    pool = replace(pool, override=override, settings=changes.over(pool.declared))
    assert seconds(pool, line(20)) == [pytest.approx(3 * 60.6, rel=0.01)]


def test_a_very_short_window_is_simulated_as_a_flow() -> None:
    """Step by step, a million calls would exceed the limit of changes."""
    second, minute = Limit.requests(3, per="second"), Limit.requests(100, per="minute")
    pool = known(second, minute)
    few, many = (
        ForecastRequest(lines=[line(calls)], know=lambda _: pool, call_seconds=2.0) for calls in (50, 20_000)
    )
    for request, kinds in ((few, {WindowMeter}), (many, {BucketMeter})):
        meters = completion._meters_of(request, request.lines, None)
        assert {type(meters["api", None, second.name])} == kinds


def test_slots_of_very_short_jobs_are_simulated_as_a_flow() -> None:
    pool = known(Limit.requests(1_000, per="second"))
    for calls, slots, kind in (
        (300, 2.0, WindowMeter),
        (1_000, 2.0, BucketMeter),
        (10_000, 1_000.0, WindowMeter),
    ):
        request = ForecastRequest(
            lines=[line(calls)],
            know=lambda _: pool,
            call_seconds=2.0,
            worker_capacity=WorkerCapacity(slots=slots),
        )
        assert type(completion._meters_of(request, request.lines, None)[SLOTS_METER]) is kind


@pytest.mark.parametrize(("units", "windows"), [(1.0, 9.0), (2.0, 19.0), (0.5, 4.0)])
def test_the_time_of_a_limit_alone_depends_on_the_units_of_a_call(units: float, windows: float) -> None:
    limit = Limit.tokens(10, per="minute")
    call = pool_outlook.CallCost(units, 0.0, 0.0, 0.0)
    assert pool_outlook.limit_seconds(limit, 0.5, 100, call) == pytest.approx(windows * 60.5)
    assert pool_outlook.limit_seconds(limit, 0.5, 5 / units, call) == 0.0
