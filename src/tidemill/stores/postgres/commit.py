"""What a step made of its rows is written: one statement for each kind of row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import UNSET

from tidemill.contract.reader import ATTEMPTS_KEPT, LOG_LINES
from tidemill.core.checkpoints import Checkpoint
from tidemill.core.job import Job
from tidemill.core.ledger import Shut
from tidemill.core.needs import group_of_lane
from tidemill.core.queues import Override, QueueSettings
from tidemill.core.states import State
from tidemill.engine import wants
from tidemill.engine.changes import Changes
from tidemill.engine.wants import LaneRow, QueueRow, Rows
from tidemill.stores.postgres import commit_books
from tidemill.stores.postgres.look_books import key_text
from tidemill.stores.postgres.rows import COLUMNS, FIELDS, number, row_of, text_of
from tidemill.stores.postgres.statements import load
from tidemill.stores.postgres.view import View

SQL = load("commit")
Pair = tuple[str, str]
"""A queue, and the name of a lane or a group."""
_JOBS = SQL.jobs.replace("{columns}", COLUMNS).replace(
    "{assignments}", ", ".join(f"{field} = EXCLUDED.{field}" for field in FIELDS if field != "seq")
)


async def commit(view: View, changes: Changes, rows: Rows) -> None:
    await _queues(view, changes.queues)
    await _jobs(view, changes)
    await _lanes(view, changes)
    await _groups(view, changes, rows)
    if changes.picked:
        await view.fetch(SQL.picked, changes.picked)
    await _kept(view, changes)
    await _checkpoints(view, changes.checkpoints, rows)
    await _details(view, changes)
    await commit_books.commit(view, changes)


async def write(view: View, sql: str, rows: Sequence[Any]) -> None:
    """`rows` as a JSON array of objects with the names of the columns."""
    if rows:
        await view.fetch(sql, text_of(rows))


async def _queues(view: View, queues: Mapping[str, QueueRow]) -> None:
    rows = [{"name": name, **_queue_row(row)} for name, row in queues.items()]
    await write(view, SQL.queues, rows)
    if queues:
        await view.fetch(SQL.plain_lanes, list(queues))


def _queue_row(row: QueueRow) -> dict[str, Any]:
    declared, override = row.declared, row.override
    lasts = override is None or override.until is None
    return {
        "declared": text_of(declared),
        "override": None if override is None else text_of(override),
        "pause": None if row.pause is None else text_of(row.pause),
        "inserts": _is_free(declared, override, "max_length"),
        "gives": row.pause is None and lasts and _is_free(declared, override, "concurrency"),
        "rings": not all(_is_free(declared, override, limit) for limit in ("concurrency", "key_concurrency")),
    }


def _is_free(declared: QueueSettings, override: Override | None, limit: str) -> bool:
    """Neither the code nor a person has set that limit: one of them may end by itself."""
    over = UNSET if override is None else getattr(override.changes, limit)
    return getattr(declared, limit) is None and over in (UNSET, None)


async def _jobs(view: View, changes: Changes) -> None:
    gone = [moved.before.id for moved in changes.jobs if moved.after is None and moved.before is not None]
    if gone:
        await view.fetch(SQL.drop_jobs, gone)
    await write(view, _JOBS, [row_of(moved.after) for moved in changes.jobs if moved.after is not None])


async def _lanes(view: View, changes: Changes) -> None:
    plain = {queue: row for (queue, lane), row in changes.lanes.items() if not lane}
    if plain:
        served = [None if row is None else row.served for row in plain.values()]
        await view.fetch(SQL.serve_plain, list(plain), served)
    others = {at: row for at, row in changes.lanes.items() if at[1]}
    kept = [_lane_row(*at, row) for at, row in others.items() if row is not None]
    await write(view, SQL.lanes, kept)
    await _pairs(view, SQL.forget_lanes, [at for at, row in others.items() if row is None])
    moved = (job for pair in changes.jobs for job in (pair.before, pair.after) if job is not None)
    stirred = {(job.queue, job.lane) for job in moved if _has_head(job)}
    await _pairs(view, SQL.heads, sorted(stirred | {at for at, row in others.items() if row is not None}))


def _has_head(job: Job) -> bool:
    return job.state is State.READY and bool(job.lane)


def _lane_row(queue: str, lane: str, row: LaneRow) -> dict[str, Any]:
    values: dict[str, Any] = {"queue": queue, "lane": lane, "grp": group_of_lane(lane), "served": row.served}
    values |= {"lacks": row.lacks, "ripe": row.ripe}
    return values if row.shut is None else values | _mark_row(row.shut)


async def _pairs(view: View, sql: str, pairs: Iterable[Pair]) -> None:
    listed = list(pairs)
    if listed:
        await view.fetch(sql, [first for first, _ in listed], [second for _, second in listed])


async def _groups(view: View, changes: Changes, rows: Rows) -> None:
    sizes: Counter[Pair] = Counter()
    for (queue, lane), row in changes.lanes.items():
        if lane:
            was_there = rows.get(wants.LaneOf(queue, lane)) is not None
            sizes[queue, group_of_lane(lane)] += (row is not None) - was_there
    grown = [{"queue": queue, "grp": group, "lanes": size} for (queue, group), size in sizes.items() if size]
    await write(view, SQL.groups, grown)
    marks = [
        {"queue": queue, "grp": group} | ({} if mark is None else _mark_row(mark))
        for (queue, group), mark in changes.groups.items()
    ]
    await write(view, SQL.marks, marks)
    shrunk = {at for at, size in sizes.items() if size < 0}
    opened = {at for at, mark in changes.groups.items() if mark is None}
    await _pairs(view, SQL.forget_groups, sorted(shrunk | opened))


def _mark_row(mark: Shut) -> dict[str, Any]:
    return {
        "pool": mark.pool,
        "key": key_text(mark.key),
        "until": number(mark.until),
        "again": number(mark.again),
        "urgency": mark.priority,
    }


async def _kept(view: View, changes: Changes) -> None:
    remembered = [
        {
            "id": id_,
            "verdict": known.verdict,
            "job": known.id,
            "fence": known.fence,
            "claim": known.claim,
            "wall": known.term.wall,
            "boot": known.term.boot,
            "boot_id": known.term.boot_id,
        }
        for id_, known in changes.remembered.items()
    ]
    await write(view, SQL.remembered, remembered)
    if changes.arrivals:
        await view.fetch(SQL.arrivals, changes.arrivals)
    workers = [
        {
            "id": known.info.id,
            "number": known.number,
            "lease": known.lease,
            "seen": known.info.seen,
            "host": known.info.host,
            "pid": known.info.pid,
            "queues": text_of(known.info.queues),
            "concurrency": known.info.concurrency,
        }
        for known in changes.workers.values()
    ]
    await write(view, SQL.workers, workers)
    leaders = [
        {"duty": duty, "worker": leader.worker, "lease": leader.lease}
        for duty, leader in changes.leaders.items()
        if leader is not None
    ]
    await write(view, SQL.leaders, leaders)
    if resigned := [duty for duty, leader in changes.leaders.items() if leader is None]:
        await view.fetch(SQL.resign, resigned)


async def _checkpoints(view: View, changed: Mapping[str, tuple[Checkpoint, ...]], rows: Rows) -> None:
    """Only those that are others: a result may be large."""
    kept: list[dict[str, Any]] = []
    forgotten: list[tuple[str, str, str]] = []
    for job, after in changed.items():
        before = {known.step: known for known in rows[wants.StepsOf(job)] or ()}
        kept += [_checkpoint_row(job, known) for known in after if before.get(known.step) != known]
        gone = before.keys() - {known.step for known in after}
        forgotten += [(job, step.name, step.arguments) for step in gone]
    await write(view, SQL.checkpoints, kept)
    if forgotten:
        await view.fetch(SQL.forget_checkpoints, *map(list, zip(*forgotten, strict=True)))


def _checkpoint_row(job: str, known: Checkpoint) -> dict[str, Any]:
    return {
        "job": job,
        "name": known.step.name,
        "arguments": known.step.arguments,
        "paid": known.paid,
        "begun": known.begun,
        "fence": known.by.fence,
        "claim": known.by.claim,
        "try": known.by.number,
        "kept": known.kept,
        "result": None if known.result is None else known.result.decode(),
        "unknown": known.unknown,
    }


async def _details(view: View, changes: Changes) -> None:
    attempts = [
        {
            "job": job,
            "generation": one.generation,
            "attempt": one.attempt,
            "started": one.started,
            "ended": one.ended,
            "worker": one.worker,
            "outcome": one.outcome,
            "error": None if one.error is None else text_of(one.error),
        }
        for job, of_job in changes.attempts.items()
        for one in of_job
    ]
    if attempts:
        await write(view, SQL.attempts, attempts)
        await view.fetch(SQL.trim_attempts, list(changes.attempts), ATTEMPTS_KEPT)
    logs = [
        {"job": job, "generation": one.generation, "attempt": one.attempt, "at": one.at, "line": one.line}
        for job, of_job in changes.logs.items()
        for one in of_job
    ]
    if logs:
        await write(view, SQL.logs, logs)
        of = {(line["job"], line["generation"], line["attempt"]) for line in logs}
        await view.fetch(SQL.trim_logs, *map(list, zip(*of, strict=True)), LOG_LINES)
    minutes = [
        {"queue": queue, "minute": minute, **counts} for (queue, minute), counts in changes.history.items()
    ]
    await write(view, SQL.history, minutes)
