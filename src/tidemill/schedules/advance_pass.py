"""One pass over the schedules that are due: creates the jobs of their ticks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tidemill.contract.store import Store
from tidemill.core.documents import Advance, Document, DocumentKind
from tidemill.core.states import LIVE
from tidemill.schedules.changes import ScheduleWrite, make_schedule_advance
from tidemill.schedules.due_ticks import (
    TickDecision,
    build_tick_job,
    decide_ticks,
    mark_overlaps,
    takes_arguments,
)
from tidemill.schedules.schedule import Schedule, TickRecord, decode_schedule, settings_in_force
from tidemill.tasks.definition import TaskDefinition

MAX_SCHEDULES_PER_PASS = 500
MAX_CHANGES_PER_CALL = 100
"""The schedules and jobs written by one store call, so that no call takes long."""


UNKNOWN_ARGUMENTS_SECONDS = 30.0
"""How long a tick waits for a worker that accepts its arguments.

During a rollout a worker of another version may accept them. After this time the tick's job is stored as
failed. It must be shorter than MISSED_AFTER_SECONDS, or the tick would count as missed."""


class ScheduleFault(NamedTuple):
    schedule: str
    error: Exception


class SchedulePassResult(NamedTuple):
    """The result of one pass.

    - `left`: the schedules that stay due, because this worker cannot handle them.
    - `broken`: the schedules whose processing raised an error.
    - `more`: True if another pass should follow at once.
    - `next_due`: seconds until the next schedule is due; None if no schedule will be due.
    """

    left: set[str]
    broken: list[ScheduleFault]
    more: bool
    next_due: float | None


TickListener = Callable[[str, TickRecord], None]
"""Called with the schedule's name and each tick that was handled."""


async def fire_due_schedules(
    store: Store, tasks: Mapping[str, TaskDefinition], skipped_before: int, listener: TickListener
) -> SchedulePassResult:
    """Creates the jobs of the ticks that are due, and writes the schedules. `listener` is called with each
    tick that was handled. `skipped_before`: how many schedules the last pass left due; this pass reads that
    many more."""
    limit = MAX_SCHEDULES_PER_PASS + skipped_before  # the worklist lists skipped schedules first
    worklist = await store.worklist(DocumentKind.SCHEDULE, limit)
    known, skipped, broken = _decode_schedules([item.document for item in worklist.work_items], tasks)
    overtaken = False
    if known:
        now = (await store.read_clock()).wall
        skipped |= {
            document.id
            for document, schedule in known
            if _belongs_to_other_version(document, schedule, tasks, now)
        }
        known = [(document, schedule) for document, schedule in known if document.id not in skipped]
        live = await _find_live_jobs(store, [schedule for _, schedule in known], now)
        for chunk in _chunk_decisions(_decide_all(known, tasks, live, now, broken)):
            overtaken |= await _write_decisions(store, chunk, now, listener)
    skipped |= {fault.schedule for fault in broken}
    return SchedulePassResult(
        skipped, broken, overtaken or len(worklist.work_items) == limit, worklist.next_due
    )


def _decode_schedules(
    documents: Iterable[Document], tasks: Mapping[str, TaskDefinition]
) -> tuple[list[tuple[Document, Schedule]], set[str], list[ScheduleFault]]:
    known, skipped, broken = [], set(), []
    for document in documents:
        try:
            schedule = decode_schedule(document)
        except msgspec.DecodeError as error:  # written by a newer version, or damaged
            broken.append(ScheduleFault(document.id, error))
            continue
        if schedule.work.task in tasks:
            known.append((document, schedule))
        else:
            skipped.add(document.id)
    return known, skipped, broken


def _belongs_to_other_version(
    document: Document, schedule: Schedule, tasks: Mapping[str, TaskDefinition], now: float
) -> bool:
    """True if the task does not accept the schedule's arguments, and the tick is less than
    UNKNOWN_ARGUMENTS_SECONDS late. A worker with another version of the program may accept them."""
    waits = now - (now if document.due is None else document.due)
    return waits < UNKNOWN_ARGUMENTS_SECONDS and not takes_arguments(schedule.work, tasks[schedule.work.task])


async def _find_live_jobs(store: Store, schedules: Iterable[Schedule], now: float) -> set[str]:
    """For each schedule with `overlap="skip"`, looks up the last job that it created. Returns the ids of
    these jobs that are still live."""
    last = [
        schedule.last
        for schedule in schedules
        if schedule.last is not None and settings_in_force(schedule, now).overlap == "skip"
    ]
    jobs = await store.get(last) if last else []
    return {job.id for job in jobs if job is not None and job.state in LIVE}


def _decide_all(
    known: Iterable[tuple[Document, Schedule]],
    tasks: Mapping[str, TaskDefinition],
    live: set[str],
    now: float,
    broken: list[ScheduleFault],
) -> Iterator[tuple[Document, TickDecision]]:
    for document, schedule in known:
        by_task = partial(
            build_tick_job, schedule, tasks[schedule.work.task], settings_in_force(schedule, now).overlap
        )
        try:
            decision = decide_ticks(schedule, now, live=schedule.last in live, build=by_task)
        except Exception as error:  # noqa: BLE001 - for example a time zone that this machine does not know
            broken.append(ScheduleFault(document.id, error))
            continue
        yield document, decision


def _chunk_decisions(
    decisions: Iterable[tuple[Document, TickDecision]],
) -> Iterator[list[tuple[Document, TickDecision]]]:
    chunk: list[tuple[Document, TickDecision]] = []
    size = 0
    for document, decision in decisions:
        weight = max(1, len(decision.jobs))
        if chunk and size + weight > MAX_CHANGES_PER_CALL:
            yield chunk
            chunk, size = [], 0
        chunk.append((document, decision))
        size += weight
    if chunk:
        yield chunk


async def _write_decisions(
    store: Store, decisions: Sequence[tuple[Document, TickDecision]], now: float, listener: TickListener
) -> bool:
    """Writes the schedules and creates their jobs. Returns True if another worker changed one of the
    schedules first, so it may still be due."""
    advances = [
        make_schedule_advance(document, ScheduleWrite(decision.schedule, decision.jobs), now)
        for document, decision in decisions
    ]
    answers = await store.advance(advances) if advances else []
    corrections: list[Advance] = []
    for (document, decision), answer in zip(decisions, answers, strict=True):
        if not answer.done:
            continue
        holders = {
            created.job.id: by
            for created, by in zip(decision.jobs, answer.jobs, strict=True)
            if created.job.id != by
        }
        for record in mark_overlaps(decision.records, holders):
            listener(document.id, record)
        if holders:
            last = (
                decode_schedule(document).last
                if decision.schedule.last in holders
                else decision.schedule.last
            )
            corrected = replace(
                decision.schedule, history=mark_overlaps(decision.schedule.history, holders), last=last
            )
            corrections.append(make_schedule_advance(answer.document, ScheduleWrite(corrected), now))
    if corrections:
        await store.advance(corrections)
    return not all(answer.done for answer in answers)
