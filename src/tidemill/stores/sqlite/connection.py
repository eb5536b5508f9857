"""Opens connections to the database file, closes them around a fork, and runs reads on separate
connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar
from weakref import WeakSet

import apsw

from tidemill.clock import Clock
from tidemill.errors import StoreError, StoreUnavailable
from tidemill.stores.sqlite.errors import translate_errors
from tidemill.stores.sqlite.file import DatabaseFile
from tidemill.stores.sqlite.insert_inbox import has_jobs
from tidemill.stores.sqlite.migrations import check_owner, migrate
from tidemill.stores.sqlite.settings_cache import SettingsCache
from tidemill.stores.sqlite.transaction import SqliteTransaction


class ForkHooks(Protocol):
    def before_fork(self) -> None: ...
    def after_fork_in_parent(self) -> None: ...
    def after_fork_in_child(self) -> None: ...


# Readers first: a reader may ask the writer for something while it holds its lock, never the other way
# round.
_readers: WeakSet[ForkHooks] = WeakSet()
_writers: WeakSet[ForkHooks] = WeakSet()
_locked_for_fork: list[ForkHooks] = []


def survive_forks(forkable: ForkHooks, *, reader: bool) -> None:
    (_readers if reader else _writers).add(forkable)


def _before_fork() -> None:
    for forkable in [*_readers, *_writers]:
        forkable.before_fork()
        _locked_for_fork.append(forkable)


def _after_fork_in_parent() -> None:
    while _locked_for_fork:
        _locked_for_fork.pop().after_fork_in_parent()


def _after_fork_in_child() -> None:
    while _locked_for_fork:
        _locked_for_fork.pop().after_fork_in_child()


with contextlib.suppress(AttributeError):  # no forks on this system
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
    )


BUSY_TIMEOUT_SECONDS = 3.5
"""Less than the 5 s an enqueue may take, so that the caller sees a locked file and not a timeout."""
CACHE_KIB = 32 * 1024


def connect(file: DatabaseFile, busy_timeout: BusyTimeout) -> apsw.Connection:
    """Returns a new connection, with the schema migrated to this version of Tidemill. Creates the file if
    needed."""
    path = file.path
    if not path.parent.is_dir():
        raise StoreUnavailable(f"{path}: the folder {path.parent} does not exist; create it first")
    if path.is_dir():
        raise StoreUnavailable(f"{path}: this is a folder; name a file in it")
    with translate_errors(path):
        location = file.locate()
        flags = apsw.SQLITE_OPEN_READWRITE  # SQLite itself would create the file with other permissions
        connection = apsw.Connection(location.path, flags=flags, statementcachesize=200)
        try:
            connection.set_busy_handler(busy_timeout.wait)
            check_owner(connection, path)
            _prepare(connection, path, busy_timeout)
            migrate(connection, path)
        except BaseException:
            connection.close()
            raise
    file.remember(location)
    return connection


def _prepare(connection: apsw.Connection, path: Path, busy_timeout: BusyTimeout) -> None:
    # Otherwise SQLite plans a statement again for every new parameter: a claim took twice as long.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    if _enable_wal(connection, busy_timeout) != "wal":
        raise StoreUnavailable(
            f"{path}: the file system cannot share a write-ahead log; put the file on a local disk"
        )
    connection.pragma("synchronous", "full")
    connection.pragma("wal_autocheckpoint", 1000)
    connection.pragma("cache_size", -CACHE_KIB)
    connection.pragma("temp_store", "memory")


def _enable_wal(connection: apsw.Connection, busy_timeout: BusyTimeout) -> str:
    """Switches the database to write-ahead logging and returns the journal mode. Retries while the file is
    locked, because SQLite calls no busy handler here."""
    tries = 0
    while True:
        try:
            mode: str = connection.pragma("journal_mode", "wal")
        except apsw.BusyError:
            if not busy_timeout.wait(tries):
                raise
            tries += 1
        else:
            return mode


class BusyTimeout:
    """A busy handler for SQLite that waits for a locked file. `remaining`: how many seconds the handler still
    waits.

    SQLite's own handler sleeps up to 100 ms at a time. This one sleeps at most 2 ms."""

    def __init__(self) -> None:
        self.remaining = BUSY_TIMEOUT_SECONDS

    def wait(self, tries: int) -> bool:
        if self.remaining <= 0:
            return False
        nap = min(0.0001 * (tries + 1), 0.002)
        self.remaining -= nap
        time.sleep(nap)
        return True


T = TypeVar("T")


class ReadConnection:
    """Runs reads on a separate connection, one at a time. `file_inbox`: a function that moves new jobs from
    the table `inbox`, which reads do not see, into the table `jobs`."""

    def __init__(self, file: DatabaseFile, clock: Clock, file_inbox: Callable[[], None]) -> None:
        self._file, self._path = file, file.path
        self._clock, self._file_inbox = clock, file_inbox
        self._closed = False
        self._reset()
        survive_forks(self, reader=True)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._connection: apsw.Connection | None = None
        self._settings = SettingsCache()
        self._busy_timeout = BusyTimeout()

    def open(self) -> None:
        self._closed = False

    async def run(self, read: Callable[[SqliteTransaction], T]) -> T:
        return await asyncio.to_thread(self.run_here, read)

    def run_here(self, read: Callable[[SqliteTransaction], T]) -> T:
        """Runs `read` in the caller's thread on one snapshot of the database, and returns its result."""
        with self._lock, translate_errors(self._path):
            if self._closed:
                raise StoreUnavailable(f"{self._path}: the store is closed; open it again to go on")
            if self._connection is None:
                self._connection = connect(self._file, self._busy_timeout)
            self._file.check()
            self._busy_timeout.remaining = BUSY_TIMEOUT_SECONDS
            if has_jobs(self._connection):
                # A full or locked file can still be read; the rows of the inbox are seen later.
                with contextlib.suppress(StoreError):
                    self._file_inbox()
            return self._read(self._connection, read)

    def _read(self, connection: apsw.Connection, read: Callable[[SqliteTransaction], T]) -> T:
        connection.execute("BEGIN")
        try:
            clock = self._clock
            return read(
                SqliteTransaction(connection, clock.wall(), clock.boot(), clock.boot_id, self._settings)
            )
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")  # nothing was written, and a damaged file refuses a COMMIT

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(force=True)

    def before_fork(self) -> None:
        self._lock.acquire()
        self._disconnect()

    def after_fork_in_parent(self) -> None:
        self._lock.release()

    def after_fork_in_child(self) -> None:
        self._reset()
