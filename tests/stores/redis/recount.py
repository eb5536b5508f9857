"""Rebuilds every index and count of a shard from its records."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import redis

from tests.servers.program import HOST
from tests.servers.redis import Redis
from tidemill.core.documents import DocumentKind
from tidemill.core.jobs import Job
from tidemill.core.needs import lane_group
from tidemill.core.states import State
from tidemill.engine.changes import JobUpdate
from tidemill.engine.queries import KeyPrefix
from tidemill.stores.redis import keys, rows
from tidemill.stores.redis.command_batch import CommandBatch, document_indexes, write_job
from tidemill.stores.redis.job_codec import decode_job, lane_member

Shard = dict[str, Any]
RECOUNTED = ("counts", "expiring", "running_by_key", "open_reservations", "document_expiry")
KINDS = (
    *("page:", "ready:", "lane:", "scheduled:", "held:", "done:", "failed:", "cancelled:", "successors:"),
    *("unique:", "lane_counts:", "open_lanes:", "blocked_lanes:", "blocked_by:", "blocked_queues:"),
    *("flow_jobs:", "flow_job_states:", "done_flow_jobs:", "failed_flow_jobs:", "cancelled_flow_jobs:"),
    *("document_index:", "due_documents:", "document_counts:", "marked_documents:", "worklist:"),
)


def find_differences(server: Redis, root: str) -> list[str]:
    """Returns the differences between the found and the expected keys, as sentences."""
    found = _read_keys(server, root)
    jobs = [decode_job(id_.decode(), record) for id_, record in found.get("jobs", {}).items()]
    expected = _indexes_of(jobs)
    _add_lanes(expected, found, jobs)
    _add_reservation_counts(expected, found)
    _add_documents(expected, found)
    _add_work_items(expected, found)
    return [
        f"{name}: expected {expected.get(name)}, found {found.get(name)}"
        for name in sorted(expected.keys() | found.keys())
        if (name in RECOUNTED or name.startswith(KINDS))
        and _without_zeros(expected.get(name)) != _without_zeros(found.get(name))
    ]


def _read_keys(server: Redis, root: str) -> Shard:
    found: Shard = {}
    with redis.Redis(host=HOST, port=server.port) as client:
        for key in client.scan_iter(match=f"{root}*", count=1000):
            name = key.decode().removeprefix(root)
            match client.type(key):
                case b"hash":
                    found[name] = client.hgetall(key)
                case b"zset":
                    found[name] = dict(client.zrange(key, 0, -1, withscores=True))
                case b"set":
                    found[name] = client.smembers(key)
    return found


def _indexes_of(jobs: list[Job]) -> Shard:
    """Returns the indexes that the jobs would have if they were all written now."""
    writes, expected = CommandBatch(), defaultdict[str, Any](dict)
    for job in jobs:
        write_job(writes, JobUpdate(None, job))
    words = list(writes.words())
    at = 1
    for _ in range(int(words[0])):
        command, key, *given = words[at + 1 : at + 1 + int(words[at])]
        at += 1 + int(words[at])
        rest = [one if isinstance(one, bytes) else str(one).encode() for one in given]
        match command:
            case "ZADD":
                expected[str(key)].update(zip(rest[1::2], map(float, rest[::2]), strict=True))
            case "HSET":
                expected[str(key)].update(zip(rest[::2], rest[1::2], strict=True))
            case "SADD":
                expected[str(key)] = set(expected[str(key)]) | set(rest)
            case "HINCRBY" | "COUNT_OR_DELETE":
                expected[str(key)][rest[0]] = rest[1]
    return expected


def _add_lanes(expected: Shard, found: Shard, jobs: list[Job]) -> None:
    lanes: dict[tuple[str, str], list[Job]] = defaultdict(list)
    for job in jobs:
        if job.state is State.READY and job.lane:
            lanes[job.queue, job.lane].append(job)
    waiting: Counter[tuple[str, str]] = Counter(_blocks(found))
    sizes: Counter[tuple[str, str]] = Counter()
    for (queue, lane), ready in lanes.items():
        group, name = lane_group(lane), lane.encode()
        sizes[queue, group] += 1
        row = rows.decode_lane(found[keys.lanes(queue)][name], KeyPrefix())
        head = min(ready, key=lambda job: (job.priority, lane_member(job)))
        if row.block is None:
            member = row.served.to_bytes(6) + head.seq.to_bytes(6) + name
            expected[keys.open_lanes(queue, group)][member] = float(head.priority)
        else:
            account = keys.account_name(row.block.account_key)
            expected[keys.blocked_lanes(queue)][name] = row.block.retry_at
            expected[keys.blocked_by(queue, account)] = set(expected[keys.blocked_by(queue, account)]) | {
                name
            }
            waiting[account, queue] += 1
    for (queue, group), size in sizes.items():
        expected[keys.lane_counts(queue)][group.encode()] = str(size).encode()
    for (account, queue), count in waiting.items():
        expected[keys.blocked_queues(account)][queue.encode()] = str(count).encode()


def _blocks(found: Shard) -> Iterator[tuple[str, str]]:
    for queue, text in found.get("blocks", {}).items():
        for mark in rows.decode_blocks(text).values():
            yield keys.account_name(mark.account_key), queue.decode()


def _add_reservation_counts(expected: Shard, found: Shard) -> None:
    held = (one for text in found.get("reservations", {}).values() for one in rows.decode_reservations(text))
    for account, count in Counter(keys.account_name(one.account_key) for one in held).items():
        expected[keys.OPEN_RESERVATIONS][account.encode()] = str(count).encode()


def _add_documents(expected: Shard, found: Shard) -> None:
    for kind in DocumentKind:
        kept = found.get(keys.documents(kind), {})
        documents = [rows.decode_document(kind, id_.decode(), text) for id_, text in kept.items()]
        for key, score, member in (entry for document in documents for entry in document_indexes(document)):
            expected[key][member.encode()] = score
        for state, count in Counter(document.state for document in documents).items():
            expected[keys.document_counts(kind)][state.encode()] = str(count).encode()


def _add_work_items(expected: Shard, found: Shard) -> None:
    """Adds the work items of documents that exist."""
    for number, text in found.get(keys.WORKLIST, {}).items():
        length, _, rest = text.decode().partition(":")
        name = rest.encode()[: int(length)].decode()
        kind, id_ = keys.parse_document(name)
        if id_.encode() in found.get(keys.documents(kind), {}):
            expected[f"{keys.WORKLIST}:{name}"][number] = float(number)
            first = expected[keys.marked_documents(kind)].get(id_.encode(), float(number))
            expected[keys.marked_documents(kind)][id_.encode()] = min(first, float(number))


def _without_zeros(row: Any) -> Any:
    """A row without counts of zero."""
    return {field: value for field, value in row.items() if value != b"0"} if isinstance(row, dict) else row
