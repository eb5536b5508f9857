"""persist-queue's acknowledged queue; the loop that uses it is ours to write."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from pathlib import Path

import persistqueue
from persistqueue.serializers import json as as_json

from benchmarks.adapters import Started
from benchmarks.adapters.threads import background, together

POLL = 0.005


class PersistQueue:
    settings = f"SQLiteAckQueue, WAL, synchronous=FULL (its default), JSON; polled every {POLL} s"
    acknowledges = "marks the job acknowledged after it ran; resumes the rest at the next start"

    def open(self, folder: Path) -> None:
        self._queue = persistqueue.SQLiteAckQueue(str(folder), multithreading=True, serializer=as_json)

    def enqueue_each(self, jobs: int) -> None:
        for _ in range(jobs):
            self._queue.put({"sent": 0.0})

    def preload(self, jobs: int) -> None:
        self.enqueue_each(jobs)

    def enqueue_together(self, jobs: int, producers: int) -> None:
        together(jobs, producers, self.send)

    def send(self, sent: float) -> None:
        self._queue.put({"sent": sent})

    def drain(self, jobs: int) -> None:
        for _ in range(jobs):
            self._run_next(lambda _: None)

    def serve(self, started: Started) -> AbstractContextManager[None]:
        def loop(stop: threading.Event) -> None:
            while not stop.is_set():
                if not self._run_next(started):
                    stop.wait(POLL)

        return background(loop)

    def _run_next(self, started: Started) -> bool:
        try:
            item = self._queue.get(block=False, raw=True)
        except persistqueue.Empty:
            return False
        started(item["data"]["sent"])
        self._queue.ack(id=item["pqid"])
        return True

    def close(self) -> None:
        self._queue.close()
