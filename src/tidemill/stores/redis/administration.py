"""Describes, checks and compacts the store, and copies its content to or from another store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path

from tidemill.contract.copy import IdCopy, IdPage, JobCopy, StoreCopy, check_copies
from tidemill.contract.store import StoreFacts
from tidemill.core.filters import Filter
from tidemill.core.jobs import Job
from tidemill.core.states import FINAL
from tidemill.engine import copy as engine
from tidemill.engine import read_sets
from tidemill.errors import ConfigurationError
from tidemill.stores.redis import handshake, keys
from tidemill.stores.redis.consistency import (
    ExpectedIndex,
    RecordDigest,
    check_documents,
    check_pools,
    expected_indexes,
    failed_checks,
)
from tidemill.stores.redis.engine_runner import RedisEngineRunner
from tidemill.stores.redis.find import iter_jobs
from tidemill.stores.redis.handle import RedisHandle
from tidemill.stores.redis.handshake import SCHEMA_VERSION
from tidemill.stores.redis.job_codec import decode_job, split_member
from tidemill.stores.redis.protocol import CommandArgument
from tidemill.stores.redis.reader import read_details
from tidemill.stores.redis.rows import decode_known_id
from tidemill.stores.redis.scripts import load_script
from tidemill.stores.redis.shard import Shard, list_ready_lanes

GET, CHECK_COUNTS = map(load_script, ("get", "check_counts"))
MEMBERS_PER_CHECK = 200
RECORDS_PER_CHECK = 50
_DETAILS = ("attempts:", "logs:", "checkpoints:")


async def check(shard: Shard) -> tuple[str, ...]:
    queues = sorted(name.decode() for name in await shard.ask(b"HKEYS", shard.key(keys.QUEUES)))
    found = [sentence async for sentence in _check_records(shard)]
    for queue in queues:
        async for name in _check_indexes(shard, queue):
            found += [sentence async for sentence in _check_strays(shard, name)]
    found += [sentence async for sentence in _check_strays(shard, keys.EXPIRING)]
    found += await _check_counts(shard, queues)
    found += [sentence async for sentence in check_pools(shard)]
    found += [sentence async for sentence in check_documents(shard)]
    found += [sentence async for sentence in _check_orphans(shard)]
    return tuple(found)


async def _check_records(shard: Shard) -> AsyncIterator[str]:
    """Checks that each job is in the indexes for its state. Yields a sentence for each missing index
    entry."""
    cursor = b"0"
    while True:
        cursor, some = await shard.ask(b"HSCAN", shard.key(keys.JOBS), cursor, b"COUNT", RECORDS_PER_CHECK)
        jobs = [(id_.decode(), record) for id_, record in zip(some[::2], some[1::2], strict=True)]
        expected = [(job, list(expected_indexes(decode_job(*job)))) for job in jobs]
        for (id_, record), at in await failed_checks(shard, keys.JOBS, expected):
            state = decode_job(id_, record).state
            yield f"job {id_!r} is {state} but is not found as such in {at.key!r}"
        if cursor == b"0":
            return


async def _check_indexes(shard: Shard, queue: str) -> AsyncIterator[str]:
    yield keys.scheduled(queue)
    yield keys.running(queue)
    for state in sorted(FINAL):
        yield keys.ended(queue, state)
        yield keys.ended_flow_jobs(queue, state)
    for lane in await list_ready_lanes(shard, queue):
        yield keys.lane(queue, lane)


async def _check_strays(shard: Shard, name: str) -> AsyncIterator[str]:
    """Yields a sentence for each job that is in the index `name` but does not belong there."""
    skipped = 8 if name.startswith(("ready:", "lane:")) else 0
    cursor = b"0"
    while True:
        scan = b"HSCAN" if name.startswith("running:") else b"ZSCAN"
        cursor, found = await shard.ask(scan, shard.key(name), cursor, b"COUNT", MEMBERS_PER_CHECK)
        members = {split_member(member[skipped:])[1]: member for member in found[::2]}
        doubtful = [
            (record_digest, [ExpectedIndex("absent", name, members[record_digest[0]])])
            for record_digest in await _read_records(shard, list(members))
            if not _is_indexed(record_digest, name, members[record_digest[0]])
        ]
        for (id_, record), _ in await failed_checks(shard, keys.JOBS, doubtful):
            what = f"is {decode_job(id_, record).state}" if record else "does not exist"
            yield f"{name!r} lists the job {id_!r}, which {what}"
        if cursor == b"0":
            return


def _is_indexed(record_digest: RecordDigest, name: str, member: bytes) -> bool:
    id_, record = record_digest
    return bool(record) and any(
        (index.key, index.member) == (name, member) for index in expected_indexes(decode_job(id_, record))
    )


async def _read_records(shard: Shard, ids: Sequence[str]) -> list[RecordDigest]:
    reply = await shard.run(GET, *ids, repeatable=True) if ids else []
    return list(zip(ids, reply[::2], strict=True))


async def _check_counts(shard: Shard, queues: Sequence[str]) -> list[str]:
    found: list[str] = []
    for queue in queues:
        rows = await shard.run(CHECK_COUNTS, queue, repeatable=True)
        for what, says, has in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
            if says != has:
                found.append(f"queue {queue!r} counts {says} {what.decode()} but has {has}")
    _, says, has = await shard.run(CHECK_COUNTS, "", repeatable=True)
    return [*found, f"all queues together count {says} jobs but there are {has}"] if says != has else found


async def _check_orphans(shard: Shard) -> AsyncIterator[str]:
    """Yields a sentence for each Redis key with attempts, logs or checkpoints of a deleted job."""
    cursor = b"0"
    pattern = _escape_pattern(shard.root) + "*"
    while True:
        cursor, found = await shard.ask(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", 1000)
        names = [name.decode().removeprefix(shard.root) for name in found]
        jobs = {name: job for name in names if (job := _job_of(name))}
        records = dict(await _read_records(shard, sorted(set(jobs.values()))))
        orphans = ((name, job) for name, job in jobs.items() if not records[job])
        doubtful = [((job, b""), [ExpectedIndex("gone", name, "")]) for name, job in orphans]
        for (id_, _), at in await failed_checks(shard, keys.JOBS, doubtful):
            yield f"{at.key!r} remains of the job {id_!r}, which is gone"
        if cursor == b"0":
            return


def _job_of(name: str) -> str:
    return next((name.removeprefix(kind) for kind in _DETAILS if name.startswith(kind)), "")


def _escape_pattern(text: str) -> str:
    return "".join(f"\\{letter}" if letter in "*?[]^\\-" else letter for letter in text)


async def describe(handle: RedisHandle) -> StoreFacts:
    """Returns facts and warnings about the store (U1). `bytes`: the memory of all data on the server, not
    only of this store."""
    server = handshake.parse_server_info(await handle.shard.ask(b"INFO"))
    return StoreFacts(
        kind="redis",
        engine=server.engine,
        location=str(handle.address),
        schema=SCHEMA_VERSION,
        bytes=server.bytes,
        warnings=(*handshake.server_warnings(server), *handle.warnings()),
    )


def refuse_backup(handle: RedisHandle, target: Path) -> ConfigurationError:
    """Returns the error for a request to write a backup to the file `target`. The message names the Redis
    command to use instead (U3)."""
    node = handle.shard.connector.node
    where = "" if node is None else f" -s {node.path}" if node.path else f" -h {node.host} -p {node.port}"
    return ConfigurationError(
        f"{target}: a Redis server makes its own copies; run `redis-cli{where} --rdb {target}`, or BGSAVE "
        "and copy the server's dump.rdb"
    )


async def compact(handle: RedisHandle) -> None:
    """Asks the server to return freed memory to the operating system (U4). This has an effect only if the
    server's memory allocator supports it."""
    await handle.shard.ask(b"MEMORY", b"PURGE")


COPY_IN = load_script("copy_in")
IDS_PER_PAGE = 1000


async def copy_jobs(shard: Shard, after: int, limit: int) -> list[JobCopy]:
    """Returns up to `limit` jobs with their attempts, log lines and checkpoints, oldest first (U5). Only jobs
    whose sequence number (`Job.seq`) is above `after` are returned."""
    jobs: list[Job] = []
    async with aclosing(iter_jobs(shard, Filter(), newest_first=False, behind=after, enough=limit)) as found:
        async for job in found:
            jobs.append(job)
            if len(jobs) == limit:
                break
    details = await read_details(shard, [job.id for job in jobs])
    return [
        JobCopy(job=job, attempts=its.attempts, logs=its.logs, checkpoints=its.checkpoints)
        for job, its in zip(jobs, details, strict=True)
    ]


async def copy_ids(shard: Shard, cursor: str) -> IdPage:
    """Returns one page of remembered ids: ids of enqueue requests whose job was deleted or never created
    (U6). `cursor`: the cursor of HSCAN; empty for the first page."""
    wall, boot = await shard.read_clock()
    after, found = await shard.ask(b"HSCAN", shard.key(keys.KNOWN_IDS), cursor or "0", b"COUNT", IDS_PER_PAGE)
    known = {
        name.decode(): decode_known_id(name.decode(), text)
        for name, text in zip(found[::2], found[1::2], strict=True)
    }
    ids = tuple(
        IdCopy(request=request, verdict=entry.verdict, job=entry.id, fence=entry.fence, claim=entry.claim)
        for request, entry in known.items()
        if entry.term.wall > wall or entry.term.boot > boot
    )
    return IdPage(ids, None if after == b"0" else after.decode())


async def copy_in(runner: RedisEngineRunner, copies: StoreCopy) -> None:
    """Inserts the rows that were read from another store (U7)."""
    check_copies(copies)
    if copies.jobs or copies.ids or copies.queues or copies.pools or copies.documents:
        await runner.run(read_sets.copy_in(copies), lambda records: engine.copy_in(records, copies))
    words: list[CommandArgument] = [copies.fence]
    for arrival in copies.arrivals:
        words += (int(arrival.arrived * 1000), arrival.id, arrival.task, arrival.payload, arrival.options)
    await runner.shard.run(COPY_IN, *words)
