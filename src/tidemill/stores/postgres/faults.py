"""PostgreSQL's errors in Tidemill's words: what happened, to which database, what to do. And whether
what failed may be done again (`Kind`)."""

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
from tidemill.stores.postgres.address import Address

TROUBLE = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""What a database can raise; a timeout is an OSError too."""


class Kind(Enum):
    ROLLED_BACK = "rolled back"
    """Nothing was changed, and it works when it is done again: a deadlock, a serialization failure."""
    LOST = "lost"
    """The connection ended. Whether a commit under way was done is not known."""
    FINAL = "final"
    """Trying again does not help."""


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
    asyncpg.UniqueViolationError,  # of a row that somebody else has written since it was looked for
)


def kind_of(error: BaseException) -> Kind:
    if isinstance(error, _ROLLED_BACK):
        return Kind.ROLLED_BACK
    if isinstance(error, ssl.SSLError | TimeoutError):
        return Kind.FINAL
    if isinstance(error, _LOST) or _is_closed(error):
        return Kind.LOST
    return Kind.FINAL


def _is_closed(error: BaseException) -> bool:
    """asyncpg has no type of its own for a connection that was closed under our hands, or that the server
    ended between two statements: it has read the goodbye, and "cannot switch to" what is asked next."""
    said = str(error)
    return isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError) and (
        "clos" in said or "cannot switch" in said
    )


class Sentence(NamedTuple):
    """What to say of some errors. `{said}` is the server's own word for it."""

    errors: tuple[type[BaseException], ...]
    raised: type[TidemillError]
    text: str


_SENTENCES = (
    Sentence(
        (asyncpg.InvalidPasswordError, asyncpg.InvalidAuthorizationSpecificationError),
        ConfigurationError,
        "the user or the password is not accepted; check them in the URL (or PGPASSWORD, ~/.pgpass), and "
        "pg_hba.conf on the server",
    ),
    Sentence(
        (asyncpg.InvalidCatalogNameError,),
        ConfigurationError,
        "there is no such database; create it (CREATE DATABASE …) or name another in the URL",
    ),
    Sentence(
        (asyncpg.ReadOnlySQLTransactionError,),
        StoreReadOnly,
        "the server is a read-only standby, or the database is set to read-only; name the primary in the "
        "URL, or all hosts (postgresql://one,two/database)",
    ),
    Sentence(
        (asyncpg.DiskFullError, asyncpg.OutOfMemoryError),
        StoreFull,
        "{said}; free some space, work goes on by itself",
    ),
    Sentence(
        (asyncpg.InsufficientPrivilegeError,),
        ConfigurationError,
        "{said}; let the owner of the schema {schema!r} run GRANT ALL ON SCHEMA {schema}, and on ALL TABLES, "
        "ALL SEQUENCES and ALL FUNCTIONS IN SCHEMA {schema}, for the user in the URL",
    ),
    Sentence(
        (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError, asyncpg.UndefinedFunctionError),
        SchemaMismatch,
        "something of the schema {schema!r} is missing ({said}); was it dropped while programs ran? Start "
        "them anew, or restore a backup",
    ),
    Sentence(
        (asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError),
        StoreCorrupt,
        "{said}; stop every worker and restore a backup",
    ),
    Sentence(
        (asyncpg.QueryCanceledError,),
        StoreUnavailable,
        "the server ended a statement before it was done ({said}); where the role or the database has a "
        "statement_timeout, give it 5 s or more (ALTER ROLE … SET statement_timeout = …)",
    ),
    Sentence(
        (asyncpg.LockNotAvailableError, TimeoutError),
        StoreUnavailable,
        "no answer in time; look for a long transaction that holds locks (pg_stat_activity), a server with "
        "too much to do, or a network that drops packets",
    ),
    Sentence(
        (asyncpg.IdleInTransactionSessionTimeoutError,),
        StoreUnavailable,
        "a transaction was left alone for too long, and the server ended it; nothing of it is kept. Make "
        "calls to providers before ctx.transaction(), or after it",
    ),
    Sentence(
        (asyncpg.TooManyConnectionsError,),
        StoreUnavailable,
        "the server has no connection left; raise max_connections, put a pooler before it, or allow every "
        "process fewer with ?connections= in the URL",
    ),
    Sentence(
        (ssl.SSLCertVerificationError,),
        ConfigurationError,
        "its certificate is not trusted ({said}); name the file of the authority that signed it with "
        "sslrootcert= in the URL, and the host as the certificate does",
    ),
    Sentence(
        (ssl.SSLError,),
        ConfigurationError,
        "TLS failed ({said}); check sslmode and sslrootcert in the URL",
    ),
    Sentence(
        (asyncpg.ClientConfigurationError,),
        ConfigurationError,
        "{said}; put it right in the URL (sslrootcert= names the authority's file)",
    ),
    Sentence(
        (asyncpg.CantChangeRuntimeParamError, asyncpg.UndefinedObjectError),
        ConfigurationError,
        "an option of the URL is not accepted ({said}); take it out of the URL",
    ),
)


def translate(error: BaseException, address: Address) -> TidemillError:
    said = _said(error)
    for sentence in _SENTENCES:
        if isinstance(error, sentence.errors):
            return sentence.raised(f"{address}: " + sentence.text.format(said=said, schema=address.schema))
    if "rejected SSL" in said:  # asyncpg has no type of its own for it
        return ConfigurationError(
            f"{address}: the server offers no TLS; set ssl = on there, or take sslmode out of the URL"
        )
    if kind_of(error) is Kind.LOST:
        return StoreUnavailable(
            f"{address}: the server cannot be reached ({said}); check host and port in the URL, and "
            "that it runs"
        )
    return StoreError(f"{address}: {type(error).__name__}: {said}")


def out_of_time(last: BaseException | None, address: Address) -> TidemillError:
    """A verb's time is over; what went wrong before says more than that."""
    return translate(last or TimeoutError(), address)


def _said(error: BaseException) -> str:
    """The first line: details may quote a row, and rows hold payloads."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ConnectionError) and error.errno:  # asyncio says whom it called, in Python's words
        return os.strerror(error.errno)
    if isinstance(error, OSError) and error.strerror and error.strerror.isprintable():
        return error.strerror
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
