"""Every order, index and count of a shard, made anew from its records."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import redis

from tests.servers.program import HOST
from tests.servers.redis import Redis
from tidemill.core.courses import Kind
from tidemill.core.job import Job
from tidemill.core.needs import group_of_lane
from tidemill.core.states import State
from tidemill.engine.changes import Moved
from tidemill.engine.wants import Beginning
from tidemill.stores.redis import keys, rows
from tidemill.stores.redis.course_writes import places
from tidemill.stores.redis.job_writes import write_job
from tidemill.stores.redis.records import in_lane, unpacked
from tidemill.stores.redis.writes import Writes

Shard = dict[str, Any]
RECOUNTED = ("counts", "expiring", "running_in", "reserved_at", "outlived")
KINDS = (
    *("page:", "ready:", "lane:", "scheduled:", "held:", "done:", "failed:", "cancelled:", "after:"),
    *("unique:", "groups:", "open:", "wakes:", "shut:", "waiting:"),
    *("parts:", "part_ends:", "done_parts:", "failed_parts:", "cancelled_parts:"),
    *("listed:", "dues:", "course_counts:", "stirred:", "stirs:"),
)


def wrong(server: Redis, root: str) -> list[str]:
    """What is there and should not be, or the other way round, in words for whoever reads the failure."""
    found = _read(server, root)
    jobs = [unpacked(id_.decode(), record) for id_, record in found.get("jobs", {}).items()]
    expected = _filed(jobs)
    _add_lanes(expected, found, jobs)
    _add_reserved(expected, found)
    _add_courses(expected, found)
    _add_stirs(expected, found)
    return [
        f"{name}: expected {expected.get(name)}, found {found.get(name)}"
        for name in sorted(expected.keys() | found.keys())
        if (name in RECOUNTED or name.startswith(KINDS))
        and _shown(expected.get(name)) != _shown(found.get(name))
    ]


def _read(server: Redis, root: str) -> Shard:
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


def _filed(jobs: list[Job]) -> Shard:
    """As if all of them came in just now, as they are."""
    writes, expected = Writes(), defaultdict[str, Any](dict)
    for job in jobs:
        write_job(writes, Moved(None, job))
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
            case "HINCRBY" | "TALLY":
                expected[str(key)][rest[0]] = rest[1]
    return expected


def _add_lanes(expected: Shard, found: Shard, jobs: list[Job]) -> None:
    lanes: dict[tuple[str, str], list[Job]] = defaultdict(list)
    for job in jobs:
        if job.state is State.READY and job.lane:
            lanes[job.queue, job.lane].append(job)
    waiting: Counter[tuple[str, str]] = Counter(_marks(found))
    sizes: Counter[tuple[str, str]] = Counter()
    for (queue, lane), ready in lanes.items():
        group, name = group_of_lane(lane), lane.encode()
        sizes[queue, group] += 1
        row = rows.lane_of(found[keys.lanes(queue)][name], Beginning())
        head = min(ready, key=lambda job: (job.priority, in_lane(job)))
        if row.shut is None:
            stands = row.served.to_bytes(6) + head.seq.to_bytes(6) + name
            expected[keys.open_lanes(queue, group)][stands] = float(head.priority)
        else:
            place = keys.place(row.shut.place)
            expected[keys.wakes(queue)][name] = row.shut.again
            expected[keys.shut(queue, place)] = set(expected[keys.shut(queue, place)]) | {name}
            waiting[place, queue] += 1
    for (queue, group), size in sizes.items():
        expected[keys.groups(queue)][group.encode()] = str(size).encode()
    for (place, queue), count in waiting.items():
        expected[keys.waiting(place)][queue.encode()] = str(count).encode()


def _marks(found: Shard) -> Iterator[tuple[str, str]]:
    for queue, text in found.get("marks", {}).items():
        for mark in rows.marks_of(text).values():
            yield keys.place(mark.place), queue.decode()


def _add_reserved(expected: Shard, found: Shard) -> None:
    held = (one for text in found.get("reserved", {}).values() for one in rows.reserved_of(text))
    for place, count in Counter(keys.place(one.place) for one in held).items():
        expected[keys.RESERVED_AT][place.encode()] = str(count).encode()


def _add_courses(expected: Shard, found: Shard) -> None:
    for kind in Kind:
        kept = found.get(keys.courses(kind), {})
        courses = [rows.course_of(kind, id_.decode(), text) for id_, text in kept.items()]
        for key, score, member in (place for course in courses for place in places(course)):
            expected[key][member.encode()] = score
        for state, count in Counter(course.state for course in courses).items():
            expected[keys.course_counts(kind)][state.encode()] = str(count).encode()


def _add_stirs(expected: Shard, found: Shard) -> None:
    """Only of courses that there are."""
    for number, text in found.get(keys.STIRS, {}).items():
        length, _, rest = text.decode().partition(":")
        name = rest.encode()[: int(length)].decode()
        kind, id_ = keys.course_of(name)
        if id_.encode() in found.get(keys.courses(kind), {}):
            expected[f"{keys.STIRS}:{name}"][number] = float(number)
            first = expected[keys.stirred(kind)].get(id_.encode(), float(number))
            expected[keys.stirred(kind)][id_.encode()] = min(first, float(number))


def _shown(row: Any) -> Any:
    """A count of nothing is none."""
    return {field: value for field, value in row.items() if value != b"0"} if isinstance(row, dict) else row
