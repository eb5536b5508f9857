"""Huey on SQLite, as its documentation starts it: one consumer with one worker thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import huey

from benchmarks.adapters import Started
from benchmarks.adapters.threads import together

_CONSUMER = "consumer: 1 worker thread, polls after 0.1 s, backing off to 10 s (its defaults)"


class Durable:
    settings = f"SqliteHuey, WAL, synchronous=FULL (its default); {_CONSUMER}"
    acknowledges = "deletes the job before it runs: a crash loses it"
    fsync: bool | None = None

    def open(self, folder: Path) -> None:
        logging.getLogger("huey").setLevel(logging.ERROR)
        options = {} if self.fsync is None else {"fsync": self.fsync}
        self._huey = huey.SqliteHuey(filename=str(folder / "huey.db"), **options)
        self._started: Started = lambda _: None
        self._noop = self._huey.task()(self._handle)

    def _handle(self, sent: float) -> None:
        self._started(sent)

    def enqueue_each(self, jobs: int) -> None:
        for _ in range(jobs):
            self._noop(0.0)

    def preload(self, jobs: int) -> None:
        self.enqueue_each(jobs)

    def enqueue_together(self, jobs: int, producers: int) -> None:
        together(jobs, producers, self._noop)

    def send(self, sent: float) -> None:
        self._noop(sent)

    def drain(self, jobs: int) -> None:
        left = iter(range(jobs - 1, -1, -1))
        empty = threading.Event()

        def count(_: float) -> None:
            if next(left) == 0:
                empty.set()

        with self.serve(count):
            empty.wait()

    @contextmanager
    def serve(self, started: Started) -> Iterator[None]:
        self._started = started
        consumer = self._huey.create_consumer(periodic=False)
        consumer.start()
        try:
            yield
        finally:
            consumer.stop(graceful=True)

    def close(self) -> None:
        self._huey.storage.close()


class NoSync(Durable):
    settings = f"SqliteHuey, WAL, synchronous=OFF (fsync=False); {_CONSUMER}"
    acknowledges = "deletes the job before it runs: a crash loses it; a power cut loses more"
    fsync = False
