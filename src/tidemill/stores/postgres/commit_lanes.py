"""What a step made of queues, lanes and groups of lanes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec import UNSET

from tidemill.core.job import Job
from tidemill.core.ledger import Shut
from tidemill.core.needs import group_of_lane
from tidemill.core.queues import Override, QueueSettings
from tidemill.core.states import State
from tidemill.engine import wants
from tidemill.engine.changes import Changes
from tidemill.engine.wants import LaneRow, QueueRow, Rows
from tidemill.stores.postgres.look_books import key_text
from tidemill.stores.postgres.rows import number, text_of

Pair = tuple[str, str]
"""A queue, and the name of a lane or a group."""


def parts(changes: Changes, rows: Rows) -> dict[str, Any]:
    return {
        "new_queues": [{"name": name, **_queue_row(row)} for name, row in changes.queues.items()],
        **_lanes(changes),
        **_groups(changes, rows),
    }


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


def _lanes(changes: Changes) -> dict[str, Any]:
    plain = {queue: row for (queue, lane), row in changes.lanes.items() if not lane}
    others = {at: row for at, row in changes.lanes.items() if at[1]}
    moved = (job for pair in changes.jobs for job in (pair.before, pair.after) if job is not None)
    stirred = {(job.queue, job.lane) for job in moved if _has_head(job)}
    stirred |= {at for at, row in others.items() if row is not None}
    return {
        "plain_lanes": [
            {"queue": queue, "served": None if row is None else row.served} for queue, row in plain.items()
        ],
        "new_lanes": [_lane_row(*at, row) for at, row in others.items() if row is not None],
        "gone_lanes": [
            {"queue": queue, "lane": lane} for (queue, lane), row in others.items() if row is None
        ],
        "stirred": [{"queue": queue, "lane": lane} for queue, lane in sorted(stirred)],
    }


def _has_head(job: Job) -> bool:
    return job.state is State.READY and bool(job.lane)


def _lane_row(queue: str, lane: str, row: LaneRow) -> dict[str, Any]:
    values: dict[str, Any] = {"queue": queue, "lane": lane, "grp": group_of_lane(lane), "served": row.served}
    values |= {"lacks": row.lacks, "ripe": row.ripe}
    return values if row.shut is None else values | _mark_row(row.shut)


def _groups(changes: Changes, rows: Rows) -> dict[str, Any]:
    sizes: Counter[Pair] = Counter()
    for (queue, lane), row in changes.lanes.items():
        if lane:
            was_there = rows.get(wants.LaneOf(queue, lane)) is not None
            sizes[queue, group_of_lane(lane)] += (row is not None) - was_there
    shrunk = {at for at, size in sizes.items() if size < 0}
    opened = {at for at, mark in changes.groups.items() if mark is None}
    return {
        "grown": [
            {"queue": queue, "grp": group, "lanes": size} for (queue, group), size in sizes.items() if size
        ],
        "marks": [
            {"queue": queue, "grp": group} | ({} if mark is None else _mark_row(mark))
            for (queue, group), mark in changes.groups.items()
        ],
        "gone_groups": [{"queue": queue, "grp": group} for queue, group in sorted(shrunk | opened)],
    }


def _mark_row(mark: Shut) -> dict[str, Any]:
    return {
        "pool": mark.pool,
        "key": key_text(mark.key),
        "until": number(mark.until),
        "again": number(mark.again),
        "urgency": mark.priority,
    }
