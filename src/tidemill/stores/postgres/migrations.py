"""Opening the database: the server, the schema, and everything that can be wrong with them."""

from __future__ import annotations

import asyncpg

from tidemill.errors import ConfigurationError, SchemaMismatch, StoreCorrupt, StoreReadOnly
from tidemill.stores.postgres import statements
from tidemill.stores.postgres.address import Address
from tidemill.stores.postgres.clocks import StoreClock
from tidemill.stores.postgres.links import Link, Links, hang_up

SQL = statements.load("migrations")
PATIENCE = 30.0
"""Seconds for opening: another process may be at it, and the first one makes every table."""
OLDEST_SERVER = 13


async def prepare(links: Links, address: Address, clock: StoreClock) -> None:
    """A schema of this version, on a server that can be used."""
    link = await _first_link(links)
    try:
        await _check_server(link, address)
        if await _version(link, address) != newest():
            await _migrate(link, address)
        if not clock.boot_id:
            clock.boot_id = await link.fetchval(_here(statements.load("clock").boot_id, address))
    except BaseException:
        links.drop(link)
        raise
    links.give_back(link)


async def is_made(links: Links, address: Address) -> bool:
    """U9."""
    link = await _first_link(links)
    try:
        made = await _version(link, address) > 0
    except BaseException:
        links.drop(link)
        raise
    links.give_back(link)
    return made


def newest() -> int:
    return statements.migrations()[-1][0]


async def _first_link(links: Links) -> Link:
    """Whether a pooler stands between shows when a session is set up: it refuses settings, or the process
    that answers is not the one that greeted."""
    links.pooled = False
    try:
        link = await links.take()
    except asyncpg.ProtocolViolationError as error:
        if "startup parameter" not in str(error):
            raise
        links.pooled = True
        return await links.take()
    try:
        links.pooled = await link.fetchval(SQL.process) != link.get_server_pid()
    except asyncpg.DuplicatePreparedStatementError:
        links.pooled = True
    if not links.pooled:
        return link
    await links.close()
    return await links.take()


async def _check_server(link: Link, address: Address) -> None:
    version = link.get_server_version()
    if version.major < OLDEST_SERVER:
        raise ConfigurationError(
            f"{address}: the server is PostgreSQL {version.major}; Tidemill needs {OLDEST_SERVER} or newer"
        )
    standby, encoding = await link.fetchrow(SQL.server)  # type: ignore[misc]  # it has one row
    if standby:
        raise StoreReadOnly(
            f"{address}: the server is a standby and may only be read; name the primary in the URL, or all "
            "hosts (postgresql://one,two/database)"
        )
    if encoding != "UTF8":
        raise ConfigurationError(
            f"{address}: the database has the encoding {encoding}; create one with ENCODING 'UTF8'"
        )


async def _version(link: Link, address: Address) -> int:
    """0 when there is nothing yet. A schema with somebody else's tables, or with ones of ours this version
    does not know, is never touched."""
    tables, ours = await link.fetchrow(SQL.tables, address.schema)  # type: ignore[misc]  # it has one row
    if not tables:
        return 0
    if not ours:
        raise StoreCorrupt(
            f"{address}: the schema {address.schema!r} holds another program's tables; name another with "
            "?schema= in the URL"
        )
    version: int = await link.fetchval(_here(SQL.version, address))
    if version > newest():
        raise SchemaMismatch(
            f"{address}: the schema {address.schema!r} has version {version}, this Tidemill knows up to "
            f"{newest()}; upgrade tidemill on this machine, or use another schema"
        )
    return version


async def _migrate(link: Link, address: Address) -> None:
    """One process at a time, all steps or none."""
    async with link.transaction():
        await link.execute("SET LOCAL lock_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0")
        await link.fetchval(SQL.lock, address.schema)
        version = await _version(link, address)
        if not version:
            await _create(link, address)
        for number, script in statements.migrations():
            if number > version:
                await link.execute(_here(script, address))
                await link.execute(_here(SQL.record, address), number)


async def _create(link: Link, address: Address) -> None:
    try:
        if not await link.fetchval(SQL.is_there, address.schema):
            await link.execute(f"CREATE SCHEMA {statements.quoted(address.schema)}")
        await link.execute(_here(SQL.begin, address))
    except asyncpg.InsufficientPrivilegeError as error:
        user, database = await _who(address)
        raise ConfigurationError(
            f"{address}: the user {user!r} may not create the schema {address.schema!r}; let an "
            f'administrator run CREATE SCHEMA {address.schema} AUTHORIZATION "{user}", or GRANT CREATE ON '
            f'DATABASE "{database}" TO "{user}"'
        ) from error


async def _who(address: Address) -> tuple[str, str]:
    """On a link of its own: the one that was refused is in a transaction that failed."""
    link: Link = await asyncpg.connect(address.dsn, statement_cache_size=0)
    try:
        user, database = await link.fetchrow(SQL.who)  # type: ignore[misc]  # it has one row
        return user, database
    finally:
        await hang_up(link)


def _here(sql: str, address: Address) -> str:
    return statements.moved(sql, address.schema)
