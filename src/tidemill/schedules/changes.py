"""Operations on schedules: create, pause, resume, override, disable and remove, and write the result to the
store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from tidemill.contract.store import Store
from tidemill.core.documents import Advance, Document, DocumentJob, DocumentKind
from tidemill.core.overrides import OverrideEdit
from tidemill.core.queues import Pause
from tidemill.errors import ConfigurationError, ScheduleNotFound
from tidemill.schedules.due_ticks import add_history
from tidemill.schedules.schedule import (
    Schedule,
    ScheduleOrigin,
    ScheduleSpec,
    TickOutcome,
    TickRecord,
    has_declared_times,
    is_same_work,
    make_rule,
    make_schedule_document,
    settings_in_force,
    try_decode_schedule,
)
from tidemill.schedules.settings import ScheduleChanges, read_next_at


def put_schedule(
    before: Schedule | None, name: str, spec: ScheduleSpec, origin: ScheduleOrigin, now: float
) -> Schedule:
    """Returns a new schedule if `before` is None or removed. Otherwise returns `before` with the new
    definition; its pause, override and history stay. Raises ConfigurationError if a call at run time would
    replace a schedule that code declares."""
    work, settings, next_at = spec
    if before is None or before.removed:
        created = Schedule(
            name=name, work=work, settings=settings, origin=origin, anchor=now, handled_until=now
        )
        return created if next_at is None else _start_at(created, next_at, now, now - TICK_DISTANCE_SECONDS)
    if origin is ScheduleOrigin.DYNAMIC and before.origin is ScheduleOrigin.DECLARED and not before.disabled:
        raise ConfigurationError("code declares it; change it there, or override it")
    after = replace(before, work=work, settings=settings, origin=origin, disabled=False)
    if settings.every is None or settings.start is not None:
        after = replace(after, next_at=None, first_tick=None)  # the new settings say when it ticks
    after = _start_new_rule(before, after, now)
    if next_at is None or next_at == before.next_at:
        return after
    return _start_at(after, next_at, now, before.handled_until)


def move_next_tick(before: Schedule, now: float, next_at: float | datetime) -> Schedule:
    """Returns the schedule with its next tick at `next_at`. Raises ConfigurationError if the schedule has no
    interval, or if an override sets its times."""
    time = read_next_at(next_at, before.settings)
    if not has_declared_times(before, settings_in_force(before, now)):
        raise ConfigurationError("next_at: an override sets its times; unset it, or override start too")
    if time is None or time == before.next_at:
        return before
    return _start_at(before, time, now, before.handled_until)


def _start_at(after: Schedule, next_at: float, now: float, handled_until: float) -> Schedule:
    """Returns the schedule with `next_at` as its next tick, at the earliest now. The tick comes after
    `handled_until`, so that no tick fires twice (I12)."""
    first_tick = max(next_at, now, handled_until + TICK_DISTANCE_SECONDS)
    unhandled = max(handled_until, first_tick - TICK_DISTANCE_SECONDS)
    return replace(
        after,
        next_at=next_at,
        first_tick=first_tick,
        tick_delay=0.0,
        handled_until=min(after.handled_until, unhandled),
    )


def pause_schedule(before: Schedule, now: float, until: float | None, reason: str | None) -> Schedule:
    mark = Pause(now, until, reason)
    if problem := mark.problem():
        raise ConfigurationError(problem)
    return replace(before, pause=mark)


def resume_schedule(before: Schedule, now: float) -> Schedule:
    """Returns the schedule without its pause. The ticks during the pause create no jobs."""
    return (
        before
        if before.pause is None
        else replace(before, pause=None, handled_until=max(before.handled_until, now))
    )


def override_schedule(before: Schedule, now: float, edit: OverrideEdit[ScheduleChanges]) -> Schedule:
    """Returns the schedule with the override that `edit` returns. If the times of the ticks change, ticks
    before `now` create no jobs. Raises ConfigurationError if the override is invalid."""
    override = edit(before.override, now)
    if override is not None and (problem := override.problem(before.settings)):
        raise ConfigurationError(problem)
    return _start_new_rule(before, replace(before, override=override), now)


def disable_schedule(before: Schedule) -> Schedule:
    return replace(before, disabled=True)


def remove_schedule(before: Schedule) -> Schedule:
    """Returns the schedule in the state REMOVED. Only its definition is kept: pause, override, last job and
    history are deleted."""
    return replace(before, removed=True, pause=None, override=None, disabled=False, last=None, history=())


def record_manual_run(before: Schedule, now: float, job: str) -> Schedule:
    return add_history(
        replace(before, last=job), [TickRecord(tick=now, at=now, outcome=TickOutcome.RUN, job=job)]
    )


def require_schedule(name: str, before: Schedule | None) -> Schedule:
    if before is None or before.removed:
        raise schedule_not_found(name)
    return before


def schedule_not_found(name: str) -> ScheduleNotFound:
    return ScheduleNotFound(
        f"there is no schedule {name!r}; `tidemill schedules` lists those there are, and a worker "
        "writes those that code declares when it starts"
    )


def _start_new_rule(before: Schedule, after: Schedule, now: float) -> Schedule:
    if _has_new_rule(before, after, now):
        return replace(after, handled_until=max(before.handled_until, now))
    return after


def _has_new_rule(before: Schedule, after: Schedule, now: float) -> bool:
    """True if `after` has other tick times than `before`, or if `before` was disabled. The caller then
    creates no jobs for ticks before `now`."""
    old, new = settings_in_force(before, now), settings_in_force(after, now)
    return before.disabled or make_rule(before, old) != make_rule(after, new)


TICK_DISTANCE_SECONDS = 0.001
"""A requested tick comes at least this long after the last tick, so the ids of their jobs differ."""

MAX_SCHEDULES_PER_WRITE = 200
MAX_SCHEDULES_PER_PAGE = 500


class ScheduleWrite(NamedTuple):
    """The new version of a schedule, and the jobs to create together with it."""

    schedule: Schedule
    jobs: tuple[DocumentJob, ...] = ()


ScheduleEdit = Callable[[str, Schedule | None, float], ScheduleWrite | None]
"""Takes the name, the current schedule and the store's wall time; returns None to leave it unchanged."""


async def change_schedule(store: Store, name: str, edit: ScheduleEdit) -> None:
    await change_schedules(store, [name], edit)


async def change_schedules(store: Store, names: Iterable[str], edit: ScheduleEdit) -> None:
    """Applies `edit` to each of the schedules and writes the results. If another process changes a schedule
    meanwhile, the edit is repeated. An error of `edit` ends the call; earlier schedules may be written
    already."""
    for chunk in _chunk_names(list(dict.fromkeys(names))):
        remaining = chunk
        while remaining:
            remaining = await _try_write(store, remaining, edit)


async def _try_write(store: Store, names: Sequence[str], edit: ScheduleEdit) -> list[str]:
    """Edits and writes the schedules once. Returns the names of schedules that another process changed
    meanwhile; they are not written."""
    documents = await store.documents(DocumentKind.SCHEDULE, names)
    now = (await store.read_clock()).wall
    advances = [
        make_schedule_advance(document, write, now)
        for name, document in zip(names, documents, strict=True)
        if (write := _apply_edit(name, document, now, edit)) is not None
    ]
    answers = await store.advance(advances) if advances else []
    return [item.id for item, answer in zip(advances, answers, strict=True) if not answer.done]


def _apply_edit(name: str, document: Document | None, now: float, edit: ScheduleEdit) -> ScheduleWrite | None:
    try:
        return edit(name, None if document is None else try_decode_schedule(document), now)
    except ConfigurationError as error:
        raise ConfigurationError(f"schedule {name!r}: {error}") from None


def make_schedule_advance(document: Document | None, write: ScheduleWrite, now: float) -> Advance:
    return Advance(
        kind=DocumentKind.SCHEDULE,
        id=write.schedule.name,
        expected=0 if document is None else document.revision,
        next=make_schedule_document(write.schedule, now),
        jobs=write.jobs,
    )


async def declare_schedules(
    store: Store, declared: Mapping[str, ScheduleSpec], tasks: Mapping[str, object]
) -> None:
    """Writes the schedules that code declares, if they are new or changed. Disables stored schedules that
    code no longer declares, if their task is in `tasks`."""
    undeclared = [document.id for document in await load_declared(store) if document.id not in declared]

    def write(name: str, before: Schedule | None, now: float) -> ScheduleWrite | None:
        if is_unchanged(before, declared[name], ScheduleOrigin.DECLARED):
            return None
        return ScheduleWrite(put_schedule(before, name, declared[name], ScheduleOrigin.DECLARED, now))

    def turn_off(_: str, before: Schedule | None, __: float) -> ScheduleWrite | None:
        if (
            before is None
            or before.removed
            or before.disabled
            or before.origin is not ScheduleOrigin.DECLARED
        ):
            return None
        return ScheduleWrite(disable_schedule(before)) if before.work.task in tasks else None

    await change_schedules(store, declared, write)
    await change_schedules(store, undeclared, turn_off)


async def load_declared(store: Store) -> list[Document]:
    found: list[Document] = []
    cursor: str | None = None
    while True:
        page = await store.find_documents(
            DocumentKind.SCHEDULE, name=ScheduleOrigin.DECLARED, limit=MAX_SCHEDULES_PER_PAGE, cursor=cursor
        )
        found += page.documents
        if (cursor := page.cursor) is None:
            return found


def is_unchanged(before: Schedule | None, spec: ScheduleSpec, origin: ScheduleOrigin) -> bool:
    """True if nothing has to be written: the stored schedule `before` has the same definition and origin, and
    is neither disabled nor removed."""
    return (
        before is not None
        and before.origin is origin
        and not (before.disabled or before.removed)
        and before.settings == spec.settings
        and spec.next_at in (None, before.next_at)
        and is_same_work(before.work, spec.work)
    )


def _chunk_names(names: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(names), MAX_SCHEDULES_PER_WRITE):
        yield names[start : start + MAX_SCHEDULES_PER_WRITE]
