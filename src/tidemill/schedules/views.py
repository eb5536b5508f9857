"""Schedules as people look at them."""

from __future__ import annotations

import msgspec

from tidemill.core.courses import Course
from tidemill.core.queues import Pause
from tidemill.schedules.deciding import lapsed
from tidemill.schedules.schedule import (
    Origin,
    Past,
    Schedule,
    ScheduleState,
    in_force,
    rule_of,
    schedule_of,
    state_of,
)
from tidemill.schedules.settings import ScheduleOverride, Settings
from tidemill.schedules.ticks import next_tick


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """`settings` hold, `declared` are what code or a call said; `override` is what a person put over them.
    `arguments` are the task's, as JSON. `next` are the coming ticks, `history` the last ones, newest last.
    Times are wall times."""

    name: str
    state: ScheduleState
    origin: Origin
    task: str
    arguments: msgspec.Raw
    settings: Settings
    declared: Settings
    override: ScheduleOverride | None
    pause: Pause | None
    next: tuple[float, ...]
    last_job: str | None
    history: tuple[Past, ...]
    created: float


class SchedulePage(msgspec.Struct, frozen=True):
    """`cursor` continues where this page ends; None when it is the last."""

    schedules: tuple[ScheduleView, ...]
    cursor: str | None


def view(course: Course, now: float, ticks: int) -> ScheduleView:
    kept = schedule_of(course)
    schedule = lapsed(kept, now)
    state = state_of(schedule, now)
    return ScheduleView(
        name=schedule.name,
        state=state,
        origin=schedule.origin,
        task=schedule.work.task,
        arguments=schedule.work.payload,
        settings=in_force(schedule, now),
        declared=schedule.settings,
        override=schedule.override,
        pause=schedule.pause,
        next=_coming(schedule, now, ticks) if state in (ScheduleState.ACTIVE, ScheduleState.PAUSED) else (),
        last_job=schedule.last,
        history=schedule.history,
        created=course.created,
    )


def _coming(schedule: Schedule, now: float, count: int) -> tuple[float, ...]:
    """Of a paused one, those after its pause."""
    found: list[float] = []
    tick: float | None = schedule.passed
    if (pause := schedule.pause) is not None:
        if pause.until is None:
            return ()
        tick = max(schedule.passed, pause.until)
    rule = rule_of(in_force(schedule, now), schedule.anchor)
    while len(found) < count and tick is not None and (tick := next_tick(rule, tick)) is not None:
        found.append(tick)
    return tuple(found)
