"""A connection for reading: long looks never hold up the writer."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

import apsw

from tidemill.clock import Clock
from tidemill.errors import StoreError, StoreUnavailable
from tidemill.stores.sqlite.connection import BUSY_PATIENCE, Patience, connect
from tidemill.stores.sqlite.faults import translated
from tidemill.stores.sqlite.file import DatabaseFile
from tidemill.stores.sqlite.forking import survive_forks
from tidemill.stores.sqlite.inbox import has_anything
from tidemill.stores.sqlite.settings import SettingsCache
from tidemill.stores.sqlite.transaction import Transaction

T = TypeVar("T")


class ReadConnection:
    """`file_inbox` is asked before a look that would miss jobs which are accepted but not filed."""

    def __init__(self, file: DatabaseFile, clock: Clock, file_inbox: Callable[[], None]) -> None:
        self._file, self._path = file, file.path
        self._clock, self._file_inbox = clock, file_inbox
        self._closed = False
        self._start_afresh()
        survive_forks(self, reader=True)

    def _start_afresh(self) -> None:
        self._lock = threading.Lock()
        self._connection: apsw.Connection | None = None
        self._settings = SettingsCache()
        self._patience = Patience()

    def open(self) -> None:
        self._closed = False

    async def run(self, read: Callable[[Transaction], T]) -> T:
        return await asyncio.to_thread(self.run_here, read)

    def run_here(self, read: Callable[[Transaction], T]) -> T:
        """One consistent look: everything `read` asks is answered from the same snapshot."""
        with self._lock, translated(self._path):
            if self._closed:
                raise StoreUnavailable(f"{self._path}: the store is closed; open it again to go on")
            if self._connection is None:
                self._connection = connect(self._file, self._patience)
            self._file.check()
            self._patience.left = BUSY_PATIENCE
            if has_anything(self._connection):
                # A full or locked file can still be read; what is in the inbox is then seen later.
                with contextlib.suppress(StoreError):
                    self._file_inbox()
            return self._look(self._connection, read)

    def _look(self, connection: apsw.Connection, read: Callable[[Transaction], T]) -> T:
        connection.execute("BEGIN")
        try:
            clock = self._clock
            return read(Transaction(connection, clock.wall(), clock.boot(), clock.boot_id, self._settings))
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
        self._start_afresh()
