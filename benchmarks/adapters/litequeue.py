"""litequeue: a queue table and its calls; the loop that uses them is ours to write."""

from __future__ import annotations

import json
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from litequeue import LiteQueue

from benchmarks.adapters import Started
from benchmarks.adapters.threads import background, together

POLL = 0.005


class Litequeue:
    settings = (
        f"WAL, synchronous=NORMAL (its default: a power cut loses the last jobs); polled every {POLL} s"
    )
    acknowledges = "marks the job done after it ran; nothing takes back a dead worker's jobs"

    def open(self, folder: Path) -> None:
        self._path = str(folder / "litequeue.db")
        self._queue = LiteQueue(self._path)
        self._per_thread = threading.local()

    def enqueue_each(self, jobs: int) -> None:
        for _ in range(jobs):
            self._queue.put(json.dumps({"sent": 0.0}))

    def preload(self, jobs: int) -> None:
        self.enqueue_each(jobs)

    def enqueue_together(self, jobs: int, producers: int) -> None:
        together(jobs, producers, self._send_from_thread)

    def _send_from_thread(self, sent: float) -> None:
        queue = getattr(self._per_thread, "queue", None)
        if queue is None:
            queue = self._per_thread.queue = LiteQueue(self._path, timeout=60)
        queue.put(json.dumps({"sent": sent}))

    def send(self, sent: float) -> None:
        self._queue.put(json.dumps({"sent": sent}))

    def drain(self, jobs: int) -> None:
        for _ in range(jobs):
            _run_next(self._queue, lambda _: None)

    def serve(self, started: Started) -> AbstractContextManager[None]:
        def loop(stop: threading.Event) -> None:
            queue = LiteQueue(self._path, timeout=60)
            while not stop.is_set():
                if not _run_next(queue, started):
                    time.sleep(POLL)
            queue.close()

        return background(loop)

    def close(self) -> None:
        self._queue.close()


def _run_next(queue: Any, started: Started) -> bool:
    message = queue.pop()
    if message is None:
        return False
    started(json.loads(message.data)["sent"])
    claim = getattr(message, "claim_id", None)  # asked for since 0.10
    queue.done(message.message_id, **({} if claim is None else {"claim_id": claim}))
    return True
