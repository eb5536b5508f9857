"""RQ, with the worker that does not fork per job."""

from __future__ import annotations

import logging

import redis
from rq import Queue, SimpleWorker

from benchmarks.adapters.base import BlockingAdapter, split_jobs
from benchmarks.start_log import StartLogRow

ROW: list[StartLogRow] = []
"""The start log row of this process. Jobs name a global function, which finds the row here."""


def noop(sent: float, text: str) -> None:  # noqa: ARG001 - sent as an argument
    for row in ROW:
        row(sent)


class RQ(BlockingAdapter):
    settings = "SimpleWorker (no fork per job), results dropped (result_ttl=0)"
    acknowledges = "removes the job after it ran; a dead worker's jobs are put to the failed ones"

    def open(self, url: str) -> None:
        logging.disable(logging.WARNING)
        self._queue = Queue("bench", connection=redis.Redis.from_url(url))

    def send(self, sent: float, text: str = "") -> None:
        self._queue.enqueue(noop, sent, text, result_ttl=0)

    def enqueue_bulk(self, jobs: int) -> None:
        self.preload(jobs)

    def preload(self, jobs: int, text: str = "") -> None:
        for piece in split_jobs(jobs):
            data = [Queue.prepare_data(noop, (0.0, text), result_ttl=0) for _ in range(piece)]
            self._queue.enqueue_many(data)

    def work(self, row: StartLogRow) -> None:
        ROW.append(row)
        SimpleWorker([self._queue], connection=self._queue.connection).work()

    def close(self) -> None:
        self._queue.connection.close()
