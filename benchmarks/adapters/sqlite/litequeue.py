"""litequeue: a queue table and its calls; the loop that uses them is ours to write."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from litequeue import LiteQueue

from benchmarks.adapters.shapes import Blocking
from benchmarks.tally import Row

POLL = 0.005


class Litequeue(Blocking):
    settings = (
        f"WAL, synchronous=NORMAL (its default: a power cut loses the last jobs); polled every {POLL} s"
    )
    acknowledges = "marks the job done after it ran; nothing takes back a dead worker's jobs"

    def open(self, url: str) -> None:
        self._path = f"{url}/litequeue.db"
        self._per_thread = threading.local()

    @property
    def _queue(self) -> Any:
        """A connection belongs to its thread."""
        queue = getattr(self._per_thread, "queue", None)
        if queue is None:
            queue = self._per_thread.queue = LiteQueue(self._path, timeout=60)
        return queue

    def send(self, sent: float, text: str = "") -> None:
        self._queue.put(json.dumps({"sent": sent, "text": text}))

    def work(self, row: Row) -> None:
        queue = self._queue
        while True:
            message = queue.pop()
            if message is None:
                time.sleep(POLL)
                continue
            row(json.loads(message.data)["sent"])
            claim = getattr(message, "claim_id", None)  # asked for since 0.10
            queue.done(message.message_id, **({} if claim is None else {"claim_id": claim}))
