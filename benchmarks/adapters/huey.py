"""Huey, whatever it keeps its jobs in: one consumer with one thread, as its documentation starts it."""

from __future__ import annotations

import logging
import time
from abc import abstractmethod

import huey

from benchmarks.adapters.shapes import Blocking, Started, nobody
from benchmarks.tally import Row


class HueyQueue(Blocking):
    acknowledges = "deletes the job before it runs: a crash loses it"

    @abstractmethod
    def storage(self, url: str) -> huey.Huey: ...

    def open(self, url: str) -> None:
        logging.disable(logging.WARNING)
        self._huey = self.storage(url)
        self._started: Started = nobody
        self._noop = self._huey.task(name="noop")(self._handle)

    def _handle(self, sent: float, text: str) -> None:  # noqa: ARG002 - as it was sent
        self._started(sent)

    def send(self, sent: float, text: str = "") -> None:
        self._noop(sent, text)

    def work(self, row: Row) -> None:
        self._started = row
        self._huey.create_consumer(periodic=False).start()
        while True:
            time.sleep(60)
