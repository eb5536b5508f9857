"""Finds jobs that match a filter. Reads in small chunks, so that no search blocks the server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from tidemill.contract.reader import JobPage
from tidemill.core.filters import (
    Filter,
    as_json_text,
    check_filter,
    fold_case,
    matches_filter,
    payload_search_text,
)
from tidemill.core.jobs import Job
from tidemill.core.states import FINAL, State
from tidemill.stores.redis import keys
from tidemill.stores.redis.job_codec import STATE_LETTERS, decode_job, split_member
from tidemill.stores.redis.protocol import CommandArgument
from tidemill.stores.redis.queues import counts
from tidemill.stores.redis.scripts import load_script
from tidemill.stores.redis.shard import Shard, list_ready_lanes, scan_hash, scan_sorted_set


def filter_arguments(job_filter: Filter) -> list[CommandArgument]:
    """Returns the filter as script arguments, for `lua/parts/record_filter.lua`."""
    letters = b"".join(STATE_LETTERS[State(state)] for state in job_filter.states or ())
    text = job_filter.text or ""
    words = _required_texts(job_filter)
    return [
        letters,
        job_filter.queue or "",
        *_time_arguments(job_filter),
        fold_case(as_json_text(text)),
        fold_case(text),
        len(words),
        *words,
        *(payload_search_text(*field) for field in job_filter.fields),
    ]


def _time_arguments(job_filter: Filter) -> list[CommandArgument]:
    """Returns the filter's time range as script arguments: the field ("created" or "due"), the start and the
    end. All three are empty if the filter has no range of these times."""
    since, until = ("" if at is None else repr(float(at)) for at in (job_filter.since, job_filter.until))
    if job_filter.time == "finished" or not (since or until):
        return ["", "", ""]
    return [job_filter.time, since, until]


def _required_texts(job_filter: Filter) -> list[str]:
    """Returns texts that the record of every matching job contains: the task, the key and the tag."""
    found = [] if job_filter.task is None else [job_filter.task]
    if job_filter.key:
        found.append(f'"lane":"{as_json_text(job_filter.key)}')
    if job_filter.tag is not None:
        found.append(msgspec.json.encode(job_filter.tag).decode())
    return found


SMALL_RESULT_SHARE = 0.25
"""Share of all jobs up to which collecting and sorting members is as fast as scanning all jobs."""
SMALL_NEXT_PAGE_SHARE = 0.02
"""The same share for pages after the first: each page collects the members again."""
MAX_SCANNED_LANES = 200
"""Lanes per search. Each lane is one more sorted set and one more request."""
MAX_COLLECTED_JOBS = 20_000
"""Members that one interactive page collects at most."""


async def collect_small_result(
    shard: Shard, job_filter: Filter, behind: int | None, *, bounded: bool
) -> list[bytes] | None:
    """Returns the index entries of all jobs in the filter's states, if they are few. Returns None if they are
    many; the caller then scans all jobs. `behind`: the cursor of the page. `bounded`: the search has a scan
    limit."""
    states = frozenset(State if job_filter.states is None else job_filter.states)
    by_end = job_filter.time == "finished" and (job_filter.since is not None or job_filter.until is not None)
    states &= FINAL if by_end else states
    known = await counts(shard)
    queue_names = [name for name in known if job_filter.queue in (None, name)]
    jobs = sum(known[name].get(state, 0) for name in queue_names for state in states)
    if not jobs:
        return []
    if by_end and bounded:
        return await _collect_by_end(shard, job_filter, queue_names, states)
    share = SMALL_RESULT_SHARE if behind is None or bounded else SMALL_NEXT_PAGE_SHARE
    most = share * sum(sum(of_queue.values()) for of_queue in known.values())
    if jobs > (min(most, MAX_COLLECTED_JOBS) if bounded else most):
        return None
    if len(states - FINAL) > 1 or State.WAITING in states:
        return None  # a job could change from one live state to the other unseen
    if State.READY in states and await _count_lanes(shard, queue_names) > MAX_SCANNED_LANES:
        return None
    found: dict[bytes, None] = {}
    for state in sorted(states, key=lambda state: state in FINAL):  # final ones last: a job may end now
        for name in queue_names:
            found |= dict.fromkeys(await _collect_members(shard, name, state, in_one_request=bounded))
    return list(found)


async def _collect_by_end(
    shard: Shard, job_filter: Filter, queues: Sequence[str], states: frozenset[State]
) -> list[bytes] | None:
    """Returns the index entries of the jobs that finished in the filter's time range; None if there are too
    many. Each index is read in one request."""
    since = b"-inf" if job_filter.since is None else repr(float(job_filter.since))
    until = b"+inf" if job_filter.until is None else f"({float(job_filter.until)!r}"
    indexes = [shard.key(index) for index in _ended_keys(queues, states)]
    if sum([int(await shard.ask(b"ZCOUNT", index, since, until)) for index in indexes]) > MAX_COLLECTED_JOBS:
        return None
    found: dict[bytes, None] = {}
    for index in indexes:
        found |= dict.fromkeys(await shard.ask(b"ZRANGEBYSCORE", index, since, until))
    return list(found)


def _ended_keys(queues: Sequence[str], states: frozenset[State]) -> Iterator[str]:
    for queue in queues:
        for state in sorted(states):
            yield keys.ended(queue, state)
            yield keys.ended_flow_jobs(queue, state)


async def _count_lanes(shard: Shard, queues: Sequence[str]) -> int:
    return sum([int(await shard.ask(b"HLEN", shard.key(keys.lanes(queue)))) for queue in queues])


async def _collect_members(shard: Shard, queue: str, state: State, *, in_one_request: bool) -> list[bytes]:
    """Returns the index entries of a queue's jobs in one state. `in_one_request=True`: read each index at
    once, because it is known to be small."""

    async def read(index: str) -> list[bytes]:
        return (
            await shard.ask(b"ZRANGE", shard.key(index), 0, -1)
            if in_one_request
            else await scan_sorted_set(shard, index)
        )

    if state is State.READY:
        lanes = await list_ready_lanes(shard, queue)
        return [member[8:] for lane in lanes for member in await read(keys.lane(queue, lane))]
    if state is State.SCHEDULED:
        return await read(keys.scheduled(queue))
    if state is State.RUNNING:
        return list({name: None async for name, _ in scan_hash(shard, keys.running(queue))})
    return [*await read(keys.ended(queue, state)), *await read(keys.ended_flow_jobs(queue, state))]


GET, SCAN_JOBS, FILTER_JOBS = load_script("get"), load_script("scan_jobs"), load_script("filter_jobs")

JOBS_PER_REQUEST = 200
"""Job records fetched by one call."""
FILTERED_JOBS_PER_REQUEST = 900
"""Job records examined by one call, if few of them are likely to match."""
MAX_NEWEST_JOBS = 1000
"""A search first examines this many of the newest jobs, because they often fill the page."""


class JobChunk(NamedTuple):
    """Some jobs that may match a filter. `examined`: how many jobs were examined. `last`: the sequence number
    of the last examined job; None if no job is left."""

    jobs: list[Job]
    examined: int
    last: int | None


class RedisJobSearch(NamedTuple):
    filter: Filter
    newest_first: bool
    behind: int | None
    enough: int
    """How many jobs the caller is likely to read."""
    scan_limit: int | None

    def is_behind(self, seq: int) -> bool:
        return self.behind is None or (seq < self.behind if self.newest_first else seq > self.behind)


async def get(shard: Shard, ids: Sequence[str]) -> list[Job | None]:
    """Returns one job per id, in the order of `ids`; None for an id that does not exist (R1)."""
    found: list[Job | None] = []
    while len(found) < len(ids):
        some = ids[len(found) : len(found) + JOBS_PER_REQUEST]
        reply = await shard.run(GET, *some, repeatable=True)
        found += [
            _decode_job(id_, record, lease) if record else None
            for id_, record, lease in zip(some, reply[::2], reply[1::2], strict=False)
        ]
    return found


async def find(
    shard: Shard, job_filter: Filter, limit: int, cursor: int | None, scan_limit: int | None
) -> JobPage:
    """Returns one page of the jobs that match `job_filter`, newest first (R2, R11). `cursor`: the sequence
    number (`Job.seq`) where the previous page ended. `scan_limit`: the largest number of jobs to examine."""
    search = RedisJobSearch(
        check_filter(job_filter), newest_first=True, behind=cursor, enough=limit + 1, scan_limit=scan_limit
    )
    if scan_limit is not None and job_filter.flow is None and not _needs_record(job_filter):
        newest = search._replace(scan_limit=MAX_NEWEST_JOBS)
        page = await _page(_scan_chunks(shard, newest), newest, limit)
        if not page.partial:
            return page
    return await _page(_iter_chunks(shard, search), search, limit)


async def _page(chunks: AsyncGenerator[JobChunk], search: RedisJobSearch, limit: int) -> JobPage:
    found: list[Job] = []
    examined = 0
    async with aclosing(chunks):
        async for chunk in chunks:
            examined += chunk.examined
            for job in chunk.jobs:
                if not matches_filter(search.filter, job):
                    continue
                if len(found) == limit:
                    return JobPage(tuple(found), found[-1].seq if found else None)
                found.append(job)
            if chunk.last is not None and search.scan_limit is not None and examined >= search.scan_limit:
                return JobPage(tuple(found), chunk.last, partial=len(found) < limit)
    return JobPage(tuple(found), None)


async def oldest_first(shard: Shard, job_filter: Filter, limit: int) -> list[str]:
    """Returns the ids of the oldest jobs that match `job_filter`, at most `limit`. `amend` changes them in
    this order (J70)."""
    found: list[str] = []
    async with aclosing(iter_jobs(shard, job_filter, newest_first=False, enough=limit)) as jobs:
        async for job in jobs:
            found.append(job.id)
            if len(found) >= limit:
                break
    return found


async def iter_jobs(
    shard: Shard,
    job_filter: Filter,
    *,
    newest_first: bool,
    behind: int | None = None,
    enough: int = JOBS_PER_REQUEST,
) -> AsyncGenerator[Job]:
    """Yields the jobs that match `job_filter`, in order of their sequence number. `behind`: the sequence
    number of the last job already read. `enough`: how many jobs the caller probably reads; it does not limit
    the result."""
    search = RedisJobSearch(check_filter(job_filter), newest_first, behind, enough, scan_limit=None)
    async with aclosing(_iter_chunks(shard, search)) as chunks:
        async for chunk in chunks:
            for job in chunk.jobs:
                if matches_filter(job_filter, job):
                    yield job


async def _iter_chunks(shard: Shard, search: RedisJobSearch) -> AsyncGenerator[JobChunk]:
    job_filter = search.filter
    if job_filter.states is not None and not job_filter.states:
        return
    if job_filter.ids is not None:
        yield JobChunk(await _chunks_by_id(shard, job_filter.ids, search), 0, None)
        return
    if job_filter.flow is not None:
        chunks = _chunks_of_flow(shard, job_filter.flow, search)
    elif (
        members := await collect_small_result(
            shard, job_filter, search.behind, bounded=search.scan_limit is not None
        )
    ) is not None:
        chunks = _chunks_by_member(shard, members, search)
    else:
        chunks = _scan_chunks(shard, search)
    async with aclosing(chunks):
        async for chunk in chunks:
            yield chunk


async def _chunks_by_id(shard: Shard, ids: Sequence[str], search: RedisJobSearch) -> list[Job]:
    found = [job for job in await get(shard, list(dict.fromkeys(ids))) if job is not None]
    found.sort(key=lambda job: job.seq, reverse=search.newest_first)
    return [job for job in found if search.is_behind(job.seq)]


async def _chunks_by_member(
    shard: Shard, members: Sequence[bytes], search: RedisJobSearch
) -> AsyncGenerator[JobChunk]:
    """Reads the jobs of the index entries `members` and yields the matching jobs in chunks, in order of their
    sequence numbers."""
    entries = sorted(members, reverse=search.newest_first)
    if search.behind is not None:
        entries = [member for member in entries if search.is_behind(int.from_bytes(member[:6]))]
    per_request = (
        FILTERED_JOBS_PER_REQUEST if _needs_record(search.filter) else min(search.enough, JOBS_PER_REQUEST)
    )
    arguments, done = filter_arguments(search.filter), 0
    while done < len(entries):
        most = (
            per_request if search.scan_limit is None else max(1, min(per_request, search.scan_limit - done))
        )
        some = [split_member(member)[1] for member in entries[done : done + most]]
        examined, *found = await shard.run(FILTER_JOBS, len(some), *some, *arguments, repeatable=True)
        done += int(examined)
        last = split_member(entries[done - 1])[0] if done < len(entries) else None
        yield JobChunk(_decode_jobs(found), int(examined), last)


async def _chunks_of_flow(shard: Shard, flow: str, search: RedisJobSearch) -> AsyncGenerator[JobChunk]:
    newest_first, behind = search.newest_first, search.behind
    command, end = (b"ZREVRANGEBYSCORE", b"-inf") if newest_first else (b"ZRANGEBYSCORE", b"+inf")
    cursor = (b"+inf" if newest_first else b"-inf") if behind is None else f"({behind}"
    left = search.scan_limit
    while True:
        most = JOBS_PER_REQUEST if left is None else max(1, min(JOBS_PER_REQUEST, left))
        some = await shard.ask(command, shard.key(keys.flow_jobs(flow)), cursor, end, b"LIMIT", 0, most + 1)
        entries = [split_member(member) for member in some[:most]]
        jobs = [job for job in await get(shard, [id_ for _, id_ in entries]) if job is not None]
        yield JobChunk(jobs, len(entries), entries[-1][0] if len(some) > most else None)
        if len(some) <= most:
            return
        cursor = f"({entries[-1][0]}"
        left = None if left is None else left - len(entries)


async def _scan_chunks(shard: Shard, search: RedisJobSearch) -> AsyncGenerator[JobChunk]:
    cursor: bytes | str = "" if search.behind is None else str(search.behind)
    order = "newest" if search.newest_first else "oldest"
    prefix, enough = search.filter.id_prefix or "", min(search.enough, JOBS_PER_REQUEST)
    arguments, left = filter_arguments(search.filter), search.scan_limit
    while True:
        most = FILTERED_JOBS_PER_REQUEST if left is None else max(1, min(FILTERED_JOBS_PER_REQUEST, left))
        reply = await shard.run(SCAN_JOBS, order, cursor, prefix, enough, most, *arguments, repeatable=True)
        cursor, examined, *found = reply
        yield JobChunk(_decode_jobs(found), int(examined), int(cursor) if cursor else None)
        if not cursor:
            return
        left = None if left is None else left - int(examined)


def _decode_jobs(found: Sequence[bytes]) -> list[Job]:
    return [
        _decode_job(id_.decode(), record, lease)
        for id_, record, lease in zip(found[::3], found[1::3], found[2::3], strict=True)
    ]


def _needs_record(job_filter: Filter) -> bool:
    """True if the filter needs fields that are in no index, so that the record of each job must be read."""
    return job_filter != Filter(queue=job_filter.queue, states=job_filter.states, flow=job_filter.flow)


def _decode_job(id_: str, record: bytes, lease: bytes) -> Job:
    return decode_job(id_, record, float(lease) if lease else None)
