"""Decides which due ticks of a schedule create a job, and builds these jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from tidemill.core.documents import DocumentJob
from tidemill.core.jobs import Error, NewJob
from tidemill.core.unique_keys import Unique
from tidemill.errors import ConfigurationError
from tidemill.schedules.schedule import (
    MAX_HISTORY_TICKS,
    Schedule,
    ScheduleWork,
    TickOutcome,
    TickRecord,
    make_rule,
    settings_in_force,
    stopped_state,
)
from tidemill.schedules.settings import CatchUp, Overlap, ScheduleSettings
from tidemill.schedules.ticks import MAX_DUE_TICKS, due_ticks, tick_jitter
from tidemill.tasks.definition import TaskDefinition

_JOB_FIELDS = ("priority", "key", "expires", "timeout", "unique", "trace", "tags", "needs")


def build_tick_job(
    schedule: Schedule, task: TaskDefinition, overlap: Overlap, job: str, at: float | None
) -> DocumentJob:
    """Returns the job of a tick. `job` is its id, and `at` its start time (wall time); None starts it at
    once. A job that cannot be built is returned with its error and stored as failed. `overlap="skip"` gives
    the job a unique key, unless it has its own."""
    work = schedule.work
    queue = task.queue if work.queue is UNSET else work.queue
    try:
        built = _build_job(work, task, job, at)
    except Exception as error:  # noqa: BLE001 - see the docstring
        plain = NewJob(id=job, task=work.task, payload=bytes(work.payload))
        return DocumentJob(queue, plain, Error(type(error).__name__, _replace_unstorable(str(error))))
    if overlap == "skip" and built.unique is None:
        built = msgspec.structs.replace(built, unique=Unique(schedule_unique_key(schedule.name)))
    return DocumentJob(queue, built)


def takes_arguments(work: ScheduleWork, task: TaskDefinition) -> bool:
    """True if the task accepts the arguments of the schedule."""
    try:
        task.payload.decode(bytes(work.payload))
    except Exception:  # noqa: BLE001 - a user's own types may raise any error
        return False
    return True


def schedule_unique_key(name: str) -> str:
    """Returns the unique key for the jobs of a schedule whose task sets none. Because of the key, at most one
    job of the schedule is live at a time."""
    return f"schedule {name}"


def make_schedule_work(queue: str, job: NewJob, task: TaskDefinition) -> ScheduleWork:
    """Returns what a schedule stores about its job: the task, the arguments, and the options that differ from
    the task's own. Raises ConfigurationError if the job has `at` or `delay`."""
    if job.at is not None or job.delay:
        raise ConfigurationError(
            f"{'at' if job.at is not None else 'delay'}: the schedule says when its jobs start; leave it out"
        )
    plain = ScheduleWork(task=job.task, payload=msgspec.Raw(job.payload))
    usual = _build_job(plain, task, job.id, None)
    other = {name: getattr(job, name) for name in _JOB_FIELDS if getattr(job, name) != getattr(usual, name)}
    if queue != task.queue:
        other["queue"] = queue
    return msgspec.structs.replace(plain, **other)


def _build_job(work: ScheduleWork, task: TaskDefinition, job: str, at: float | None) -> NewJob:
    payload = bytes(work.payload)
    decoded = task.payload.decode(payload)
    computes = task.pools or task.key is not None or callable(task.unique)
    usual = _task_defaults(task, task.payload.by_name(*decoded) if computes else {})
    options = {name: value for name in _JOB_FIELDS if (value := getattr(work, name)) is not UNSET}
    batching = None if task.batch is None else task.batch.policy
    return NewJob(id=job, task=work.task, payload=payload, at=at, batching=batching, **usual | options)


def _task_defaults(task: TaskDefinition, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the job options that the task itself sets, by name. `arguments` are the job's arguments, from
    which the task may compute key, unique key and needs."""
    usual: dict[str, Any] = {"priority": task.priority, "expires": task.expires}
    if task.key is not None:
        usual["key"] = task.key(**arguments)
    if task.unique is not None:
        usual["unique"] = task.unique(**arguments) if callable(task.unique) else task.unique
    if task.pools:
        from tidemill.tasks.costs import compute_needs  # loads all of pools: most tasks need none

        usual["needs"] = compute_needs(task, arguments)
    return usual


def _replace_unstorable(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")


MISSED_AFTER_SECONDS = 60.0
"""A tick that is not handled within a minute is missed. A dead leader is replaced long before."""

MIN_TICK_DELAY_SECONDS = 1.0
MAX_TICK_DELAY_SECONDS = 60.0
TICK_DELAY_GROWTH = 1.25
"""How long a requested tick waits before it checks again whether the last job has ended. With this growth the
job of the tick starts at most a quarter later than it could, relative to the time that it has waited."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
JobFactory = Callable[[str, float], DocumentJob]
"""Builds the job with that id and start time."""


class TickDecision(NamedTuple):
    schedule: Schedule
    jobs: tuple[DocumentJob, ...]
    records: tuple[TickRecord, ...]


def decide_ticks(schedule: Schedule, now: float, *, live: bool, build: JobFactory) -> TickDecision:
    """Decides which due ticks create a job. Returns the new schedule, the jobs to create, and the history
    records. `live`: the last job of the schedule has not ended. `build` makes a job from its id and start
    time."""
    earlier = _find_override_ticks(schedule, now)
    schedule = drop_expired(schedule, now)
    if stopped_state(schedule, now):
        return TickDecision(schedule, (), ())
    settings = settings_in_force(schedule, now)
    later = due_ticks(make_rule(schedule, settings), schedule.handled_until, now).ticks
    if live and settings.overlap == "skip" and schedule.first_tick in later:
        return TickDecision(_delay_first_tick(schedule, now), (), ())
    ticks = [*earlier, *later][-MAX_DUE_TICKS:]
    selected = _select_caught_up(settings.catch_up, ticks, now)
    records = list(_make_missed_record([tick for tick in ticks if tick not in selected], now))
    jobs: list[DocumentJob] = []
    last = schedule.last
    for tick in selected:
        if settings.overlap == "skip" and (live or jobs):
            records.append(TickRecord(tick=tick, at=now, outcome=TickOutcome.OVERLAP, job=last))
            continue
        built = build(make_tick_job_id(schedule.name, tick), _start_time(schedule.name, settings, tick))
        jobs.append(built)
        last = built.job.id
        outcome = TickOutcome.FIRED if built.error is None else TickOutcome.FAILED
        records.append(TickRecord(tick=tick, at=now, outcome=outcome, job=last))
    after = replace(schedule, handled_until=later[-1] if later else schedule.handled_until, last=last)
    return TickDecision(add_history(after, records), tuple(jobs), tuple(records))


def _delay_first_tick(schedule: Schedule, now: float) -> Schedule:
    """Returns the schedule with its requested tick moved a little later, because the last job is still live.
    The delay grows from check to check."""
    delay = min(max(schedule.tick_delay * TICK_DELAY_GROWTH, MIN_TICK_DELAY_SECONDS), MAX_TICK_DELAY_SECONDS)
    return replace(schedule, first_tick=now + delay, tick_delay=delay)


def drop_expired(schedule: Schedule, now: float) -> Schedule:
    """Returns the schedule without its pause or override, if they have expired at the wall time `now`. Ticks
    before the end of the pause create no jobs."""
    pause, override, handled_until = schedule.pause, schedule.override, schedule.handled_until
    if pause is not None and not pause.closed(now):
        handled_until = max(handled_until, pause.until or handled_until)
        pause = None
    if override is not None and not override.holds(now):
        if make_rule(schedule, override.changes.over(schedule.settings)) != make_rule(
            schedule, schedule.settings
        ):
            handled_until = max(handled_until, override.until or handled_until)
        override = None
    return replace(schedule, pause=pause, override=override, handled_until=handled_until)


def _find_override_ticks(schedule: Schedule, now: float) -> list[float]:
    """Returns the unhandled ticks of an expired override; [] if the override kept the declared times."""
    override = schedule.override
    if override is None or override.until is None or override.holds(now):
        return []
    rule = make_rule(schedule, override.changes.over(schedule.settings))
    if rule == make_rule(schedule, schedule.settings):
        return []
    pause = schedule.pause
    begin = (
        schedule.handled_until
        if pause is None
        else max(schedule.handled_until, pause.until or override.until)
    )
    return due_ticks(rule, begin, override.until).ticks


def make_tick_job_id(name: str, tick: float) -> str:
    """Returns the id of a tick's job: the schedule's name and the time of the tick in UTC. Every process
    computes the same id, so a tick creates one job."""
    return f"{name}@{(_EPOCH + timedelta(seconds=tick)).isoformat().removesuffix('+00:00')}Z"


def mark_overlaps(ticks: Iterable[TickRecord], holders: Mapping[str, str]) -> tuple[TickRecord, ...]:
    """Returns the records, with the outcome OVERLAP for ticks whose job was not created. `holders` maps the
    id of a job that was not created to the job that holds its unique key."""
    return tuple(
        record
        if (by := holders.get(record.job or "")) is None
        else replace(record, outcome=TickOutcome.OVERLAP, job=by)
        for record in ticks
    )


def add_history(schedule: Schedule, records: Iterable[TickRecord]) -> Schedule:
    return replace(schedule, history=(*schedule.history, *records)[-MAX_HISTORY_TICKS:])


def _select_caught_up(policy: CatchUp, ticks: Sequence[float], now: float) -> Sequence[float]:
    if policy == "all":
        return ticks
    in_time = [tick for tick in ticks if now - tick <= MISSED_AFTER_SECONDS]
    return in_time or (ticks[-1:] if policy == "once" else [])


def _make_missed_record(ticks: Sequence[float], now: float) -> Iterable[TickRecord]:
    if ticks:
        yield TickRecord(tick=ticks[-1], at=now, outcome=TickOutcome.MISSED, count=len(ticks))


def _start_time(name: str, settings: ScheduleSettings, tick: float) -> float:
    return tick + tick_jitter(name, tick, settings.jitter)
