"""The database of an application: SQLite in a file of its own, or PostgreSQL.

    database = Database("sqlite:///music.db")
    await database.prepare(metadata)
    async with database.transaction() as connection:
        await connection.execute(insert(songs).values(…))

Nothing is opened before it is asked for, and every event loop has an engine of its own: the routes of a
web process and the tests of an application use the same object as its workers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import MetaData, event
from sqlalchemy.engine import Connection, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from tidemill import ConfigurationError
from tidemill_apps.common.column_types import problems_with
from tidemill_apps.common.database_errors import (
    EXAMPLE,
    DatabaseUnavailable,
    named,
    place_of,
    refused,
    sentence,
)
from tidemill_apps.common.tables import create_missing

__all__ = ["Database", "DatabaseUnavailable"]

WAIT = 30.0
"""Seconds a writer waits for others to finish with the file."""
KEPT = 4
"""Connections to a file; more are opened when they are needed, and closed again."""


class _Opened:
    """`turn`: writers of one process wait for each other here, in order; SQLite's own waiting is a lottery
    among those who look again and again."""

    def __init__(self, url: str, variable: str) -> None:
        self.sqlite = url.startswith("sqlite")
        self.engine = _sqlite(url) if self.sqlite else _postgres(url, variable)
        self.turn = asyncio.Lock()


class Database:
    def __init__(self, url: str, variable: str = "", example: str = EXAMPLE) -> None:
        """`url`: sqlite:///file, or postgresql://user:password@host/name. `variable` is what sets it, and
        `example` what it might be: whoever reads an error looks there."""
        self._url, self._variable = url, variable
        self.place = place_of(url, variable, example)
        """Where it is, without secrets."""
        self._opened: WeakKeyDictionary[asyncio.AbstractEventLoop, _Opened] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"Database({self.place!r})"

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """To write: committed at the end, rolled back by an exception. On SQLite nobody else writes
        meanwhile, so keep it short: no call to a provider inside."""
        opened = self._of_this_loop()
        async with opened.turn if opened.sqlite else nullcontext(), self._begun(opened.engine) as connection:
            yield connection

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """Only to look: writers are not kept waiting by others who look."""
        engine = self._of_this_loop().engine.execution_options(reads_only=True)
        async with self._begun(engine) as connection:
            yield connection

    async def prepare(self, metadata: MetaData) -> None:
        """Create the tables and columns that are missing. Nothing is ever dropped, renamed or changed. Raises
        ConfigurationError for columns that are there and cannot hold what will be written."""
        async with self.transaction() as connection:
            await connection.run_sync(create_missing, metadata)
            problems = await connection.run_sync(problems_with, metadata)
        if problems:
            raise ConfigurationError(named(self._variable, "; ".join(problems)))

    async def close(self) -> None:
        """What this event loop had open. It may be used again."""
        opened = self._opened.pop(asyncio.get_running_loop(), None)
        if opened is not None:
            await opened.engine.dispose()

    def _of_this_loop(self) -> _Opened:
        loop = asyncio.get_running_loop()
        if loop not in self._opened:
            self._opened[loop] = _Opened(self._url, self._variable)
        return self._opened[loop]

    @asynccontextmanager
    async def _begun(self, engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
        connected = False
        try:
            async with engine.begin() as connection:
                connected = True
                yield connection
        except (DBAPIError, OSError) as error:
            if (told := sentence(self.place, error, connected=connected)) is not None:
                raise DatabaseUnavailable(named(self._variable, told)) from error
            if isinstance(error, DBAPIError):
                raise refused(self.place, error) from None  # its cause has the whole statement in its message
            raise


def _sqlite(url: str) -> AsyncEngine:
    """A few connections are kept: each has a thread, and whoever starts one waits for it on the event loop,
    a tenth of a second where others are at work."""
    at = make_url(url).set(drivername="sqlite+aiosqlite")
    kept = {"poolclass": AsyncAdaptedQueuePool, "pool_size": KEPT, "max_overflow": -1}
    engine = create_async_engine(at, connect_args={"timeout": WAIT}, **kept)
    event.listen(engine.sync_engine, "connect", _connected)
    event.listen(engine.sync_engine, "begin", _begin)
    return engine


def _postgres(url: str, variable: str) -> AsyncEngine:
    """Tried before each use: a server that was restarted meanwhile has forgotten its connections. The driver
    reads the address itself: SQLAlchemy would not know what `sslmode=require` is."""
    try:
        import asyncpg
    except ModuleNotFoundError:
        needs = "PostgreSQL needs a driver; pip install 'tidemill[postgres]'"
        raise ConfigurationError(named(variable, needs)) from None

    def connect(**_: object) -> Any:
        return asyncpg.connect(url, timeout=WAIT)

    return create_async_engine("postgresql+asyncpg://", async_creator=connect, pool_pre_ping=True)


def _connected(connection: Any, _: object) -> None:
    """SQLAlchemy begins transactions, not the driver: that one would begin only at the first write."""
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin(connection: Connection) -> None:
    """Who reads first and then finds that somebody else has written would fail at once, whatever the
    timeout: a transaction that may write takes its turn at the beginning."""
    reads_only = connection.get_execution_options().get("reads_only", False)
    connection.exec_driver_sql("BEGIN" if reads_only else "BEGIN IMMEDIATE")
