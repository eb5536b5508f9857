"""A schedule as it is stored, its state and its due time."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from tidemill.core.documents import Document, DocumentUpdate
from tidemill.core.needs import Need
from tidemill.core.overrides import Override, apply_override
from tidemill.core.queues import DAY_SECONDS, HOUR_SECONDS, Pause
from tidemill.core.unique_keys import Unique
from tidemill.core.validation import MAX_NAME_CHARS, problem_with_name
from tidemill.schedules.settings import ScheduleChanges, ScheduleSettings
from tidemill.schedules.ticks import TickRule, next_tick

MAX_HISTORY_TICKS = 20
MAX_SCHEDULE_NAME = MAX_NAME_CHARS - 50
"""The ids of its jobs contain the name."""

ENDED_RETENTION_SECONDS = 7 * DAY_SECONDS
REMOVED_RETENTION_SECONDS = HOUR_SECONDS
"""How long a removed schedule is kept. A name that is used again continues its revisions, so a worker that
has not seen the removal changes nothing."""


class ScheduleOrigin(StrEnum):
    """The origin of a schedule. `declared`: the application's code declares it. `dynamic`: a call created
    it at run time."""

    DECLARED = "declared"
    DYNAMIC = "dynamic"


class ScheduleState(StrEnum):
    """The state of a schedule. `disabled`: the code no longer declares it. `ended`: it has no further tick.
    `removed`: an operator or a call removed it; it is kept for an hour."""

    ACTIVE = "active"
    PAUSED = "paused"
    DISABLED = "disabled"
    ENDED = "ended"
    REMOVED = "removed"


VISIBLE_STATES = tuple(state for state in ScheduleState if state is not ScheduleState.REMOVED)


class TickOutcome(StrEnum):
    """The result of a tick.

    - `fired`: it created a job.
    - `run by hand`: an operator started a job.
    - `overlap`: no job, because the last one was still live.
    - `missed`: no job, because no worker handled the tick in time.
    - `failed`: its job could not be built and is stored as failed.
    """

    FIRED = "fired"
    RUN = "run by hand"
    OVERLAP = "overlap"
    MISSED = "missed"
    FAILED = "failed"


class TickRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry in the history of a schedule: what happened at a tick. Times are wall times.

    - `tick`: the time of the tick; of several missed ticks, the last.
    - `at`: when the tick was handled.
    - `job`: the job that the tick created, or the live job that prevented a new one.
    - `count`: how many missed ticks share this entry; otherwise 1.
    """

    tick: float
    at: float
    outcome: TickOutcome
    job: str | None = None
    count: int = 1


class ScheduleWork(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The job that a tick creates: a task, its arguments as JSON (`payload`), and job options. UNSET means
    the task's own value."""

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


class ScheduleSpec(NamedTuple):
    """The definition of a schedule: the job to create, and when. `next_at` is the requested time of the next
    tick; None leaves the ticks to the settings."""

    work: ScheduleWork
    settings: ScheduleSettings
    next_at: float | None = None


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule as it is stored. Times are wall times.

    - `anchor`: when it was created; an interval without `start` is counted from this time.
    - `handled_until`: all ticks up to this time are handled.
    - `next_at`: the last requested time of a next tick; the same request again changes nothing.
    - `first_tick`: the tick of that request; the interval is counted from it.
    - `tick_delay`: by how many seconds that tick was moved, because the last job was still live.
    - `disabled`: True if the code no longer declares it.
    - `last`: the id of the job that it created last.
    - `history`: its last ticks, newest last.
    """

    name: str
    work: ScheduleWork
    settings: ScheduleSettings
    origin: ScheduleOrigin
    anchor: float
    handled_until: float
    next_at: float | None = None
    first_tick: float | None = None
    tick_delay: float = 0.0
    pause: Pause | None = None
    override: Override[ScheduleChanges] | None = None
    disabled: bool = False
    removed: bool = False
    last: str | None = None
    history: tuple[TickRecord, ...] = ()


_DECODER = msgspec.json.Decoder(Schedule)
_ENCODER = msgspec.json.Encoder()


def decode_schedule(document: Document) -> Schedule:
    return _DECODER.decode(document.record)


def try_decode_schedule(document: Document) -> Schedule | None:
    """Returns the schedule in a document. Returns None if it cannot be read, because a newer version wrote it
    or it is damaged; the caller may then replace it."""
    try:
        return decode_schedule(document)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


def is_same_work(work: ScheduleWork, other: ScheduleWork) -> bool:
    return _ENCODER.encode(work) == _ENCODER.encode(other)


def settings_in_force(schedule: Schedule, now: float) -> ScheduleSettings:
    return apply_override(schedule.settings, schedule.override, now)


def make_rule(schedule: Schedule, settings: ScheduleSettings) -> TickRule:
    """Returns the rule for the ticks of the schedule under `settings`, which are declared or overridden. An
    override with other times ignores `first_tick`."""
    start = settings.start
    if schedule.first_tick is not None and has_declared_times(schedule, settings):
        start = schedule.first_tick
    return TickRule(
        cron=settings.cron,
        tz=settings.tz,
        every=settings.every,
        anchor=schedule.anchor,
        start=start,
        end=settings.end,
    )


def rule_in_force(schedule: Schedule, now: float) -> TickRule:
    return make_rule(schedule, settings_in_force(schedule, now))


def has_declared_times(schedule: Schedule, settings: ScheduleSettings) -> bool:
    """True if `settings` name the declared times. False if an override has another cron expression, interval
    or start."""
    declared = schedule.settings
    return (settings.cron, settings.every, settings.start) == (declared.cron, declared.every, declared.start)


def find_next_tick(schedule: Schedule, now: float) -> float | None:
    """Returns the time of the first tick that is not handled yet; None if there is none."""
    return next_tick(rule_in_force(schedule, now), schedule.handled_until)


def stopped_state(schedule: Schedule, now: float) -> ScheduleState | None:
    """Returns REMOVED, DISABLED or PAUSED if the schedule does not tick at the wall time `now`; None if it
    ticks."""
    if schedule.removed:
        return ScheduleState.REMOVED
    if schedule.disabled:
        return ScheduleState.DISABLED
    return ScheduleState.PAUSED if schedule.pause is not None and schedule.pause.closed(now) else None


def schedule_state(schedule: Schedule, now: float) -> ScheduleState:
    return stopped_state(schedule, now) or _state_by_tick(find_next_tick(schedule, now))


def _state_by_tick(tick: float | None) -> ScheduleState:
    return ScheduleState.ENDED if tick is None else ScheduleState.ACTIVE


def make_schedule_document(schedule: Schedule, now: float) -> DocumentUpdate:
    """Returns the new version of the schedule's document. The document is due at the next tick or at the end
    of the override. A paused schedule is due at the end of the pause."""
    wakes: list[float | None] = []
    if (state := stopped_state(schedule, now)) is None:
        tick = find_next_tick(schedule, now)
        state = _state_by_tick(tick)
        wakes = [tick, None if schedule.override is None else schedule.override.until]
    elif state is ScheduleState.PAUSED and schedule.pause is not None:
        wakes = [schedule.pause.until]
    due = min((wake for wake in wakes if wake is not None), default=None)
    keep = {
        ScheduleState.REMOVED: REMOVED_RETENTION_SECONDS,
        ScheduleState.ENDED: ENDED_RETENTION_SECONDS if due is None else None,
    }
    return DocumentUpdate(
        name=schedule.origin, state=state, record=_ENCODER.encode(schedule), due=due, keep=keep.get(state)
    )


def problem_with_schedule_name(name: object) -> str | None:
    if not isinstance(name, str):
        return f"name: must be a string, is {name!r}"
    if len(name) > MAX_SCHEDULE_NAME:
        return f"name: must have 1 to {MAX_SCHEDULE_NAME} characters, has {len(name)}"
    return problem_with_name("name", name)
