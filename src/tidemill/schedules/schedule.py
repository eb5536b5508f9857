"""A schedule: what a course's record holds, and when it wants to be looked at."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from tidemill.core.courses import Course, Next
from tidemill.core.names import MAX_NAME, problem_with_name
from tidemill.core.needs import Need
from tidemill.core.queues import DAY, HOUR, Pause
from tidemill.core.uniqueness import Unique
from tidemill.schedules.settings import ScheduleOverride, Settings
from tidemill.schedules.ticks import Rule, next_tick

HISTORY_KEPT = 20
LONGEST_NAME = MAX_NAME - 50
"""The ids of its jobs are made of it."""

ENDED_KEPT = 7 * DAY
REMOVED_KEPT = HOUR
"""A name that is taken again goes on with its revisions: whoever has not heard of the end changes nothing."""


class Origin(StrEnum):
    """Who made it: the application's code, or a call. What a store lists schedules by."""

    DECLARED = "declared"
    DYNAMIC = "dynamic"


class ScheduleState(StrEnum):
    """`disabled`: code declared it and does no longer. `ended`: no tick is left."""

    ACTIVE = "active"
    PAUSED = "paused"
    DISABLED = "disabled"
    ENDED = "ended"
    REMOVED = "removed"


PRESENT = tuple(state for state in ScheduleState if state is not ScheduleState.REMOVED)


class Outcome(StrEnum):
    """What became of a tick. `failed`: its job could not be made and is kept as a failed one."""

    FIRED = "fired"
    RUN = "run by hand"
    OVERLAP = "overlap"
    MISSED = "missed"
    FAILED = "failed"


class Past(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tick that is over, and when it was seen to. `job` is the one it made, or that was in its way.
    `count` ticks were missed, this one the last of them."""

    tick: float
    at: float
    outcome: Outcome
    job: str | None = None
    count: int = 1


class Work(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a tick sends: a task, its arguments, and where the job differs from what the task itself says."""

    task: str
    payload: msgspec.Raw
    queue: str | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    key: str | UnsetType | None = UNSET
    expires: float | UnsetType | None = UNSET
    timeout: float | UnsetType | None = UNSET
    unique: Unique | UnsetType | None = UNSET
    trace: str | UnsetType | None = UNSET
    tags: tuple[str, ...] | UnsetType = UNSET
    needs: tuple[Need, ...] | UnsetType = UNSET


class Wanted(NamedTuple):
    """What code or a call says of a schedule."""

    work: Work
    settings: Settings


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`anchor` is when it was made, `passed` up to when its ticks are seen to, `last` the job it made last.
    Times are wall times."""

    name: str
    work: Work
    settings: Settings
    origin: Origin
    anchor: float
    passed: float
    pause: Pause | None = None
    override: ScheduleOverride | None = None
    disabled: bool = False
    removed: bool = False
    last: str | None = None
    history: tuple[Past, ...] = ()


_DECODER = msgspec.json.Decoder(Schedule)
_ENCODER = msgspec.json.Encoder()


def schedule_of(course: Course) -> Schedule:
    return _DECODER.decode(course.record)


def readable(course: Course) -> Schedule | None:
    """None when it is of a newer version, or damaged: whoever makes it anew may."""
    try:
        return schedule_of(course)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


def same(one: Work, other: Work) -> bool:
    return _ENCODER.encode(one) == _ENCODER.encode(other)


def in_force(schedule: Schedule, now: float) -> Settings:
    override = schedule.override
    if override is None or not override.holds(now):
        return schedule.settings
    return override.changes.over(schedule.settings)


def rule_of(settings: Settings, anchor: float) -> Rule:
    return Rule(
        cron=settings.cron,
        tz=settings.tz,
        every=settings.every,
        anchor=anchor,
        start=settings.start,
        end=settings.end,
    )


def upcoming(schedule: Schedule, now: float) -> float | None:
    """The next tick that is not seen to."""
    return next_tick(rule_of(in_force(schedule, now), schedule.anchor), schedule.passed)


def stopped(schedule: Schedule, now: float) -> ScheduleState | None:
    """The state in which it has no ticks, whatever its rule says."""
    if schedule.removed:
        return ScheduleState.REMOVED
    if schedule.disabled:
        return ScheduleState.DISABLED
    return ScheduleState.PAUSED if schedule.pause is not None and schedule.pause.closed(now) else None


def state_of(schedule: Schedule, now: float) -> ScheduleState:
    return stopped(schedule, now) or _going(upcoming(schedule, now))


def _going(tick: float | None) -> ScheduleState:
    return ScheduleState.ENDED if tick is None else ScheduleState.ACTIVE


def as_next(schedule: Schedule, now: float) -> Next:
    """It wants to be looked at when a tick is due, and when a pause or an override ends."""
    wakes: list[float | None] = []
    if (state := stopped(schedule, now)) is None:
        tick = upcoming(schedule, now)
        state = _going(tick)
        wakes = [tick, None if schedule.override is None else schedule.override.until]
    elif state is ScheduleState.PAUSED and schedule.pause is not None:
        wakes = [schedule.pause.until]
    due = min((wake for wake in wakes if wake is not None), default=None)
    keep = {ScheduleState.REMOVED: REMOVED_KEPT, ScheduleState.ENDED: ENDED_KEPT if due is None else None}
    return Next(
        name=schedule.origin, state=state, record=_ENCODER.encode(schedule), due=due, keep=keep.get(state)
    )


def problem_with_schedule_name(name: object) -> str | None:
    if not isinstance(name, str):
        return f"name: must be a string, is {name!r}"
    if len(name) > LONGEST_NAME:
        return f"name: must have 1 to {LONGEST_NAME} characters, has {len(name)}"
    return problem_with_name("name", name)
