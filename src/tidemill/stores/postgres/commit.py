"""Writes all changes of one engine operation with a single call of the SQL function
`tidemill.commit_changes`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from msgspec import UNSET
from msgspec.structs import asdict

from tidemill.contract.reader import ATTEMPTS_KEPT, LOG_LINES_PER_ATTEMPT
from tidemill.core.jobs import Job
from tidemill.core.ledger import LaneBlock
from tidemill.core.needs import lane_group
from tidemill.core.overrides import Override
from tidemill.core.queues import QueueChanges, QueueSettings
from tidemill.core.states import State
from tidemill.engine import queries
from tidemill.engine.changes import Changes
from tidemill.engine.ledger import ClaimKey
from tidemill.engine.queries import LaneRow, QueueSettingsRow, Rows
from tidemill.stores.postgres.documents import document_row
from tidemill.stores.postgres.load_jobs import TransactionView
from tidemill.stores.postgres.pools import key_text, pool_minute_of
from tidemill.stores.postgres.rows import (
    checkpoint_row,
    json_number,
    json_text,
    row_of,
    text_array,
    worker_row,
)
from tidemill.stores.postgres.statements import load_statements

SQL = load_statements("commit")


def pool_parts(changes: Changes, now: float) -> dict[str, Any]:
    return {
        "new_pools": [
            {
                "name": name,
                "declared": json_text(pool.declared),
                "override": None if pool.override is None else json_text(pool.override),
            }
            for name, pool in changes.pools.items()
        ],
        "new_accounts": [
            {"pool": pool, "key": key_text(key), "last_seen": now, "account": json_text(account)}
            for (pool, key), account in changes.accounts.items()
        ],
        **_reservation_parts(changes),
        **_abandoned_parts(changes),
    }


def _reservation_parts(changes: Changes) -> dict[str, Any]:
    return {
        "ended_claims": _claim_rows(changes.reserved),
        "new_reservations": [
            {
                **_claim_row(claim),
                "number": at,
                "pool": reserved.pool,
                "key": key_text(reserved.key),
                "reserved": json_text(reserved),
            }
            for claim, held in changes.reserved.items()
            for at, reserved in enumerate(held)
        ],
    }


def _abandoned_parts(changes: Changes) -> dict[str, Any]:
    abandoned, unconfirmed_units = changes.left.items(), changes.unconfirmed_units.items()
    return {
        "abandoned": [
            {**_claim_row(claim), "worker": units.worker, "lease": units.lease}
            for claim, units in abandoned
            if units is not None
        ],
        "settled_abandoned": _claim_rows(claim for claim, units in abandoned if units is None),
        "unconfirmed": [
            {**_claim_row(claim), "since": since} for claim, since in unconfirmed_units if since is not None
        ],
        "confirmed": _claim_rows(claim for claim, since in unconfirmed_units if since is None),
    }


def _claim_rows(claims: Iterable[ClaimKey]) -> list[dict[str, Any]]:
    return [_claim_row(claim) for claim in claims]


def _claim_row(claim: ClaimKey) -> dict[str, Any]:
    job, fence, number = claim
    return {"job": job, "fence": fence, "claim": number}


async def pool_minutes(view: TransactionView, changes: Changes) -> list[dict[str, Any]]:
    """Returns the rows of pool history to write: the stored counts of a minute plus the counts in
    `changes`."""
    after = dict(changes.pool_history)
    pools, minutes = [pool for pool, _ in after], text_array(minute for _, minute in after)
    for pool, minute, *row in await view.fetch(SQL.pool_minutes, pools, minutes):
        after[pool, minute] = pool_minute_of(*row).plus(after[pool, minute])
    return [
        {
            "pool": pool,
            "minute": minute,
            "calls": entry.calls,
            "units": json_text(entry.units),
            "refusals": json_text(entry.refusals),
        }
        for (pool, minute), entry in after.items()
    ]


LaneKey = tuple[str, str]
"""A queue, and the name of a lane or group."""


def lane_parts(changes: Changes, rows: Rows) -> dict[str, Any]:
    return {
        "new_queues": [{"name": name, **_queue_row(row)} for name, row in changes.queues.items()],
        **_changed_lanes(changes),
        **_block_parts(changes, rows),
    }


def _queue_row(row: QueueSettingsRow) -> dict[str, Any]:
    declared, override = row.declared, row.override
    lasts = override is None or override.until is None
    return {
        "declared": json_text(declared),
        "override": None if override is None else json_text(override),
        "pause": None if row.pause is None else json_text(row.pause),
        "fast_insert": _is_unlimited(declared, override, "max_length"),
        "fast_claim": row.pause is None and lasts and _is_unlimited(declared, override, "concurrency"),
        "wakes_on_end": not all(
            _is_unlimited(declared, override, limit) for limit in ("concurrency", "key_concurrency")
        ),
    }


def _is_unlimited(declared: QueueSettings, override: Override[QueueChanges] | None, limit: str) -> bool:
    """True if neither the declared settings nor the override set `limit`, the name of a queue limit."""
    # Both count: when the override expires, the declared limit applies.
    overridden = UNSET if override is None else getattr(override.changes, limit)
    return getattr(declared, limit) is None and overridden in (UNSET, None)


def _changed_lanes(changes: Changes) -> dict[str, Any]:
    plain = {queue: row for (queue, lane), row in changes.lanes.items() if not lane}
    others = {at: row for at, row in changes.lanes.items() if at[1]}
    moved = (job for pair in changes.jobs for job in (pair.before, pair.after) if job is not None)
    changed = {(job.queue, job.lane) for job in moved if _has_head(job)}
    changed |= {at for at, row in others.items() if row is not None}
    deleted = [at for at, row in others.items() if row is None]
    return {
        "plain_lanes": [
            {"queue": queue, "served": None if row is None else row.served} for queue, row in plain.items()
        ],
        "new_lanes": [_lane_row(*at, row) for at, row in others.items() if row is not None],
        "deleted_lanes": [{"queue": queue, "lane": lane} for queue, lane in deleted],
        "changed_lanes": [{"queue": queue, "lane": lane} for queue, lane in sorted(changed)],
    }


def _has_head(job: Job) -> bool:
    return job.state is State.READY and bool(job.lane)


def _lane_row(queue: str, lane: str, row: LaneRow) -> dict[str, Any]:
    values: dict[str, Any] = {
        "queue": queue,
        "lane": lane,
        "pool_set": lane_group(lane),
        "served": row.served,
    }
    values |= {"missing_jobs": row.missing_jobs, "batch_due_at": row.batch_due}
    return values if row.block is None else values | _block_row(row.block)


def _block_parts(changes: Changes, rows: Rows) -> dict[str, Any]:
    sizes: Counter[LaneKey] = Counter()
    for (queue, lane), row in changes.lanes.items():
        if lane:
            was_there = rows.get(queries.LaneByName(queue, lane)) is not None
            sizes[queue, lane_group(lane)] += (row is not None) - was_there
    shrunk = {at for at, size in sizes.items() if size < 0}
    opened = {at for at, mark in changes.groups.items() if mark is None}
    return {
        "lane_counts": [
            {"queue": queue, "pool_set": group, "lanes": size}
            for (queue, group), size in sizes.items()
            if size
        ],
        "saved_blocks": [
            {"queue": queue, "pool_set": group} | ({} if mark is None else _block_row(mark))
            for (queue, group), mark in changes.groups.items()
        ],
        "deleted_blocks": [{"queue": queue, "pool_set": group} for queue, group in sorted(shrunk | opened)],
    }


def _block_row(mark: LaneBlock) -> dict[str, Any]:
    return {
        "pool": mark.pool,
        "key": key_text(mark.key),
        "until": json_number(mark.until),
        "retry_at": json_number(mark.retry_at),
        "blocked_priority": mark.priority,
    }


SQL = load_statements("commit")
CommitParts = dict[str, Any]

_NOT_JSON = frozenset({"deleted_jobs", "picked", "admitted", "attempts_kept", "logs_kept", "done_work"})
PART_NAMES: tuple[str, ...] = tuple(re.findall(r"(\w+) =>", SQL.commit))
"""In the order of the statement's parameters."""


async def commit(view: TransactionView, changes: Changes, rows: Rows) -> None:
    parts: CommitParts = {
        "picked": changes.picked,
        "attempts_kept": ATTEMPTS_KEPT,
        "logs_kept": LOG_LINES_PER_ATTEMPT,
        **_job_parts(changes),
        **lane_parts(changes, rows),
        **_id_parts(changes),
        **_checkpoint_parts(changes, rows),
        **_detail_parts(changes),
        **pool_parts(changes, view.numbers.wall),
        **_document_parts(changes),
    }
    if changes.pool_history:
        parts["pool_minutes"] = await pool_minutes(view, changes)
    await view.fetch(SQL.commit, *(_encode_part(name, parts.get(name)) for name in PART_NAMES))


def _encode_part(name: str, part: Any) -> Any:
    if name in _NOT_JSON:
        return part if part != [] else None
    return json_text(part) if part else None


def _job_parts(changes: Changes) -> CommitParts:
    deleted = [moved.before.id for moved in changes.jobs if moved.after is None and moved.before is not None]
    return {
        "deleted_jobs": deleted,
        "new_jobs": [row_of(moved.after) for moved in changes.jobs if moved.after is not None],
    }


def _document_parts(changes: Changes) -> CommitParts:
    after = changes.documents.items()
    return {
        "new_documents": [document_row(document) for _, document in after if document is not None],
        "deleted_documents": [
            {"kind": kind, "id": id_} for (kind, id_), document in after if document is None
        ],
        "new_work": [
            {"kind": mark.document[0], "document": mark.document[1], "job": mark.job}
            for mark in changes.work_marks
        ],
        "done_work": text_array(changes.taken),
    }


def _id_parts(changes: Changes) -> CommitParts:
    return {
        "saved_ids": [
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
            for id_, known in changes.known_ids.items()
        ],
        "admitted": text_array(changes.arrivals),
        "new_workers": [worker_row(known) for known in changes.workers.values()],
    }


def _checkpoint_parts(changes: Changes, rows: Rows) -> CommitParts:
    """Returns the checkpoints to write and to delete. Unchanged checkpoints are left out, because results can
    be large."""
    changed: list[CommitParts] = []
    forgotten: list[CommitParts] = []
    for job, after in changes.checkpoints.items():
        before = {known.step: known for known in rows[queries.JobCheckpoints(job)] or ()}
        changed += [checkpoint_row(job, known) for known in after if before.get(known.step) != known]
        deleted = before.keys() - {known.step for known in after}
        forgotten += [{"job": job, "name": step.name, "arguments": step.arguments} for step in deleted]
    return {"new_checkpoints": changed, "deleted_checkpoints": forgotten}


def _detail_parts(changes: Changes) -> CommitParts:
    return {
        "new_attempts": [
            {"job": job, **asdict(detail), "error": None if detail.error is None else json_text(detail.error)}
            for job, of_job in changes.attempts.items()
            for detail in of_job
        ],
        "new_logs": [
            {"job": job, **asdict(detail)} for job, of_job in changes.logs.items() for detail in of_job
        ],
        "minutes": [
            {"queue": queue, "minute": minute, **counts}
            for (queue, minute), counts in changes.history.items()
        ],
    }
