"""Requests written through a connection that is not ours, inside its owner's transaction.

Which library it comes from is told by where its class is defined, so that none of them has to be imported, or
even be installed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tidemill.errors import ConfigurationError
from tidemill.stores.postgres.address import Address
from tidemill.stores.postgres.statements import load, moved

SQL = load("outside")
Words = tuple[str, str, str, str]
"""Id, task, payload, options."""

_TAKEN = (
    "give an asyncpg connection, a psycopg connection or cursor, an SQLAlchemy session or connection, or a "
    "Django connection or its alias"
)
_NO_SCHEMA = ("42883", "3F000", "42501")
"""No such function, no such schema, no right to use it."""


async def send(connection: object, address: Address, words: Words) -> None:
    kind = _library_of(connection)
    sender = _ASYNC.get(kind)
    if sender is None or not _is_async(connection, kind):
        raise _refused(connection, "is not async; use enqueue_sync with it" if kind in _SYNC else None)
    try:
        await sender(connection, address, words)
    except Exception as error:
        raise _explained(error, address) from error


def send_sync(connection: object, address: Address, words: Words) -> None:
    kind = _library_of(connection)
    sender = _SYNC.get(kind)
    if sender is None or _is_async(connection, kind):
        raise _refused(connection, "is async; await enqueue(…) with it" if kind in _ASYNC else None)
    try:
        sender(connection, address, words)
    except Exception as error:
        raise _explained(error, address) from error


async def _by_asyncpg(connection: Any, address: Address, words: Words) -> None:
    if not hasattr(connection, "is_in_transaction"):
        raise ConfigurationError(
            "connection: a pool has no transaction; give the connection you acquired from it"
        )
    await connection.execute(moved(SQL.numbered, address.schema), *words)


async def _by_async_psycopg(connection: Any, address: Address, words: Words) -> None:
    await connection.execute(moved(SQL.positional, address.schema), words)


async def _by_async_sqlalchemy(connection: Any, address: Address, words: Words) -> None:
    await connection.execute(*_of_sqlalchemy(connection, address, words))


def _by_psycopg(connection: Any, address: Address, words: Words) -> None:
    connection.execute(moved(SQL.positional, address.schema), words)


def _by_cursor(connection: Any, address: Address, words: Words) -> None:
    """As any DB-API library that writes parameters as %s."""
    with connection.cursor() as cursor:
        cursor.execute(moved(SQL.positional, address.schema), words)


def _by_sqlalchemy(connection: Any, address: Address, words: Words) -> None:
    connection.execute(*_of_sqlalchemy(connection, address, words))


def _of_sqlalchemy(connection: Any, address: Address, words: Words) -> tuple[Any, dict[str, str]]:
    from sqlalchemy import text

    bind = connection.get_bind() if hasattr(connection, "get_bind") else connection
    _refuse_another_kind(bind.dialect.name)
    values = dict(zip(("id", "task", "payload", "options"), words, strict=True))
    return text(moved(SQL.named, address.schema)), values


def _by_django(connection: Any, address: Address, words: Words) -> None:
    if isinstance(connection, str):
        from django.db import connections

        connection = connections[connection]
    _refuse_another_kind(connection.vendor)
    _by_cursor(connection, address, words)


_ASYNC: dict[str, Callable[[Any, Address, Words], Awaitable[None]]] = {
    "asyncpg": _by_asyncpg,
    "psycopg": _by_async_psycopg,
    "sqlalchemy": _by_async_sqlalchemy,
}
_SYNC: dict[str, Callable[[Any, Address, Words], None]] = {
    "psycopg": _by_psycopg,
    "psycopg2": _by_cursor,
    "sqlalchemy": _by_sqlalchemy,
    "django": _by_django,
}


def _library_of(connection: object) -> str:
    """A class of the caller's own that builds on one of these is as good. An alias is Django's."""
    if isinstance(connection, str):
        return "django"
    libraries = (base.__module__.partition(".")[0] for base in type(connection).__mro__)
    return next((library for library in libraries if library in _ASYNC or library in _SYNC), "")


def _is_async(connection: object, library: str) -> bool:
    names = (base.__name__.lower() for base in type(connection).__mro__)
    return library == "asyncpg" or any(name.startswith("async") for name in names)


def _refuse_another_kind(name: str) -> None:
    if name != "postgresql":
        raise ConfigurationError(
            f"connection: it leads to a {name} database, and the store is in PostgreSQL; give one to the "
            "store's database"
        )


def _explained(error: Exception, address: Address) -> Exception:
    """Where our function is not found, the connection leads elsewhere. Other errors are the caller's."""
    causes = (error, getattr(error, "orig", None), error.__cause__)
    states = [getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None) for cause in causes]
    if not any(state in _NO_SCHEMA for state in states):
        return error
    return ConfigurationError(
        f"connection: it may not use the schema {address.schema!r} of {address}; give a connection to that "
        f"database, and let the schema's owner run GRANT USAGE ON SCHEMA {address.schema} TO its user"
    )


def _refused(connection: object, why: str | None) -> ConfigurationError:
    kind = type(connection)
    named = "Django's connection" if isinstance(connection, str) else f"{kind.__module__}.{kind.__name__}"
    return ConfigurationError(f"connection: {named} {why or f'cannot be used; {_TAKEN}'}")
