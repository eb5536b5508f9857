"""Looking after the database: what it is, whether it is whole, giving space back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import msgspec

from tidemill.contract.upkeep import StoreFacts
from tidemill.core.accounts import Account
from tidemill.core.ledger import Reserved
from tidemill.core.pools import PoolSettings
from tidemill.core.recount import miscounted
from tidemill.errors import ConfigurationError
from tidemill.stores.postgres.connection import Connection
from tidemill.stores.postgres.statements import load, quoted
from tidemill.stores.postgres.step import Step

SQL = load("upkeep")
PATIENCE = 3600.0
"""Seconds for reading, or writing anew, everything there is."""
LONG = 300.0
"""A transaction that is open for so many seconds is worth a word."""
FEW_LEFT = 0.9

_ACCOUNT = msgspec.json.Decoder(Account)
_RESERVED = msgspec.json.Decoder(Reserved)
_DECLARED = msgspec.json.Decoder(PoolSettings)


async def describe(connection: Connection) -> StoreFacts:
    facts = (await connection.fetch(SQL.facts, connection.address.schema))[0]
    oldest = await connection.fetch(SQL.oldest)
    return StoreFacts(
        kind="postgresql",
        engine=f"PostgreSQL {facts['server']} (asyncpg {asyncpg.__version__})",
        location=f"{connection.address}, schema {connection.address.schema}",
        schema=facts["version"],
        bytes=facts["bytes"],
        warnings=tuple(_warnings(connection, facts, oldest)),
    )


def _warnings(connection: Connection, facts: asyncpg.Record, oldest: list[asyncpg.Record]) -> Iterator[str]:
    if connection.wakeups.is_deaf:
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
    if facts["connected"] > FEW_LEFT * facts["connections"]:
        yield (
            f"{facts['connected']} of {facts['connections']} connections are taken, and the next process may "
            "get none; raise max_connections, put a pooler before it, or allow every process fewer with "
            "?connections="
        )
    for row in oldest:
        if row["seconds"] > LONG:
            who = f"{row['pid']} ({row['application_name'] or 'no name'})"
            yield (
                f"the transaction of process {who} is open for {row['seconds'] / 60:.0f} minutes: until it "
                "ends no dead row can be removed, and tables grow; end it, or see what it waits for"
            )


async def check(connection: Connection) -> tuple[str, ...]:
    """As of one instant: jobs go on meanwhile."""

    async def read(step: Step) -> tuple[str, ...]:
        await step.fetch(SQL.as_of_now)
        await step.fetch(SQL.joined_whole)
        return tuple([sentence async for sentence in _damage(step)])

    return await connection.run(read, patience=PATIENCE)


async def _damage(step: Step) -> AsyncIterator[str]:
    for row in await step.fetch(SQL.wrong_counts):
        yield f"queue {row['queue']!r} counts {row['says'] or 0} {row['state']} jobs but has {row['has']}"
    for row in await step.fetch(SQL.lost_lanes):
        yield f"queue {row['queue']!r} has ready jobs with the key {row['lane']!r} that no worker would find"
    for row in await step.fetch(SQL.wrong_heads):
        yield f"queue {row['queue']!r} does not start the jobs with the key {row['lane']!r} in their order"
    for row in await step.fetch(SQL.strays):
        yield f"job {row['id']!r} does not stand in line exactly when it is ready and in nobody's hands"
    for row in await step.fetch(SQL.miscounted):
        yield f"the claim with fence {row['fence']} counts {row['open']} jobs and has {row['jobs']}"
    for row in await step.fetch(SQL.ownerless):
        yield f"pool {row['pool']!r} keeps units for job {row['job']!r}, which does not run with them"
    for row in await step.fetch(SQL.pools):
        for sentence in _of_account(row):
            yield sentence
    async for sentence in _left_behind(step):
        yield sentence


async def _left_behind(step: Step) -> AsyncIterator[str]:
    for row in await step.fetch(SQL.stale_stirs):
        yield f"{row['stirs']} ends are kept of {row['courses']} {row['kind']}s that are gone"
    for row in await step.fetch(SQL.orphans):
        if row["kept"]:
            yield f"{row['kept']} {row['what']} are kept of {row['jobs']} jobs that are gone"


def _of_account(row: asyncpg.Record) -> Iterator[str]:
    at = f"{row['pool']} ({row['key']})" if row["key"] else row["pool"]
    limits = _DECLARED.decode(row["declared"]).limits
    kept = [_RESERVED.decode(one).reservation for one in row["reserved"]]
    return miscounted(at, limits, _ACCOUNT.decode(row["account"]).state, kept)


def refuse_backup(connection: Connection, target: Path) -> ConfigurationError:
    schema = connection.address.schema
    return ConfigurationError(
        f"{target}: PostgreSQL has a tool of its own for this: pg_dump --format=custom --schema={schema} "
        f"--file={target.name} DATABASE, and pg_restore to bring it back"
    )


async def compact(connection: Connection) -> None:
    """Table by table, each of them locked while it is written anew."""
    schema = connection.address.schema
    tables = [row["name"] for row in await connection.fetch(SQL.tables, schema)]
    for table in tables:
        await connection.execute_alone(
            f"VACUUM (FULL, ANALYZE) {quoted(schema)}.{quoted(table)}", patience=PATIENCE
        )
