"""The upper bound: one row per transaction through apsw."""

from __future__ import annotations

import apsw

from benchmarks.adapters.base import BlockingAdapter
from benchmarks.start_log import StartLogRow


class RawSqliteInsert(BlockingAdapter):
    settings = "apsw, WAL, synchronous=FULL; BEGIN IMMEDIATE; INSERT; COMMIT"
    acknowledges = "not a queue"

    def open(self, url: str) -> None:
        self._connection = apsw.Connection(f"{url}/bare.db")
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

    def send(self, sent: float, text: str = "") -> None:
        raise NotImplementedError

    def work(self, row: StartLogRow) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._connection.close()
