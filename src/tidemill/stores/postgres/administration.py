"""Describes, checks, compacts and vacuums the store, and copies its content to or from another store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import msgspec

from tidemill.contract.copy import IdCopy, IdPage, JobCopy, StoreCopy
from tidemill.contract.jobs import Arrival
from tidemill.contract.store import StoreFacts
from tidemill.core.accounts import Account
from tidemill.core.ledger import HeldReservation
from tidemill.core.pool_statistics import wrong_counts
from tidemill.core.pools import PoolSettings
from tidemill.core.queues import InsertVerdict
from tidemill.engine import copy, read_sets
from tidemill.errors import ConfigurationError
from tidemill.stores.postgres import reader
from tidemill.stores.postgres.connection import PostgresConnection
from tidemill.stores.postgres.engine_runner import PostgresEngineRunner
from tidemill.stores.postgres.rows import COLUMNS, job_of
from tidemill.stores.postgres.statements import load_statements, quote_name
from tidemill.stores.postgres.transaction import PostgresTransaction

SQL = load_statements("maintenance")
COMPACT_TIMEOUT_SECONDS = 3600.0
"""Time limit for reading or rewriting the whole store."""
LONG_TRANSACTION_SECONDS = 300.0
"""A transaction open for longer than this is reported."""
HIGH_CONNECTION_SHARE = 0.9

_ACCOUNT = msgspec.json.Decoder(Account)
_RESERVED = msgspec.json.Decoder(HeldReservation)
_DECLARED = msgspec.json.Decoder(PoolSettings)


async def describe(connection: PostgresConnection) -> StoreFacts:
    facts = (await connection.fetch(SQL.server_info, connection.address.schema))[0]
    oldest = await connection.fetch(SQL.oldest)
    return StoreFacts(
        kind="postgresql",
        engine=f"PostgreSQL {facts['server']} (asyncpg {asyncpg.__version__})",
        location=f"{connection.address}, schema {connection.address.schema}",
        schema=facts["version"],
        bytes=facts["bytes"],
        warnings=tuple(_warnings(connection, facts, oldest)),
    )


def _warnings(
    connection: PostgresConnection, facts: asyncpg.Record, oldest: list[asyncpg.Record]
) -> Iterator[str]:
    if connection.wakeups.is_pooled:
        yield (
            "a pooler stands before the server, and no notification passes it: idle workers find new jobs "
            "only when they look, every second or so; give workers the server's own address"
        )
    if not facts["flushes"]:
        yield "fsync is off: a crash of the server's machine can damage everything; set fsync = on"
    if not facts["waits"]:
        yield (
            "synchronous_commit is off: a crash of the server forgets jobs that were accepted just before; "
            "set synchronous_commit = on for this database"
        )
    if not facts["vacuums"]:
        yield "autovacuum is off: tables grow without end; set autovacuum = on"
    if facts["connected"] > HIGH_CONNECTION_SHARE * facts["connections"]:
        yield (
            f"{facts['connected']} of {facts['connections']} connections are taken, and the next process may "
            "get none; raise max_connections, put a pooler before it, or allow every process fewer with "
            "?connections="
        )
    for row in oldest:
        if row["seconds"] > LONG_TRANSACTION_SECONDS:
            who = f"{row['pid']} ({row['application_name'] or 'no name'})"
            yield (
                f"the transaction of process {who} is open for {row['seconds'] / 60:.0f} minutes: until it "
                "ends no dead row can be removed, and tables grow; end it, or see what it waits for"
            )


async def check(connection: PostgresConnection) -> tuple[str, ...]:
    """Returns one sentence for each inconsistency; empty if the store is sound. Reads from one snapshot and
    locks no jobs, so workers go on running jobs during the check."""

    async def read(transaction: PostgresTransaction) -> tuple[str, ...]:
        await transaction.fetch(SQL.use_snapshot)
        await transaction.fetch(SQL.avoid_nested_loops)
        return tuple([sentence async for sentence in _find_damage(transaction)])

    return await connection.run(read, time_limit=COMPACT_TIMEOUT_SECONDS)


async def _find_damage(transaction: PostgresTransaction) -> AsyncIterator[str]:
    for row in await transaction.fetch(SQL.wrong_counts):
        yield f"queue {row['queue']!r} counts {row['stored'] or 0} {row['state']} jobs but has {row['has']}"
    for row in await transaction.fetch(SQL.lost_lanes):
        yield f"queue {row['queue']!r} has ready jobs with the key {row['lane']!r} that no worker would find"
    for row in await transaction.fetch(SQL.wrong_heads):
        yield f"queue {row['queue']!r} does not start the jobs with the key {row['lane']!r} in their order"
    for row in await transaction.fetch(SQL.misplaced_jobs):
        yield f"job {row['id']!r} is not in the table ready exactly when it is ready and unclaimed"
    for row in await transaction.fetch(SQL.wrong_claim_counts):
        yield f"the claim with fence {row['fence']} counts {row['open_jobs']} jobs and has {row['jobs']}"
    for row in await transaction.fetch(SQL.orphaned_reservations):
        yield f"pool {row['pool']!r} keeps units for job {row['job']!r}, which does not run with them"
    for row in await transaction.fetch(SQL.pools):
        for sentence in _check_account(row):
            yield sentence
    async for sentence in _find_orphans(transaction):
        yield sentence


async def _find_orphans(transaction: PostgresTransaction) -> AsyncIterator[str]:
    for row in await transaction.fetch(SQL.stale_work):
        yield f"{row['worklist']} job changes are kept of {row['documents']} {row['kind']}s that are gone"
    for row in await transaction.fetch(SQL.orphans):
        if row["kept"]:
            yield f"{row['kept']} {row['what']} are kept of {row['jobs']} jobs that are gone"


def _check_account(row: asyncpg.Record) -> Iterator[str]:
    at = f"{row['pool']} ({row['key']})" if row["key"] else row["pool"]
    limits = _DECLARED.decode(row["declared"]).limits
    reservations = [_RESERVED.decode(text).reservation for text in row["reserved"]]
    return wrong_counts(at, limits, _ACCOUNT.decode(row["account"]).state, reservations)


def refuse_backup(connection: PostgresConnection, target: Path) -> ConfigurationError:
    schema = connection.address.schema
    return ConfigurationError(
        f"{target}: PostgreSQL has its own tool for this: pg_dump --format=custom --schema={schema} "
        f"--file={target.name} DATABASE, and pg_restore to bring it back"
    )


async def compact(connection: PostgresConnection) -> None:
    """Rewrites every table without its free space (VACUUM FULL). A table is locked while it is rewritten."""
    schema = connection.address.schema
    tables = [row["name"] for row in await connection.fetch(SQL.tables, schema)]
    for table in tables:
        await connection.execute_alone(
            f"VACUUM (FULL, ANALYZE) {quote_name(schema)}.{quote_name(table)}",
            time_limit=COMPACT_TIMEOUT_SECONDS,
        )


MIN_DEAD_ROWS, MIN_DEAD_SHARE = 1000, 0.02
"""A table is vacuumed if it has more dead rows than this, plus this share of its live rows."""
REST_FACTOR = 10
"""A table rests this many times as long as its vacuum took: vacuums use at most a tenth of a core."""
USELESS_VACUUM_SHARE = 0.5
"""A vacuum that leaves more than this share of the dead rows was useless."""
USELESS_VACUUM_PAUSE_SECONDS = 60.0
"""Pause after a useless vacuum: an open transaction keeps the dead rows."""
VACUUM_TIMEOUT_SECONDS = 300.0


class TableVacuum:
    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection
        self._rest_until: dict[str, float] = {}

    async def run_maintenance(self) -> bool:
        """Vacuums the tables that have many dead rows. Always returns False: no more work has to be done at
        once."""
        for table, before in (await self._due()).items():
            loop = asyncio.get_running_loop()
            began = loop.time()
            # TRUNCATE false: free space at the end of a table is soon used again. SKIP_LOCKED: autovacuum
            # may be at it.
            await self._connection.execute_alone(
                f"VACUUM (SKIP_LOCKED, TRUNCATE false, PARALLEL 0) {self._named(table)}",
                time_limit=VACUUM_TIMEOUT_SECONDS,
            )
            ended = loop.time()
            self._rest_until[table] = ended + REST_FACTOR * (ended - began)
            # At a thousand jobs a second as many rows die during the vacuum: only rows it left count.
            if (await self._dead_rows()).get(table, 0) > before * USELESS_VACUUM_SHARE:
                self._rest_until[table] = max(self._rest_until[table], ended + USELESS_VACUUM_PAUSE_SECONDS)
        return False

    async def _due(self) -> dict[str, int]:
        now = asyncio.get_running_loop().time()
        found = await self._dead_rows()
        return {table: dead for table, dead in found.items() if self._rest_until.get(table, 0) <= now}

    async def _dead_rows(self) -> dict[str, int]:
        """Returns the number of dead rows by table. Tables with few dead rows are left out."""
        rows = await self._connection.fetch(
            SQL.dead, self._connection.address.schema, MIN_DEAD_ROWS, MIN_DEAD_SHARE
        )
        return {row["name"]: row["dead"] for row in rows}

    def _named(self, table: str) -> str:
        return f"{quote_name(self._connection.address.schema)}.{quote_name(table)}"


COPY_SQL = load_statements("copy")
_COPY_JOBS = COPY_SQL.jobs.replace("{columns}", COLUMNS)
IDS_PER_PAGE = 1000


async def copy_jobs(connection: PostgresConnection, after: int, limit: int) -> list[JobCopy]:
    """Returns up to `limit` jobs with their attempts, log lines and checkpoints, oldest first (U5). Only jobs
    whose sequence number (`Job.seq`) is above `after` are returned."""
    jobs = [job_of(row) for row in await connection.fetch(_COPY_JOBS, after, limit)]
    return [
        JobCopy(
            job=job,
            attempts=tuple(await reader.attempts(connection, job.id)),
            logs=tuple(await reader.logs(connection, job.id)),
            checkpoints=tuple(await reader.checkpoints(connection, job.id)),
        )
        for job in jobs
    ]


async def copy_ids(connection: PostgresConnection, cursor: str) -> IdPage:
    """Returns one page of remembered ids: ids of enqueue requests whose job was deleted or never created
    (U6). `cursor`: the last id of the previous page; empty for the first page."""

    async def read(transaction: PostgresTransaction) -> IdPage:
        time = await transaction.time()
        now = (time.wall, time.boot, transaction.clock.boot_id)
        rows = await transaction.fetch(COPY_SQL.ids, cursor, IDS_PER_PAGE, *now)
        ids = tuple(
            IdCopy(request=id_, verdict=InsertVerdict(verdict), job=job, fence=fence, claim=claim)
            for id_, verdict, job, fence, claim in rows
        )
        return IdPage(ids, ids[-1].request if len(ids) == IDS_PER_PAGE else None)

    return await connection.run(read)


def _arrival_row(arrival: Arrival) -> tuple[str, str, str, str, str]:
    payload, options = arrival.payload.decode(), arrival.options.decode()
    return arrival.id, arrival.task, payload, options, str(arrival.arrived)


async def copy_in(runner: PostgresEngineRunner, copies: StoreCopy) -> None:
    """Inserts the rows that were read from another store (U7)."""

    async def work(transaction: PostgresTransaction) -> None:
        await runner.run_in(
            transaction, read_sets.copy_in(copies), lambda records: copy.copy_in(records, copies)
        )
        rows = [_arrival_row(arrival) for arrival in copies.arrivals]
        if rows:
            await transaction.fetch(COPY_SQL.arrivals, *map(list, zip(*rows, strict=True)))
        await transaction.fetch(COPY_SQL.raise_fence, copies.fence)

    await runner.connection.run(work)
