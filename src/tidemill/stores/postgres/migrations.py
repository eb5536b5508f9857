"""Checks the server and the database, and then creates or migrates the schema."""

from __future__ import annotations

import asyncpg

from tidemill.errors import ConfigurationError, SchemaMismatch, StoreCorrupt, StoreReadOnly
from tidemill.stores.postgres import statements
from tidemill.stores.postgres.address import PostgresAddress
from tidemill.stores.postgres.clock import PostgresClock
from tidemill.stores.postgres.connection_pool import ConnectionPool, ServerConnection, close_gracefully

SQL = statements.load_statements("migrations")
OPEN_TIMEOUT_SECONDS = 30.0
"""Time limit for opening: another process may be migrating, and the first one creates every table."""
OLDEST_SERVER_VERSION = 13


async def prepare_schema(pool: ConnectionPool, address: PostgresAddress, clock: PostgresClock) -> None:
    """Checks the server, migrates the schema to this Tidemill version, and sets the boot id of `clock`."""
    connection = await _first_connection(pool)
    try:
        await _check_server(connection, address)
        if await _version(connection, address) != newest_version():
            await _migrate(connection, address)
        if not clock.boot_id:
            clock.boot_id = await connection.fetchval(
                _qualify(statements.load_statements("clock").boot_id, address)
            )
    except BaseException:
        pool.drop(connection)
        raise
    pool.give_back(connection)


async def has_schema(pool: ConnectionPool, address: PostgresAddress) -> bool:
    """True if the store's tables exist in the schema (U9)."""
    connection = await _first_connection(pool)
    try:
        exists = await _version(connection, address) > 0
    except BaseException:
        pool.drop(connection)
        raise
    pool.give_back(connection)
    return exists


def newest_version() -> int:
    return statements.load_migrations()[-1][0]


async def _first_connection(pool: ConnectionPool) -> ServerConnection:
    """Returns the first connection, and sets `pool.pooled` if a connection pooler is in front of the
    server."""
    pool.pooled = False
    try:
        connection = await pool.take()
    except asyncpg.ProtocolViolationError as error:
        if "startup parameter" not in str(error):
            raise
        pool.pooled = True
        return await pool.take()
    try:
        pool.pooled = await connection.fetchval(SQL.backend_pid) != connection.get_server_pid()
    except asyncpg.DuplicatePreparedStatementError:
        pool.pooled = True
    if not pool.pooled:
        return connection
    await pool.close()
    return await pool.take()


async def _check_server(connection: ServerConnection, address: PostgresAddress) -> None:
    version = connection.get_server_version()
    if version.major < OLDEST_SERVER_VERSION:
        raise ConfigurationError(
            f"{address}: the server is PostgreSQL {version.major}; Tidemill needs "
            f"{OLDEST_SERVER_VERSION} or newer"
        )
    standby, encoding = await connection.fetchrow(SQL.server)  # type: ignore[misc]  # it has one row
    if standby:
        raise StoreReadOnly(
            f"{address}: the server is a standby and may only be read; name the primary in the URL, or all "
            "hosts (postgresql://one,two/database)"
        )
    if encoding != "UTF8":
        raise ConfigurationError(
            f"{address}: the database has the encoding {encoding}; create one with ENCODING 'UTF8'"
        )


async def _version(connection: ServerConnection, address: PostgresAddress) -> int:
    """Returns the version of the schema; 0 if it has no tables. Raises StoreCorrupt for the tables of another
    program, and SchemaMismatch for a newer version."""
    tables, is_ours = await connection.fetchrow(SQL.tables, address.schema)  # type: ignore[misc]  # it has one row
    if not tables:
        return 0
    if not is_ours:
        raise StoreCorrupt(
            f"{address}: the schema {address.schema!r} holds another program's tables; name another with "
            "?schema= in the URL"
        )
    version: int = await connection.fetchval(_qualify(SQL.version, address))
    if version > newest_version():
        raise SchemaMismatch(
            f"{address}: the schema {address.schema!r} has version {version}, this Tidemill knows up to "
            f"{newest_version()}; upgrade tidemill on this machine, or use another schema"
        )
    return version


async def _migrate(connection: ServerConnection, address: PostgresAddress) -> None:
    """Runs all missing migrations in one transaction. A lock makes other processes wait."""
    async with connection.transaction():
        await connection.execute(
            "SET LOCAL lock_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0"
        )
        await connection.fetchval(SQL.lock, address.schema)
        version = await _version(connection, address)
        if not version:
            await _create(connection, address)
        for number, script in statements.load_migrations():
            if number > version:
                await connection.execute(_qualify(script, address))
                await connection.execute(_qualify(SQL.record, address), number)


async def _create(connection: ServerConnection, address: PostgresAddress) -> None:
    try:
        if not await connection.fetchval(SQL.has_schema, address.schema):
            await connection.execute(f"CREATE SCHEMA {statements.quote_name(address.schema)}")
        await connection.execute(_qualify(SQL.create_migrations, address))
    except asyncpg.InsufficientPrivilegeError as error:
        user, database = await _current_role(address)
        raise ConfigurationError(
            f"{address}: the user {user!r} may not create the schema {address.schema!r}; let an "
            f'administrator run CREATE SCHEMA {address.schema} AUTHORIZATION "{user}", or GRANT CREATE ON '
            f'DATABASE "{database}" TO "{user}"'
        ) from error


async def _current_role(address: PostgresAddress) -> tuple[str, str]:
    """Returns the names of the user and the database. Opens a new connection for this, because the
    transaction on the existing connection has failed."""
    connection: ServerConnection = await asyncpg.connect(address.dsn, statement_cache_size=0)
    try:
        user, database = await connection.fetchrow(SQL.current_role)  # type: ignore[misc]  # it has one row
        return user, database
    finally:
        await close_gracefully(connection)


def _qualify(sql: str, address: PostgresAddress) -> str:
    return statements.qualify(sql, address.schema)
