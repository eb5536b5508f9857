"""Requests rows for the engine from load.lua and decodes the replies."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha1
from typing import Any

from msgspec.structs import replace

from tidemill.core.batch_start import BATCH_WAIT_KEY
from tidemill.engine import queries
from tidemill.engine.indexes import SortKey
from tidemill.engine.queries import KeyPrefix, LaneGroupRow, LaneRow, RowQuery
from tidemill.engine.records import KnownWorker
from tidemill.stores.redis import keys, rows
from tidemill.stores.redis import rows as redis_rows
from tidemill.stores.redis.job_codec import decode_job, split_member
from tidemill.stores.redis.protocol import CommandArgument
from tidemill.stores.redis.shard import MAX_JOBS_PER_TRANSACTION

MAX_FIELDS_PER_COMMAND = 1000

CommandWords = tuple[CommandArgument, ...]


class LoadRequest:
    """One request for many rows. `requested`: the queries, each with the number of list entries to load; 0
    means the default."""

    def __init__(self, requested: Mapping[RowQuery, int]) -> None:
        self._requests: list[tuple[CommandWords, Sequence[RowQuery]]] = []
        by_key: dict[str, list[tuple[CommandArgument, RowQuery]]] = defaultdict(list)
        for query, count in requested.items():
            if isinstance(query, queries.JobById):
                by_key[keys.JOBS].append((query.id, query))
            elif (field := hash_field_of(query)) is not None:
                by_key[field[0]].append((field[1], query))
            else:
                self._requests.append((request_words(query, count), (query,)))
        for key, fields in by_key.items():
            command = ("jobs",) if key == keys.JOBS else ("command", "HMGET", key)
            for at in range(0, len(fields), MAX_FIELDS_PER_COMMAND):
                some = fields[at : at + MAX_FIELDS_PER_COMMAND]
                words = (*command, *(field for field, _ in some))
                self._requests.append((words, [query for _, query in some]))

    def words(self) -> Iterator[CommandArgument]:
        for words, _ in self._requests:
            yield len(words)
            yield from words

    def pair_replies(self, answers: Sequence[Any]) -> Iterator[tuple[RowQuery, Any]]:
        for (words, row_queries), answer in zip(self._requests, answers, strict=True):
            if words[0] == "jobs" or words[1] == "HMGET":
                yield from zip(row_queries, answer, strict=True)
            else:
                yield row_queries[0], answer


def request_words(query: RowQuery, count: int) -> CommandWords:  # noqa: C901, PLR0912 - a line for each kind
    match query:
        case queries.QueueByName(name):
            return "queue", name
        case queries.LaneByName(queue, lane):
            return "lane", queue, lane, count
        case queries.OpenLanesOfGroup(queue, group):
            return "open_lanes", queue, group, count
        case queries.ScheduledJobs(queue):
            return "scheduled", queue, count
        case queries.LaneWakeTimes(queue):
            return "blocked_lanes", queue, count
        case queries.ClaimPrefetch(queue, limit, lanes):
            return (
                "claim_candidates",
                queue,
                limit,
                lanes,
                keys.blocked_by(queue, keys.account_name(BATCH_WAIT_KEY)),
            )
        case queries.OverdueJobs(dead):
            return "overdue", MAX_JOBS_PER_TRANSACTION, *dead
        case queries.UniqueHolders(queue, key):
            return "command", "ZRANGE", keys.unique(queue, key), 0, -1
        case queries.JobSuccessors(job):
            return "command", "ZRANGE", keys.successors(job), 0, -1
        case queries.WorkerRunningJobs(worker):
            return "command", "SMEMBERS", keys.held(worker)
        case queries.BlockedLanes(queue, account):
            return "command", "SMEMBERS", keys.blocked_by(queue, keys.account_name(account))
        case queries.BlockedQueues(account):
            return "command", "HKEYS", keys.blocked_queues(keys.account_name(account))
        case queries.PoolNames():
            return "command", "HKEYS", keys.POOLS
        case queries.PoolAccountKeys(pool):
            return "command", "HKEYS", keys.accounts(pool)
        case queries.PoolClaims():
            return "command", "HGETALL", keys.RESERVATIONS
        case queries.AbandonedClaims():
            return "command", "HGETALL", keys.ABANDONED_UNITS
        case queries.UnconfirmedSince(claim):
            return "command", "ZSCORE", keys.UNCONFIRMED_UNITS, keys.claim_name(claim)
        case queries.JobCheckpoints(job):
            return "command", "HGETALL", keys.checkpoints(job)
        case queries.ArrivalBySeq(seq):
            return (
                "command",
                "XRANGE",
                keys.ARRIVALS,
                rows.arrival_entry_id(seq),
                rows.arrival_entry_id(seq),
            )
        case queries.WorkerById(id_):
            return "worker", id_
    raise AssertionError(query)


def hash_field_of(query: RowQuery) -> tuple[str, CommandArgument] | None:
    """Returns (Redis key, field) if the row is stored as one field of a hash; None for other rows."""
    match query:
        case queries.KnownIdByRequest(request):
            return keys.KNOWN_IDS, request
        case queries.KeyRunningCount(queue, key):
            return keys.RUNNING_BY_KEY, keys.running_by_key(queue, key)
        case queries.StateCount(queue, state):
            return keys.COUNTS, keys.count(state, queue)
        case queries.PoolByName(name):
            return keys.POOLS, name
        case queries.AccountByKey((pool, key)):
            return keys.accounts(pool), key or ""
        case queries.ClaimReservations(claim):
            return keys.RESERVATIONS, keys.claim_name(claim)
        case queries.AccountReservationCount(account):
            return keys.OPEN_RESERVATIONS, keys.account_name(account)
        case queries.DocumentById(kind, id_):
            return keys.documents(kind), id_
    return None


MAX_COMPARED_BYTES = 1000
"""A longer value is compared by its digest."""

LoadedRow = tuple[RowQuery, Any, list[CommandWords]]
"""A query, its row, and the checks that must still hold at the commit."""
LoadedRows = Iterator[LoadedRow]


def decode_reply(query: RowQuery, answer: Any, boot: float) -> LoadedRows:  # noqa: C901, PLR0912 - a line for each kind
    """Yields (query, row, checks) for each row in the reply to `query`. `commit.lua` runs the checks before
    it writes. `boot`: the current boot time."""
    match query:
        case queries.JobById(id_):
            yield _decode_job(id_, answer)
        case queries.QueueByName():
            yield _decode_queue(query, answer)
        case queries.LaneByName():
            yield from _decode_lane(query, answer)
        case queries.OpenLanesOfGroup():
            yield query, _decode_prefix(answer, _decode_open_lane), []
        case queries.ScheduledJobs():
            yield query, _decode_prefix(answer, lambda member, due: (due, *split_member(member))), []
        case queries.LaneWakeTimes():
            yield query, _decode_prefix(answer, lambda lane, retry_at: (retry_at, lane.decode())), []
        case queries.ClaimPrefetch():
            yield query, None, []
            for words, reply in answer:
                yield from _decode_claim_candidates(query.queue, words, reply, boot)
        case queries.JobCheckpoints(job):
            yield _decode_checkpoints(job, answer)
        case queries.WorkerById():
            yield _decode_worker(query, answer)
        case queries.ArrivalBySeq(seq):
            row = redis_rows.decode_arrival(*answer[0]) if answer else None
            yield query, row, [("entry", keys.ARRIVALS, redis_rows.arrival_entry_id(seq), len(answer))]
        case queries.UnconfirmedSince(claim):
            check = ("score", keys.UNCONFIRMED_UNITS, keys.claim_name(claim), answer or "")
            yield query, None if answer is None else float(answer), [check]
        case _:
            yield (
                _decode_field(query, field, answer)
                if (field := hash_field_of(query))
                else _decode_list(query, answer, boot)
            )


def _decode_list(query: RowQuery, answer: Sequence[bytes], boot: float) -> LoadedRow:
    """Returns (query, row, checks) for a reply that is a list. `commit.lua` runs the checks before it writes.
    Some checks compare only the length of the list."""
    match query:
        case queries.OverdueJobs():
            members = sorted(map(split_member, answer))
            return query, tuple(id_ for _, id_ in members), []
        case queries.UniqueHolders() | queries.JobSuccessors():
            check = ("order", request_words(query, 0)[2], *answer)
            return query, tuple(split_member(member)[1] for member in answer), [check]
        case queries.WorkerRunningJobs(worker):
            members = sorted(map(split_member, answer))
            return query, tuple(id_ for _, id_ in members), [("members", keys.held(worker), *answer)]
        case queries.PoolAccountKeys(pool):
            accounts = tuple((pool, key.decode() or None) for key in answer)
            return query, accounts, [("fields", keys.accounts(pool), len(answer))]
        case queries.PoolClaims(pool):
            held = (
                (keys.parse_claim_name(name), rows.decode_reservations(text)) for name, text in _pairs(answer)
            )
            return (
                query,
                tuple(
                    claim
                    for claim, held_units in held
                    if any(reserved.pool == pool for reserved in held_units)
                ),
                [],
            )
        case queries.AbandonedClaims(dead):
            left = (
                (keys.parse_claim_name(name), rows.decode_abandoned_units(text))
                for name, text in _pairs(answer)
            )
            return query, tuple(claim for claim, to in left if to.lease <= boot or to.worker in dead), []
    return query, tuple(name.decode() for name in answer), _all_counted(query, len(answer))


def _all_counted(query: RowQuery, count: int) -> list[CommandWords]:
    """Returns a check of the list's length, if the list has the lanes or queues that an account blocks.
    Without the check, a lane blocked meanwhile would stay blocked."""
    match query:
        case queries.BlockedQueues(account):
            return [("fields", keys.blocked_queues(keys.account_name(account)), count)]
        case queries.BlockedLanes(queue, account) if account != BATCH_WAIT_KEY:
            return [("size", keys.blocked_by(queue, keys.account_name(account)), count)]
    return []


def _decode_claim_candidates(queue: str, words: Sequence[bytes], answer: Any, boot: float) -> LoadedRows:
    kind, *rest = (word.decode() for word in words)
    match kind, *rest:
        case "queue", _:
            yield from decode_reply(queries.QueueByName(queue), answer, boot)
        case "scheduled", *_:
            yield from decode_reply(queries.ScheduledJobs(queue), answer, boot)
        case "blocked_lanes", *_:
            yield from decode_reply(queries.LaneWakeTimes(queue), answer, boot)
        case "open_lanes", _, group, _:
            yield from decode_reply(queries.OpenLanesOfGroup(queue, group), answer, boot)
        case "command", "SMEMBERS", _:
            yield from decode_reply(queries.BlockedLanes(queue, BATCH_WAIT_KEY), answer, boot)
        case "lane", _, lane, _:
            yield from decode_reply(queries.LaneByName(queue, lane), answer, boot)
        case _:
            for id_, record in zip(rest, answer, strict=True):
                yield _decode_job(id_, record)


def _decode_job(id_: str, answer: Sequence[Any]) -> LoadedRow:
    record, lease = (*answer, None, None)[:2]
    checks = [_unchanged_check(keys.JOBS, id_, record)]
    if record is None:
        return queries.JobById(id_), None, checks
    job = decode_job(id_, record, None if lease is None else float(lease))
    if lease is not None:
        checks.append(("hash", keys.running(job.queue), record[3:9] + id_.encode(), lease))
    return queries.JobById(id_), job, checks


def _decode_queue(query: queries.QueueByName, answer: Sequence[Any]) -> LoadedRow:
    text, marked, sizes, is_plain = answer
    checks = [
        _unchanged_check(keys.QUEUES, query.name, text),
        _unchanged_check(keys.BLOCKS, query.name, marked),
    ]
    if text is None:
        return query, None, checks
    marks = {} if marked is None else rows.decode_blocks(marked)
    lanes = {group.decode(): int(size) for group, size in _pairs(sizes)}
    if is_plain:
        lanes[""] = lanes.get("", 0) + 1
    names = lanes.keys() | marks.keys()
    groups = {group: LaneGroupRow(lanes.get(group, 0), marks.get(group)) for group in names}
    return query, replace(rows.decode_queue(text), groups=groups), checks


def _decode_lane(query: queries.LaneByName, answer: Sequence[Any]) -> LoadedRows:
    """Yields the lane and its first jobs. The lane '' (jobs without key, pool or batch) gets no check,
    because many claims change it at the same time."""
    text, total, members, records = answer
    jobs = _decode_prefix((total, members), _decode_lane_member)
    for key, record in zip(jobs.first, records, strict=False):
        yield _decode_job(key[-1], (record,))
    if query.lane == "":
        yield query, LaneRow(int(text or 0), jobs=jobs) if total else None, []
    else:
        check = _unchanged_check(keys.lanes(query.queue), query.lane, text)
        yield query, None if text is None else rows.decode_lane(text, jobs), [check]


def _decode_lane_member(member: bytes, priority: float) -> SortKey:
    (due,) = struct.unpack_from(">d", member)
    return int(priority), due, *split_member(member[8:])


def _decode_open_lane(member: bytes, priority: float) -> SortKey:
    return int(priority), int.from_bytes(member[:6]), int.from_bytes(member[6:12]), member[12:].decode()


def _decode_prefix(answer: Sequence[Any], key: Callable[[bytes, float], SortKey]) -> KeyPrefix:
    total, members = answer
    first = tuple(key(member, float(score)) for member, score in _pairs(members))
    return KeyPrefix(first, complete=len(first) == total)


def _decode_checkpoints(job: str, answer: Sequence[bytes]) -> LoadedRow:
    key = keys.checkpoints(job)
    checks: list[CommandWords] = [("fields", key, len(answer) // 2)]
    checks += [_unchanged_check(key, field, text) for field, text in _pairs(answer)]
    in_order = sorted(text for _, text in _pairs(answer))
    return queries.JobCheckpoints(job), tuple(map(rows.decode_checkpoint, in_order)), checks


def _decode_worker(query: queries.WorkerById, answer: Sequence[Any]) -> LoadedRow:
    text, lease, number = answer
    checks = [
        _unchanged_check(keys.WORKERS, query.id, text),
        _unchanged_check(keys.CLAIM_NUMBERS, query.id, number),
        ("score", keys.WORKER_LEASES, query.id, lease or ""),
    ]
    if text is None:
        return query, None, checks
    return query, KnownWorker(rows.decode_worker(query.id, text), float(lease), int(number)), checks


def _decode_field(query: RowQuery, field: tuple[str, CommandArgument], text: bytes | None) -> LoadedRow:
    if isinstance(query, queries.KeyRunningCount | queries.StateCount | queries.AccountReservationCount):
        return query, int(text or 0), [("count", *field, int(text or 0))]
    return query, _decode_row(query, text), [_unchanged_check(*field, text)]


def _decode_row(query: RowQuery, text: bytes | None) -> Any:
    if text is None:
        return () if isinstance(query, queries.ClaimReservations) else None
    match query:
        case queries.KnownIdByRequest(request):
            return rows.decode_known_id(request, text)
        case queries.PoolByName():
            return rows.decode_pool(text)
        case queries.AccountByKey():
            return rows.decode_account(text)
        case queries.ClaimReservations():
            return rows.decode_reservations(text)
        case queries.DocumentById(kind, id_):
            return rows.decode_document(kind, id_, text)
    raise AssertionError(query)


def _unchanged_check(key: str, field: CommandArgument, text: bytes | None) -> CommandWords:
    if text is None:
        return "none", key, field
    if len(text) > MAX_COMPARED_BYTES:
        return "digest", key, field, sha1(text, usedforsecurity=False).hexdigest()
    return "hash", key, field, text


def _pairs(flat: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    return zip(flat[::2], flat[1::2], strict=True)
