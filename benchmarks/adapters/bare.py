"""The floor: one row per transaction straight through apsw, nothing around it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import apsw

from benchmarks.adapters import Started


class Bare:
    settings = "apsw, WAL, synchronous=FULL; BEGIN IMMEDIATE; INSERT; COMMIT"
    acknowledges = "not a queue"

    def open(self, folder: Path) -> None:
        self._connection = apsw.Connection(str(folder / "bare.db"))
        for statement in (
            "PRAGMA journal_mode=WAL",
            "PRAGMA synchronous=FULL",
            "CREATE TABLE job (id TEXT, queue TEXT, task TEXT, payload BLOB)",
        ):
            self._connection.execute(statement)

    def enqueue_each(self, jobs: int) -> None:
        execute = self._connection.execute
        for number in range(jobs):
            execute("BEGIN IMMEDIATE")
            row = (f"{number:032x}", "default", "noop", b'{"sent":0.0}')
            execute("INSERT INTO job VALUES (?, ?, ?, ?)", row)
            execute("COMMIT")

    def preload(self, jobs: int) -> None:
        raise NotImplementedError

    def enqueue_together(self, jobs: int, producers: int) -> None:
        raise NotImplementedError

    def drain(self, jobs: int) -> None:
        raise NotImplementedError

    def send(self, sent: float) -> None:
        raise NotImplementedError

    def serve(self, started: Started) -> AbstractContextManager[None]:
        raise NotImplementedError

    def close(self) -> None:
        self._connection.close()
