"""Huey on any store: one consumer with one thread, as its documentation starts it."""

from __future__ import annotations

import logging
import time
from abc import abstractmethod

import huey

from benchmarks.adapters.base import BlockingAdapter, Started, ignore_start
from benchmarks.start_log import StartLogRow


class HueyQueue(BlockingAdapter):
    acknowledges = "deletes the job before it runs: a crash loses it"

    @abstractmethod
    def storage(self, url: str) -> huey.Huey: ...

    def open(self, url: str) -> None:
        logging.disable(logging.WARNING)
        self._huey = self.storage(url)
        self._started: Started = ignore_start
        self._noop = self._huey.task(name="noop")(self._handle)

    def _handle(self, sent: float, text: str) -> None:  # noqa: ARG002 - sent as an argument
        self._started(sent)

    def send(self, sent: float, text: str = "") -> None:
        self._noop(sent, text)

    def work(self, row: StartLogRow) -> None:
        self._started = row
        self._huey.create_consumer(periodic=False).start()
        while True:
            time.sleep(60)
