"""Loads queues, lanes and the jobs that a claim may take, for the engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from asyncpg import Record

from tidemill.contract.jobs import MAX_PROMOTED_PER_CLAIM
from tidemill.core.batch_start import BATCH_WAIT_KEY
from tidemill.core.jobs import Job
from tidemill.core.ledger import LaneBlock
from tidemill.core.overrides import Override
from tidemill.core.queues import Pause, QueueChanges, QueueSettings
from tidemill.engine import queries
from tidemill.engine.indexes import SortKey
from tidemill.engine.queries import KeyPrefix, LaneGroupRow, LaneRow, QueueSettingsRow
from tidemill.stores.postgres.load_jobs import LoadedRows, TransactionView, add_jobs
from tidemill.stores.postgres.pools import account_key, key_text
from tidemill.stores.postgres.rows import COLUMNS, job_of, text_array
from tidemill.stores.postgres.statements import load_statements

SQL = load_statements("load_lanes")
_PLAIN = SQL.plain.replace("{columns}", COLUMNS)
_HEADS = SQL.heads.replace("{columns}", COLUMNS)
_DUE = SQL.due.replace("{columns}", COLUMNS)
_DECLARED = msgspec.json.Decoder(QueueSettings)
_OVERRIDE = msgspec.json.Decoder(Override[QueueChanges])
_PAUSE = msgspec.json.Decoder(Pause)

DEFAULT_PREFIX_ROWS = 8
"""Number of sort keys loaded by default. Fewer for plain jobs, because these are locked."""
DEFAULT_PLAIN_ROWS = 2
MAX_BATCH_JOBS = 2000
"""Most jobs of one lane that are loaded for a claim of batches."""

LaneName = tuple[str, str]
"""Queue and lane."""


def queue_settings_of(declared: str, override: str | None, pause: str | None) -> QueueSettingsRow:
    return QueueSettingsRow(
        _DECLARED.decode(declared),
        None if override is None else _OVERRIDE.decode(override),
        None if pause is None else _PAUSE.decode(pause),
    )


def _block_of(row: Record) -> LaneBlock | None:
    """Returns the block of a lane or group from its row; None if the lane or group is open."""
    if row["retry_at"] is None:
        return None
    account = account_key(row["pool"], row["key"])
    return LaneBlock(*account, until=row["until"], retry_at=row["retry_at"], priority=row["blocked_priority"])


async def load_queues(
    view: TransactionView, requested: Iterable[queries.QueueByName], found: LoadedRows
) -> None:
    names = [want.name for want in requested]
    found.update(dict.fromkeys(map(queries.QueueByName, names)))
    known = await view.fetch(SQL.queues, names)
    groups = {name: {"": LaneGroupRow(1)} for name in names}  # the lane '' always exists
    for row in await view.fetch(SQL.blocks, names):
        size = row["lanes"] + (not row["pool_set"])
        groups[row["queue"]][row["pool_set"]] = LaneGroupRow(size, _block_of(row))
    for name, *texts in known:
        settings = queue_settings_of(*texts)
        found[queries.QueueByName(name)] = QueueSettingsRow(
            settings.declared, settings.override, settings.pause, groups[name]
        )


async def load_lanes(
    view: TransactionView, requested: Mapping[queries.LaneByName, int], found: LoadedRows
) -> None:
    counts: dict[LaneName, int] = {}
    for want, count in requested.items():
        if want.lane:
            counts[want.queue, want.lane] = count or DEFAULT_PREFIX_ROWS
        else:
            await _load_plain_lane(view, want.queue, count or DEFAULT_PLAIN_ROWS, found)
    if counts:
        rows = await view.fetch(SQL.sort_keys, *_counted(counts))
        keys: dict[LaneName, list[SortKey]] = defaultdict(list)
        for queue, lane, *key in rows:
            keys[queue, lane].append(tuple(key))
        await _add_lanes(view, counts, keys, found)


def _counted(counts: Mapping[LaneName, int]) -> tuple[list[str], list[str], list[str | None]]:
    """Returns the parameters of a query for the first jobs of some lanes: queue names, lane names and numbers
    of jobs. Each number is one higher than in `counts`, to find out whether the lane has more jobs."""
    return (
        [queue for queue, _ in counts],
        [lane for _, lane in counts],
        text_array(n + 1 for n in counts.values()),
    )


async def _add_lanes(
    view: TransactionView,
    counts: Mapping[LaneName, int],
    keys: Mapping[LaneName, list[SortKey]],
    found: LoadedRows,
) -> None:
    found.update(dict.fromkeys(queries.LaneByName(*at) for at in counts))
    for row in await view.fetch(SQL.lanes, *_counted(counts)[:2]):
        at = row["queue"], row["lane"]
        jobs = _prefix_of(keys.get(at, []), counts[at])
        found[queries.LaneByName(*at)] = LaneRow(
            row["served"], _block_of(row), row["missing_jobs"], row["batch_due_at"], jobs
        )


def _prefix_of(keys: list[Any], count: int) -> KeyPrefix:
    return KeyPrefix(tuple(keys[:count]), complete=len(keys) <= count)


def _key(job: Job) -> SortKey:
    return (job.priority, job.due, job.seq, job.id)


async def _load_plain_lane(view: TransactionView, queue: str, count: int, found: LoadedRows) -> None:
    """Loads the first `count` jobs of the lane '' (jobs without key, pool or batch). Locks these jobs until
    the end of the transaction."""
    known = view.plain_lanes.get(queue)
    if known is None or (known.count < count and not known.is_complete):
        jobs = add_jobs(await view.fetch(_PLAIN, queue, count), found)
        if known is None:
            rows = await view.fetch(SQL.lanes, [queue], [""])
            served = rows[0]["served"] if rows else 0
        else:
            served = known.served
        known = view.plain_lanes[queue] = PlainLane(jobs, count, served)
    row = None
    if known.jobs:
        keys = tuple(map(_key, known.jobs))
        row = LaneRow(known.served, jobs=KeyPrefix(keys, complete=known.is_complete))
    found[queries.LaneByName(queue, "")] = row
    if queue in view.open_lanes:
        _add_plain_lane(view, queue, found)


class PlainLane(msgspec.Struct):
    """The loaded part of a queue's lane '' (jobs without key, pool or batch).

    - `jobs`: the first jobs of the lane
    - `count`: how many jobs were requested
    - `served`: the store-wide number of the last claim from this lane"""

    jobs: list[Job]
    count: int
    served: int

    @property
    def is_complete(self) -> bool:
        return len(self.jobs) < self.count


async def load_open_lanes(
    view: TransactionView, requested: Mapping[queries.OpenLanesOfGroup, int], found: LoadedRows
) -> None:
    for want, count in requested.items():
        most = count or DEFAULT_PREFIX_ROWS
        rows = await view.fetch(SQL.open_lanes, want.queue, want.group, most + 1)
        keys = [tuple(row) for row in rows]
        if want.group:
            found[want] = _prefix_of(keys, most)
        else:
            view.open_lanes[want.queue] = _prefix_of(keys, most)
            if want.queue in view.plain_lanes:
                _add_plain_lane(view, want.queue, found)
            else:
                await _load_plain_lane(view, want.queue, DEFAULT_PLAIN_ROWS, found)


def _add_plain_lane(view: TransactionView, queue: str, found: LoadedRows) -> None:
    """Adds the lane '' (jobs without key, pool or batch) to the sorted list of open lanes that need no pool.
    The lane's first ready job decides its position."""
    others, plain = view.open_lanes[queue], view.plain_lanes[queue]
    keys = list(others.first)
    if plain.jobs:
        head = plain.jobs[0]
        key = (head.priority, plain.served, head.seq, "")
        if others.complete or key < keys[-1]:
            keys = sorted([*keys, key])
    found[queries.OpenLanesOfGroup(queue, "")] = KeyPrefix(tuple(keys), complete=others.complete)


async def load_scheduled(
    view: TransactionView, requested: Mapping[queries.ScheduledJobs, int], found: LoadedRows
) -> None:
    wall = view.numbers.wall
    for want, count in requested.items():
        due = add_jobs(await view.fetch(_DUE, want.queue, wall, MAX_PROMOTED_PER_CLAIM + 1), found)
        keys: list[SortKey] = [(job.due, job.seq, job.id) for job in due]
        complete = False
        if len(keys) <= MAX_PROMOTED_PER_CLAIM:
            most = max(1, count)
            later = [tuple(row) for row in await view.fetch(SQL.later, want.queue, wall, most + 1)]
            keys += later[:most]
            complete = len(later) <= most
        found[want] = KeyPrefix(tuple(keys), complete=complete)


async def load_blocked_lanes(
    view: TransactionView, requested: Mapping[queries.LaneWakeTimes, int], found: LoadedRows
) -> None:
    for want, count in requested.items():
        most = max(count, 8 * DEFAULT_PREFIX_ROWS)
        rows = await view.fetch(SQL.blocked_lanes, want.queue, most + 1)
        found[want] = _prefix_of([tuple(row) for row in rows], most)


async def load_lanes_blocked_by(
    view: TransactionView, requested: Iterable[queries.BlockedLanes], found: LoadedRows
) -> None:
    at = list(requested)
    rows = await view.fetch(
        SQL.lanes_blocked_by,
        [want.queue for want in at],
        [want.account_key[0] for want in at],
        [key_text(want.account_key[1]) for want in at],
    )
    blocked: dict[queries.BlockedLanes, list[str]] = {want: [] for want in at}
    for queue, pool, key, lane in rows:
        blocked[queries.BlockedLanes(queue, account_key(pool, key))].append(lane)
    for want, names in blocked.items():
        found[want] = tuple(names)


async def load_queues_blocked_by(
    view: TransactionView, requested: Iterable[queries.BlockedQueues], found: LoadedRows
) -> None:
    at = list(requested)
    pools, keys = [want.account_key[0] for want in at], [key_text(want.account_key[1]) for want in at]
    waiting: dict[queries.BlockedQueues, list[str]] = {want: [] for want in at}
    for pool, key, queue in await view.fetch(SQL.queues_blocked_by, pools, keys):
        waiting[queries.BlockedQueues(account_key(pool, key))].append(queue)
    for want, names in waiting.items():
        found[want] = tuple(names)


async def load_claim_candidates(
    view: TransactionView, requested: Iterable[queries.ClaimPrefetch], found: LoadedRows
) -> None:
    for want in requested:
        found[want] = None
        await _load_claim_candidates(view, want, found)


async def _load_claim_candidates(
    view: TransactionView, want: queries.ClaimPrefetch, found: LoadedRows
) -> None:
    queue, limit = want.queue, want.limit
    await load_queues(view, [queries.QueueByName(queue)], found)
    row: QueueSettingsRow | None = found[queries.QueueByName(queue)]
    if row is None:
        return
    await load_scheduled(view, {queries.ScheduledJobs(queue): 0}, found)
    await load_blocked_lanes(view, {queries.LaneWakeTimes(queue): 0}, found)
    expired = [
        lane for retry_at, lane in found[queries.LaneWakeTimes(queue)].first if retry_at <= view.numbers.boot
    ]
    await load_lanes(view, {queries.LaneByName(queue, lane): 0 for lane in expired}, found)
    # Batches that wait for more jobs: one more than this transaction can open is enough to know there are
    # more.
    rows = await view.fetch(SQL.waiting_batches, queue, BATCH_WAIT_KEY[0], want.lanes + len(expired) + 1)
    found[queries.BlockedLanes(queue, BATCH_WAIT_KEY)] = tuple(row["lane"] for row in rows)
    boot = view.numbers.boot
    groups = {
        group: of.block is None or not of.block.holds(boot) for group, of in row.groups.items() if of.size
    }
    for group, is_open in groups.items():  # of blocked groups only the head, to see whether it is more urgent
        await load_open_lanes(
            view, {queries.OpenLanesOfGroup(queue, group): want.lanes if is_open else 0}, found
        )
    opened = [group for group, is_open in groups.items() if is_open]
    candidates = {group: found[queries.OpenLanesOfGroup(queue, group)].first for group in opened}
    count = sum(min(limit, len(keys)) for keys in candidates.values()) + len(expired)
    jobs_per_lane = limit + 1 if count <= 1 else max(2, limit // count + 1)
    names = {key[3] for keys in candidates.values() for key in keys}
    if "" in names:
        await _load_plain_lane(view, queue, jobs_per_lane, found)
    await _load_heads(
        view, {(queue, lane): jobs_per_lane for lane in sorted({*names, *expired}) if lane}, limit, found
    )


async def _load_heads(
    view: TransactionView, counts: dict[LaneName, int], limit: int, found: LoadedRows
) -> None:
    """Loads lanes with their first jobs. `counts`: the number of jobs to load per lane. A batch lane gets
    more jobs, because one call takes several; a single lane gets enough for `limit` calls."""
    if not counts:
        return
    jobs = _by_lane(await view.fetch(_HEADS, *_counted(counts)))
    larger: dict[LaneName, int] = {}
    for at, of_lane in jobs.items():
        if (rule := of_lane[0].batching) is not None:
            most = min(MAX_BATCH_JOBS, rule.max_items * (counts[at] if len(counts) > 1 else limit))
            if most > counts[at] and len(of_lane) > counts[at]:
                larger[at] = most
    if larger:
        jobs |= _by_lane(await view.fetch(_HEADS, *_counted(larger)))
        counts = counts | larger
    for of_lane in jobs.values():
        found.update((queries.JobById(job.id), job) for job in of_lane)
    await _add_lanes(view, counts, {at: list(map(_key, of_lane)) for at, of_lane in jobs.items()}, found)


def _by_lane(rows: Iterable[Record]) -> dict[LaneName, list[Job]]:
    jobs: dict[LaneName, list[Job]] = defaultdict(list)
    for job in map(job_of, rows):
        jobs[job.queue, job.lane].append(job)
    return dict(jobs)
