"""Enqueues jobs inside a transaction of the caller, and settles jobs inside a transaction of the handler."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tidemill.contract.jobs import SettlingTransaction
from tidemill.core.claims import Settlement
from tidemill.core.outcomes import WriteAnswer
from tidemill.errors import ClaimLost, ConfigurationError
from tidemill.stores.postgres.address import PostgresAddress
from tidemill.stores.postgres.connection import PostgresConnection
from tidemill.stores.postgres.connection_pool import ServerConnection
from tidemill.stores.postgres.errors import DRIVER_ERRORS, translate
from tidemill.stores.postgres.statements import load_statements, qualify
from tidemill.stores.postgres.transaction import PostgresTransaction

CALLER_SQL = load_statements("caller_transaction")
ArrivalArguments = tuple[str, str, str, str]
"""Job id, task, payload, options."""

_SUPPORTED_CONNECTIONS = (
    "give an asyncpg connection, a psycopg connection or cursor, an SQLAlchemy session or connection, or a "
    "Django connection or its alias"
)
_NO_SCHEMA = ("42883", "3F000", "42501")
"""SQLSTATEs: no such function, no such schema, no permission."""


async def insert_arrival(connection: object, address: PostgresAddress, arguments: ArrivalArguments) -> None:
    kind = _library_of(connection)
    sender = _ASYNC_LIBRARIES.get(kind)
    if sender is None or not _is_async(connection, kind):
        raise _unsupported_connection(
            connection, "is not async; use enqueue_sync with it" if kind in _SYNC_LIBRARIES else None
        )
    try:
        await sender(connection, address, arguments)
    except Exception as error:
        raise _explain_error(error, address) from error


def insert_arrival_sync(connection: object, address: PostgresAddress, arguments: ArrivalArguments) -> None:
    kind = _library_of(connection)
    sender = _SYNC_LIBRARIES.get(kind)
    if sender is None or _is_async(connection, kind):
        raise _unsupported_connection(
            connection, "is async; await enqueue(…) with it" if kind in _ASYNC_LIBRARIES else None
        )
    try:
        sender(connection, address, arguments)
    except Exception as error:
        raise _explain_error(error, address) from error


async def _insert_with_asyncpg(
    connection: Any, address: PostgresAddress, arguments: ArrivalArguments
) -> None:
    if not hasattr(connection, "is_in_transaction"):
        raise ConfigurationError(
            "connection: a pool has no transaction; give the connection you acquired from it"
        )
    await connection.execute(qualify(CALLER_SQL.numbered, address.schema), *arguments)


async def _insert_with_async_psycopg(
    connection: Any, address: PostgresAddress, arguments: ArrivalArguments
) -> None:
    await connection.execute(qualify(CALLER_SQL.positional, address.schema), arguments)


async def _insert_with_async_sqlalchemy(
    connection: Any, address: PostgresAddress, arguments: ArrivalArguments
) -> None:
    await connection.execute(*_sqlalchemy_statement(connection, address, arguments))


def _insert_with_psycopg(connection: Any, address: PostgresAddress, arguments: ArrivalArguments) -> None:
    connection.execute(qualify(CALLER_SQL.positional, address.schema), arguments)


def _insert_with_cursor(connection: Any, address: PostgresAddress, arguments: ArrivalArguments) -> None:
    """Inserts the arrival through a cursor of any DB-API library whose parameters are written as %s."""
    with connection.cursor() as cursor:
        cursor.execute(qualify(CALLER_SQL.positional, address.schema), arguments)


def _insert_with_sqlalchemy(connection: Any, address: PostgresAddress, arguments: ArrivalArguments) -> None:
    connection.execute(*_sqlalchemy_statement(connection, address, arguments))


def _sqlalchemy_statement(
    connection: Any, address: PostgresAddress, arguments: ArrivalArguments
) -> tuple[Any, dict[str, str]]:
    from sqlalchemy import text

    bind = connection.get_bind() if hasattr(connection, "get_bind") else connection
    _refuse_other_database(bind.dialect.name)
    values = dict(zip(("id", "task", "payload", "options"), arguments, strict=True))
    return text(qualify(CALLER_SQL.named, address.schema)), values


def _insert_with_django(connection: Any, address: PostgresAddress, arguments: ArrivalArguments) -> None:
    if isinstance(connection, str):
        from django.db import connections

        connection = connections[connection]
    _refuse_other_database(connection.vendor)
    _insert_with_cursor(connection, address, arguments)


_ASYNC_LIBRARIES: dict[str, Callable[[Any, PostgresAddress, ArrivalArguments], Awaitable[None]]] = {
    "asyncpg": _insert_with_asyncpg,
    "psycopg": _insert_with_async_psycopg,
    "sqlalchemy": _insert_with_async_sqlalchemy,
}
_SYNC_LIBRARIES: dict[str, Callable[[Any, PostgresAddress, ArrivalArguments], None]] = {
    "psycopg": _insert_with_psycopg,
    "psycopg2": _insert_with_cursor,
    "sqlalchemy": _insert_with_sqlalchemy,
    "django": _insert_with_django,
}


def _library_of(connection: object) -> str:
    """Returns the name of the library that a connection belongs to, such as "asyncpg"; empty if it is not
    supported. A string is taken as an alias of a Django connection."""
    if isinstance(connection, str):
        return "django"
    libraries = (base.__module__.partition(".")[0] for base in type(connection).__mro__)
    return next(
        (library for library in libraries if library in _ASYNC_LIBRARIES or library in _SYNC_LIBRARIES), ""
    )


def _is_async(connection: object, library: str) -> bool:
    names = (base.__name__.lower() for base in type(connection).__mro__)
    return library == "asyncpg" or any(name.startswith("async") for name in names)


def _refuse_other_database(name: str) -> None:
    if name != "postgresql":
        raise ConfigurationError(
            f"connection: it leads to a {name} database, and the store is in PostgreSQL; give one to the "
            "store's database"
        )


def _explain_error(error: Exception, address: PostgresAddress) -> Exception:
    """Returns a ConfigurationError if the connection cannot use the store's schema, usually because it
    belongs to another database. Returns any other error unchanged."""
    causes = (error, getattr(error, "orig", None), error.__cause__)
    states = [getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None) for cause in causes]
    if not any(state in _NO_SCHEMA for state in states):
        return error
    return ConfigurationError(
        f"connection: it may not use the schema {address.schema!r} of {address}; give a connection to that "
        f"database, and let the schema's owner run GRANT USAGE ON SCHEMA {address.schema} TO its user"
    )


def _unsupported_connection(connection: object, why: str | None) -> ConfigurationError:
    kind = type(connection)
    named = "Django's connection" if isinstance(connection, str) else f"{kind.__module__}.{kind.__name__}"
    return ConfigurationError(f"connection: {named} {why or f'cannot be used; {_SUPPORTED_CONNECTIONS}'}")


HANDLER_SQL = load_statements("handler_transaction")
SettleInTransaction = Callable[[PostgresTransaction, Sequence[Settlement]], Awaitable[Sequence[WriteAnswer]]]


@asynccontextmanager
async def handler_transaction(
    connection: PostgresConnection, settle: SettleInTransaction, job: str, fence: int, claim: int
) -> AsyncIterator[SettlingTransaction]:
    """Yields a transaction for the handler of a job, and settles the job in it (X4). Raises ClaimLost if the
    claim is not current."""
    async with _borrow_connection(connection) as borrowed:
        transaction = connection.transaction_on(borrowed, connection.handler_pool)
        try:
            await transaction.__aenter__()
            current = await transaction.first(HANDLER_SQL.is_current, job, fence, claim)
        except DRIVER_ERRORS as error:
            raise translate(error, connection.address) from error
        if current is None:
            raise ClaimLost(f"job {job} is no longer held by this worker")
        settling = SettlingTransaction(borrowed)
        yield settling
        await _commit(connection, transaction, settle, settling)
    connection.announce(transaction.topics, transaction.ended)


async def _commit(
    connection: PostgresConnection,
    transaction: PostgresTransaction,
    settle: SettleInTransaction,
    settling: SettlingTransaction,
) -> None:
    try:
        if settling.settlement is not None:
            await transaction.connection.execute(HANDLER_SQL.use_verb_settings)
            answers = await settle(transaction, [settling.settlement])
            if answers[0] in (WriteAnswer.STALE, WriteAnswer.GONE):
                raise ClaimLost(f"job {settling.settlement.job} is no longer held by this worker")
        await transaction.__aexit__(None, None, None)
    except DRIVER_ERRORS as error:
        raise translate(error, connection.address) from error


@asynccontextmanager
async def _borrow_connection(connection: PostgresConnection) -> AsyncIterator[ServerConnection]:
    """Yields a connection for a handler. After an error the connection is closed, which rolls its transaction
    back."""
    try:
        borrowed = await connection.handler_pool.take()
    except DRIVER_ERRORS as error:
        raise translate(error, connection.address) from error
    try:
        yield borrowed
    except BaseException:
        connection.handler_pool.drop(borrowed)
        raise
    connection.handler_pool.give_back(borrowed)
