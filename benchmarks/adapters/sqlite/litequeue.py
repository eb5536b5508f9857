"""litequeue: a queue table with functions. It has no worker, so the adapter contains the loop."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from litequeue import LiteQueue

from benchmarks.adapters.base import BlockingAdapter
from benchmarks.start_log import StartLogRow

POLL = 0.005


class Litequeue(BlockingAdapter):
    settings = (
        f"WAL, synchronous=NORMAL (its default: a power cut loses the last jobs); polled every {POLL} s"
    )
    acknowledges = "marks the job done after it ran; nothing takes back a dead worker's jobs"

    def open(self, url: str) -> None:
        self._path = f"{url}/litequeue.db"
        self._per_thread = threading.local()

    @property
    def _queue(self) -> Any:
        """Returns the connection of this thread; a connection cannot be shared."""
        queue = getattr(self._per_thread, "queue", None)
        if queue is None:
            queue = self._per_thread.queue = LiteQueue(self._path, timeout=60)
        return queue

    def send(self, sent: float, text: str = "") -> None:
        self._queue.put(json.dumps({"sent": sent, "text": text}))

    def work(self, row: StartLogRow) -> None:
        queue = self._queue
        while True:
            message = queue.pop()
            if message is None:
                time.sleep(POLL)
                continue
            row(json.loads(message.data)["sent"])
            claim = getattr(message, "claim_id", None)  # required since 0.10
            queue.done(message.message_id, **({} if claim is None else {"claim_id": claim}))
