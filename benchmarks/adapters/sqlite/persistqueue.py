"""persist-queue's acknowledged queue. It has no worker, so the adapter contains the loop."""

from __future__ import annotations

import time

import persistqueue
from persistqueue.serializers import json as as_json

from benchmarks.adapters.base import BlockingAdapter
from benchmarks.start_log import StartLogRow

POLL = 0.005


class PersistQueue(BlockingAdapter):
    settings = f"SQLiteAckQueue, WAL, synchronous=FULL (its default), JSON; polled every {POLL} s"
    acknowledges = "marks the job acknowledged after it ran; resumes the rest at the next start"

    def open(self, url: str) -> None:
        self._queue = persistqueue.SQLiteAckQueue(url, multithreading=True, serializer=as_json)

    def send(self, sent: float, text: str = "") -> None:
        self._queue.put({"sent": sent, "text": text})

    def work(self, row: StartLogRow) -> None:
        while True:
            try:
                item = self._queue.get(block=False, raw=True)
            except persistqueue.Empty:
                time.sleep(POLL)
                continue
            row(item["data"]["sent"])
            self._queue.ack(id=item["pqid"])

    def close(self) -> None:
        self._queue.close()
