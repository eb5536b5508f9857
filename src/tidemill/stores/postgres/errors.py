"""Translates PostgreSQL's errors into Tidemill's errors, and decides which failures may be retried. Each
message says what happened, to which database, and what to do."""

from __future__ import annotations

import os
import ssl
from enum import Enum
from typing import NamedTuple

import asyncpg

from tidemill.errors import (
    ConfigurationError,
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    TidemillError,
)
from tidemill.stores.postgres.address import PostgresAddress

DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""Errors that the driver raises. A timeout is an OSError too."""


class FailureKind(Enum):
    ROLLED_BACK = "rolled back"
    """Nothing was changed, and a retry works: a deadlock or a serialization failure."""
    LOST = "lost"
    """The connection ended. It is unknown whether a running commit succeeded."""
    FINAL = "final"
    """A retry does not help."""


_LOST = (
    OSError,
    EOFError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.IdleInTransactionSessionTimeoutError,
)

_ROLLED_BACK = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.UniqueViolationError,  # another transaction has written the row since it was read
)


def classify_error(error: BaseException) -> FailureKind:
    if isinstance(error, _ROLLED_BACK):
        return FailureKind.ROLLED_BACK
    if isinstance(error, ssl.SSLError | TimeoutError):
        return FailureKind.FINAL
    if isinstance(error, _LOST) or _is_closed(error):
        return FailureKind.LOST
    return FailureKind.FINAL


def _is_closed(error: BaseException) -> bool:
    """True if the error means that the connection was closed, by this process or by the server. asyncpg has
    no error type for this case, so the message is examined."""
    message = str(error)
    return isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError) and (
        "clos" in message or "cannot switch" in message
    )


class ErrorTemplate(NamedTuple):
    """The Tidemill error for some driver errors.

    - `errors`: the driver's error types
    - `raised`: Tidemill's error type
    - `text`: the message; `{message}` stands for the server's message"""

    errors: tuple[type[BaseException], ...]
    raised: type[TidemillError]
    text: str


_ERROR_TEMPLATES = (
    ErrorTemplate(
        (asyncpg.InvalidPasswordError, asyncpg.InvalidAuthorizationSpecificationError),
        ConfigurationError,
        "the user or the password is not accepted; check them in the URL (or PGPASSWORD, ~/.pgpass), and "
        "pg_hba.conf on the server",
    ),
    ErrorTemplate(
        (asyncpg.InvalidCatalogNameError,),
        ConfigurationError,
        "there is no such database; create it (CREATE DATABASE …) or name another in the URL",
    ),
    ErrorTemplate(
        (asyncpg.ReadOnlySQLTransactionError,),
        StoreReadOnly,
        "the server is a read-only standby, or the database is set to read-only; name the primary in the "
        "URL, or all hosts (postgresql://one,two/database)",
    ),
    ErrorTemplate(
        (asyncpg.DiskFullError, asyncpg.OutOfMemoryError),
        StoreFull,
        "{message}; free some space, work goes on by itself",
    ),
    ErrorTemplate(
        (asyncpg.InsufficientPrivilegeError,),
        ConfigurationError,
        "{message}; let the owner of the schema {schema!r} run GRANT ALL ON SCHEMA {schema}, and on ALL "
        "TABLES, ALL SEQUENCES and ALL FUNCTIONS IN SCHEMA {schema}, for the user in the URL",
    ),
    ErrorTemplate(
        (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError, asyncpg.UndefinedFunctionError),
        SchemaMismatch,
        "something of the schema {schema!r} is missing ({message}); was it dropped while programs ran? Start "
        "them again, or restore a backup",
    ),
    ErrorTemplate(
        (asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError),
        StoreCorrupt,
        "{message}; stop every worker and restore a backup",
    ),
    ErrorTemplate(
        (asyncpg.QueryCanceledError,),
        StoreUnavailable,
        "the server ended a statement before it was done ({message}); where the role or the database has a "
        "statement_timeout, give it 5 s or more (ALTER ROLE … SET statement_timeout = …)",
    ),
    ErrorTemplate(
        (asyncpg.LockNotAvailableError, TimeoutError),
        StoreUnavailable,
        "no answer in time; look for a long transaction that holds locks (pg_stat_activity), a server with "
        "too much to do, or a network that drops packets",
    ),
    ErrorTemplate(
        (asyncpg.IdleInTransactionSessionTimeoutError,),
        StoreUnavailable,
        "a transaction was left alone for too long, and the server ended it; nothing of it is kept. Make "
        "calls to providers before ctx.transaction(), or after it",
    ),
    ErrorTemplate(
        (asyncpg.TooManyConnectionsError,),
        StoreUnavailable,
        "the server has no connection left; raise max_connections, put a pooler before it, or allow every "
        "process fewer with ?connections= in the URL",
    ),
    ErrorTemplate(
        (ssl.SSLCertVerificationError,),
        ConfigurationError,
        "its certificate is not trusted ({message}); name the file of the authority that signed it with "
        "sslrootcert= in the URL, and the host as the certificate does",
    ),
    ErrorTemplate(
        (ssl.SSLError,),
        ConfigurationError,
        "TLS failed ({message}); check sslmode and sslrootcert in the URL",
    ),
    ErrorTemplate(
        (asyncpg.ClientConfigurationError,),
        ConfigurationError,
        "{message}; put it right in the URL (sslrootcert= names the authority's file)",
    ),
    ErrorTemplate(
        (asyncpg.CantChangeRuntimeParamError, asyncpg.UndefinedObjectError),
        ConfigurationError,
        "an option of the URL is not accepted ({message}); take it out of the URL",
    ),
)


def translate(error: BaseException, address: PostgresAddress) -> TidemillError:
    message = _first_line(error)
    for sentence in _ERROR_TEMPLATES:
        if isinstance(error, sentence.errors):
            return sentence.raised(
                f"{address}: " + sentence.text.format(message=message, schema=address.schema)
            )
    if "rejected SSL" in message:  # asyncpg has no error type for this
        return ConfigurationError(
            f"{address}: the server offers no TLS; set ssl = on there, or take sslmode out of the URL"
        )
    if classify_error(error) is FailureKind.LOST:
        return StoreUnavailable(
            f"{address}: the server cannot be reached ({message}); check host and port in the URL, and "
            "that it runs"
        )
    return StoreError(f"{address}: {type(error).__name__}: {message}")


def timeout_error(last: BaseException | None, address: PostgresAddress) -> TidemillError:
    """Returns the error for an operation that ran out of time. `last`: the error of its last attempt; None if
    no attempt failed."""
    return translate(last or TimeoutError(), address)


def _first_line(error: BaseException) -> str:
    """Returns the first line of an error's message. Later lines may quote a row with its payload, so they are
    left out."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if (
        isinstance(error, ConnectionError) and error.errno
    ):  # asyncio's message names the address in Python's notation
        return os.strerror(error.errno)
    if isinstance(error, OSError) and error.strerror and error.strerror.isprintable():
        return error.strerror
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
