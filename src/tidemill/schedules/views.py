"""Schedules as the CLI, the API and the dashboard pages show them."""

from __future__ import annotations

import msgspec

from tidemill.core.documents import Document
from tidemill.core.overrides import Override
from tidemill.core.queues import Pause
from tidemill.schedules.due_ticks import drop_expired
from tidemill.schedules.schedule import (
    Schedule,
    ScheduleOrigin,
    ScheduleState,
    TickRecord,
    decode_schedule,
    rule_in_force,
    schedule_state,
    settings_in_force,
)
from tidemill.schedules.settings import ScheduleChanges, ScheduleSettings
from tidemill.schedules.ticks import next_tick


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule, for display. Times are wall times.

    - `settings`: the settings in force.
    - `declared`: the settings given by code or a call.
    - `override`: an operator's changes.
    - `arguments`: the task's arguments as JSON.
    - `next`: the coming ticks.
    - `history`: the last ticks, newest last.
    """

    name: str
    state: ScheduleState
    origin: ScheduleOrigin
    task: str
    arguments: msgspec.Raw
    settings: ScheduleSettings
    declared: ScheduleSettings
    override: Override[ScheduleChanges] | None
    pause: Pause | None
    next: tuple[float, ...]
    last_job: str | None
    history: tuple[TickRecord, ...]
    created: float


class SchedulePage(msgspec.Struct, frozen=True):
    """A page of schedules. `cursor` is the argument for the next page; None on the last page."""

    schedules: tuple[ScheduleView, ...]
    cursor: str | None


def make_schedule_view(document: Document, now: float, ticks: int) -> ScheduleView:
    stored = decode_schedule(document)
    schedule = drop_expired(stored, now)
    state = schedule_state(schedule, now)
    return ScheduleView(
        name=schedule.name,
        state=state,
        origin=schedule.origin,
        task=schedule.work.task,
        arguments=schedule.work.payload,
        settings=settings_in_force(schedule, now),
        declared=schedule.settings,
        override=schedule.override,
        pause=schedule.pause,
        next=_find_next_ticks(schedule, now, ticks)
        if state in (ScheduleState.ACTIVE, ScheduleState.PAUSED)
        else (),
        last_job=schedule.last,
        history=schedule.history,
        created=document.created,
    )


def _find_next_ticks(schedule: Schedule, now: float, count: int) -> tuple[float, ...]:
    """Returns the next `count` ticks. For a paused schedule these are the ticks after the pause; none if the
    pause has no end."""
    found: list[float] = []
    tick: float | None = schedule.handled_until
    if (pause := schedule.pause) is not None:
        if pause.until is None:
            return ()
        tick = max(schedule.handled_until, pause.until)
    rule = rule_in_force(schedule, now)
    while len(found) < count and tick is not None and (tick := next_tick(rule, tick)) is not None:
        found.append(tick)
    return tuple(found)
