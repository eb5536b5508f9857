"""A connection for reading: long looks never hold up the writer."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import apsw

from tidemill.clock import Clock
from tidemill.stores.sqlite.connection import connect
from tidemill.stores.sqlite.faults import translated
from tidemill.stores.sqlite.inbox import has_anything
from tidemill.stores.sqlite.settings import SettingsCache
from tidemill.stores.sqlite.transaction import Transaction

T = TypeVar("T")


class ReadConnection:
    """`file_inbox` is asked before a look that would miss jobs which are accepted but not filed."""

    def __init__(self, path: Path, clock: Clock, file_inbox: Callable[[], None]) -> None:
        self._path, self._clock, self._file_inbox = path, clock, file_inbox
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._connection: apsw.Connection | None = None
        self._settings = SettingsCache()

    async def run(self, read: Callable[[Transaction], T]) -> T:
        return await asyncio.to_thread(self.run_here, read)

    def run_here(self, read: Callable[[Transaction], T]) -> T:
        """One consistent look: everything `read` asks is answered from the same snapshot."""
        if os.getpid() != self._pid:
            self._start_afresh()
        with self._lock, translated(self._path):
            if self._connection is None:
                self._connection = connect(self._path)
            if has_anything(self._connection):
                self._file_inbox()
            self._connection.execute("BEGIN")
            try:
                return read(
                    Transaction(self._connection, self._clock.wall(), self._clock.boot(), self._settings)
                )
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("COMMIT")

    def close(self) -> None:
        with self._lock:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
            self._connection = None
