"""The application's own database, on SQLite or PostgreSQL. Every error message is one sentence that includes
a remedy."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import aiosqlite
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    MetaData,
    Table,
    event,
    func,
    inspect,
    make_url,
    select,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, InterfaceError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from tidemill import ConfigurationError, DependencyUnavailable, StoreUnavailable, Tidemill, TidemillError
from tidemill_apps.common.existing_tables import create_missing_tables, find_column_problems, requires_value

EXAMPLE_URL = "sqlite:///music.db"
MAX_IDS_PER_STATEMENT = 500
"""Rows per statement; databases limit the number of parameters."""
ItemT = TypeVar("ItemT")
_KNOWN_MESSAGES = (
    ("database or disk is full", "the disk is full; make room, work goes on by itself"),
    ("readonly database", "it may not be written to; give this user the right to write the file"),
    (
        "unable to open database file",
        "the file cannot be opened; is its folder there, and may it be written?",
    ),
    ("not a database", "the file is no SQLite database; name another one"),
    ("database is locked", "somebody else has been writing for too long; is another program holding it?"),
)


UNAVAILABLE_RETRY_SECONDS = 15.0
"""Seconds until a job whose handler met an unavailable database runs again."""


class DatabaseUnavailable(DependencyUnavailable, StoreUnavailable):
    """The application's database is unavailable. A route answers 503 with the message. A job whose handler
    raises it waits for the database, which costs no attempt."""

    def __init__(self, problem: str) -> None:
        super().__init__("the application's database", problem, retry_in=UNAVAILABLE_RETRY_SECONDS)

    def __str__(self) -> str:
        return self.problem


class StatementRefused(TidemillError):
    """Raised if the database refuses a statement. The message contains no SQL, because users see it on pages.
    `driver_message` is the original message of the database driver."""

    def __init__(self, problem: str, driver_message: str) -> None:
        super().__init__(problem)
        self.driver_message = driver_message


class RowRefused(StatementRefused):
    """Raised if the table refuses a row, for example because of a constraint. The transaction is rolled back.
    An HTTP route answers 409 with the message."""


def build_statement_refused(place: str, error: DBAPIError) -> StatementRefused:
    """Returns the error to raise for a statement that the database refused: RowRefused for a violated
    constraint, otherwise StatementRefused. `place` is the database's location."""
    said = driver_message(error)
    problem = (
        f"the database {place} refused a statement: {said}; see whether its tables are as they should be"
    )
    return (RowRefused if isinstance(error, IntegrityError) else StatementRefused)(problem, said)


def driver_message(error: DBAPIError) -> str:
    """Returns the first line of the driver's message, without the class name."""
    return re.sub(r"^<class '[^']*'>: ", "", str(error.orig)).partition("\n")[0]


def prefix_variable(variable: str, told: str) -> str:
    """Returns the message `told` with the name of a setting, `variable`, before it. Returns `told` unchanged
    if `variable` is empty."""
    return f"{variable}: {told}" if variable else told


def format_location(url: str, variable: str = "", example: str = EXAMPLE_URL) -> str:
    """Returns the database's location without user name and password: the file, or host:port/name. Raises
    ConfigurationError if `url` is invalid. `variable` and `example` appear in that error."""
    remedy = f"write it as {example} or postgresql://user:password@host/name"
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        problem = "the address of the database is not one"
        raise ConfigurationError(prefix_variable(variable, f"{problem}; {remedy}")) from None
    if parsed.drivername == "sqlite":
        if not parsed.database or parsed.query or parsed.host:
            problem = "the address of the database names no file"
            raise ConfigurationError(prefix_variable(variable, f"{problem}; {remedy}"))
        return parsed.database
    if parsed.drivername not in ("postgresql", "postgres"):
        problem = f"databases by {parsed.drivername!r} are not known here"
        raise ConfigurationError(prefix_variable(variable, f"{problem}; {remedy}"))
    return f"{parsed.host or 'localhost'}:{parsed.port or 5432}/{parsed.database or ''}"


def describe_outage(place: str, error: DBAPIError | OSError, *, connected: bool) -> str | None:
    """Returns a sentence about an outage of the database at `place`; None if the statement was wrong."""
    if isinstance(error, OSError):
        if connected:  # the caller's own file error inside a transaction
            return None
        return f"the database {place} cannot be reached: {error.strerror or error}; is it running?"
    said = driver_message(error)
    for words, told in _KNOWN_MESSAGES:
        if words in said:
            return f"the database {place}: {told}"
    if not connected:
        return f"the database {place} cannot be used: {said}"
    if error.connection_invalidated or isinstance(error, InterfaceError):
        return f"the database {place} went away: {said}"
    return None


_SQLITE_SCHEME = "sqlite:///"


def check_separate_files(app: Tidemill, database_url: str, variable: str) -> None:
    """Raises ConfigurationError if the job store and the application's tables use the same SQLite file,
    because their writers would block each other. `variable` is the setting's name for the message."""
    jobs, tables = str(app.url), database_url
    if not (jobs.startswith(_SQLITE_SCHEME) and tables.startswith(_SQLITE_SCHEME)):
        return
    here, there = (Path(url.removeprefix(_SQLITE_SCHEME)).resolve() for url in (jobs, tables))
    if here == there:
        raise ConfigurationError(
            f"{variable}: {there.name} is the file of the jobs; name another one for the application's tables"
        )


LOCK_TIMEOUT_SECONDS = 30.0
"""How long a writer waits for the file lock."""
CONNECTION_POOL_SIZE = 4
"""Connections kept open; more are opened on demand and closed again."""


class _LoopEngine:
    """The SQLAlchemy engine of one event loop. `turn` is a lock that SQLite writers of this loop take before
    they write, so that they write in the order of their requests."""

    def __init__(self, url: str, variable: str) -> None:
        self.sqlite = url.startswith("sqlite")
        self.engine = _create_sqlite_engine(url) if self.sqlite else _create_postgres_engine(url, variable)
        self.turn = asyncio.Lock()


class Database:
    def __init__(self, url: str, variable: str = "", example: str = EXAMPLE_URL) -> None:
        """`url` is sqlite:///file or postgresql://user:password@host/name. `variable` is the name of the
        setting that holds the URL, and `example` a valid value. Both appear in error messages."""
        self._url, self._variable = url, variable
        self.location = format_location(url, variable, example)
        """The location without secrets."""
        self._opened: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopEngine] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"Database({self.location!r})"

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """Opens a transaction for writing. It commits at the end of the `async with` block and rolls back on
        an exception. On SQLite it blocks all writers, so keep it short and make no provider calls inside."""
        opened = self._loop_engine()
        async with opened.turn if opened.sqlite else nullcontext(), self._begin(opened.engine) as connection:
            yield connection

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """Opens a read-only transaction for the `async with` block. It does not block writers."""
        engine = self._loop_engine().engine.execution_options(reads_only=True)
        async with self._begin(engine) as connection:
            yield connection

    async def prepare(self, metadata: MetaData) -> None:
        """Creates the missing tables, columns and indexes of `metadata`. It changes no existing ones. Raises
        ConfigurationError if an existing column cannot hold the application's values."""
        async with self.transaction() as connection:
            await connection.run_sync(create_missing_tables, metadata)
            problems = await connection.run_sync(find_column_problems, metadata)
        if problems:
            raise ConfigurationError(prefix_variable(self._variable, "; ".join(problems)))

    async def count_by(self, column: Column[Any], *conditions: ColumnElement[bool]) -> dict[str | None, int]:
        """Returns the number of rows per value of `column`, for example per status. Only rows that meet all
        `conditions` are counted."""
        query = select(column, func.count()).where(*conditions).group_by(column)
        async with self.reading() as connection:
            return {row[0]: int(row[1]) for row in await connection.execute(query)}

    async def close(self) -> None:
        """Closes the connections of this event loop. The object can be used again."""
        opened = self._opened.pop(asyncio.get_running_loop(), None)
        if opened is not None:
            await opened.engine.dispose()

    def _loop_engine(self) -> _LoopEngine:
        loop = asyncio.get_running_loop()
        if loop not in self._opened:
            self._opened[loop] = _LoopEngine(self._url, self._variable)
        return self._opened[loop]

    @asynccontextmanager
    async def _begin(self, engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
        connected = False
        try:
            async with engine.begin() as connection:
                connected = True
                yield connection
        except (DBAPIError, OSError) as error:
            if (told := describe_outage(self.location, error, connected=connected)) is not None:
                raise DatabaseUnavailable(prefix_variable(self._variable, told)) from error
            if isinstance(error, DBAPIError):
                raise build_statement_refused(
                    self.location, error
                ) from None  # its cause contains the whole statement
            raise


def _create_sqlite_engine(url: str) -> AsyncEngine:
    """Returns the engine for an SQLite file. It keeps up to 4 connections open, because a new connection can
    block the event loop for 0.1 s."""
    file = make_url(url).database

    async def connect(**_: object) -> aiosqlite.Connection:
        connection = aiosqlite.connect(str(file), timeout=LOCK_TIMEOUT_SECONDS)
        thread = connection._thread  # noqa: SLF001 - aiosqlite has no public way to wait for its thread
        thread.daemon = True  # a process that does not close the database still ends
        try:
            return await connection
        except sqlite3.Error:
            # A thread that outlives the event loop prints a traceback.
            await asyncio.to_thread(thread.join)
            raise

    engine = create_async_engine(
        "sqlite+aiosqlite://",
        async_creator=connect,
        poolclass=AsyncAdaptedQueuePool,
        pool_size=CONNECTION_POOL_SIZE,
        max_overflow=-1,
    )
    event.listen(engine.sync_engine, "connect", _configure_connection)
    event.listen(engine.sync_engine, "begin", _begin_transaction)
    return engine


def _create_postgres_engine(url: str, variable: str) -> AsyncEngine:
    """Returns the engine for PostgreSQL. It tests each connection before use, because a restart of the server
    breaks connections. asyncpg parses the URL."""
    try:
        import asyncpg
    except ModuleNotFoundError:
        needs = "PostgreSQL needs a driver; pip install 'tidemill[postgres]'"
        raise ConfigurationError(prefix_variable(variable, needs)) from None

    def connect(**_: object) -> Any:
        return asyncpg.connect(url, timeout=LOCK_TIMEOUT_SECONDS)

    return create_async_engine("postgresql+asyncpg://", async_creator=connect, pool_pre_ping=True)


def _configure_connection(connection: Any, _: object) -> None:
    """Turns on foreign keys for an SQLite connection. Turns off the driver's automatic BEGIN, which comes too
    late; SQLAlchemy sends BEGIN instead."""
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin_transaction(connection: Connection) -> None:
    """Begins an SQLite transaction. A transaction for writing takes the write lock at once, so that no other
    writer can come between its first read and its first write."""
    reads_only = connection.get_execution_options().get("reads_only", False)
    connection.exec_driver_sql("BEGIN" if reads_only else "BEGIN IMMEDIATE")


def slice_items(items: Sequence[ItemT], size: int = MAX_IDS_PER_STATEMENT) -> Iterator[Sequence[ItemT]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


@asynccontextmanager
async def explain_refused_rows(database: Database, table: Table, what: str) -> AsyncIterator[None]:
    """Explains a RowRefused that the `async with` block raises. The new message says which columns need a
    value, or which rule the row breaks. `what` names the kind of row, such as `song`."""
    try:
        yield
    except RowRefused as error:
        async with database.reading() as connection:
            missing = await connection.run_sync(find_unfillable_columns, table)
        if any(name in error.driver_message for name in missing):
            raise RowRefused(format_cannot_add(table, missing, what), error.driver_message) from None
        said = error.driver_message
        problem = f"the table {table.name} does not take this {what}: {said}; change what breaks that rule"
        raise RowRefused(problem, error.driver_message) from None


def find_unfillable_columns(connection: Connection, table: Table) -> list[str]:
    """Returns the names of columns that need a value in every new row but are unknown to the application. If
    a database trigger fills these columns, the table still accepts rows."""
    there = inspect(connection).get_columns(table.name, table.schema)
    return [column["name"] for column in there if column["name"] not in table.c and requires_value(column)]


def format_cannot_add(table: Table, missing: Sequence[str], what: str) -> str:
    wanted = " and ".join(f"{name} must have a value and has no default" for name in missing)
    return (
        f"no {what} can be added to the table {table.name}: {wanted}; give such a column a default, or let "
        "it be empty (rows that another program writes are taken up all the same)"
    )


__all__ = ["Database", "DatabaseUnavailable"]
