"""Dramatiq on Redis."""

from __future__ import annotations

import logging
import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.adapters.base import BlockingAdapter, Started, ignore_start
from benchmarks.start_log import StartLogRow

THREADS = 8


class Dramatiq(BlockingAdapter):
    settings = f"RedisBroker with its default middleware; {THREADS} threads (its default)"
    acknowledges = "acknowledges after the job ran; a dead worker's jobs run again"

    def open(self, url: str) -> None:
        logging.disable(logging.WARNING)
        self._broker = RedisBroker(url=url)
        dramatiq.set_broker(self._broker)
        self._started: Started = ignore_start
        self._registered = dramatiq.actor(actor_name="noop")(self._noop)

    def _noop(self, sent: float, text: str) -> None:  # noqa: ARG002 - sent as an argument
        self._started(sent)

    def send(self, sent: float, text: str = "") -> None:
        self._registered.send(sent, text)

    def work(self, row: StartLogRow) -> None:
        self._started = row
        dramatiq.Worker(self._broker, worker_threads=THREADS).start()
        while True:
            time.sleep(60)

    def close(self) -> None:
        self._broker.close()
