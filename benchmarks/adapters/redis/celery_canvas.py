"""Celery's canvas on Redis: chains, and a chord that counts its parts in the result backend."""

from __future__ import annotations

import celery
from celery import chain, group
from celery.canvas import Signature

from benchmarks.adapters.base import Started, ignore_start
from benchmarks.adapters.redis.celery import WORKER_OPTIONS, configure_app
from benchmarks.start_log import StartLogRow

RESULT_TIMEOUT_SECONDS = 120.0


class CeleryCanvas:
    settings = (
        "as Celery's worker here; Redis as result backend, results kept only where somebody reads them: of a"
        " chain's last step when it is waited for, and of a chord's parts; a canvas is fixed when it is sent"
    )
    acknowledges = (
        "acknowledges just before the job runs (its default): a crash loses it, and the rest of its chain or"
        " chord with it"
    )

    def open(self, url: str) -> None:
        self._app = configure_app(celery.Celery("bench", broker=url, backend=url))
        self._started: Started = ignore_start
        self._register()

    def _register(self) -> None:
        def add_one(value: int) -> int:
            self._started(0.0)
            return value + 1

        def split() -> None:
            self._started(0.0)

        def piece(item: int) -> int:
            self._started(0.0)
            return item

        def join(items: list[int]) -> int:
            self._started(0.0)
            return len(items)

        task = self._app.task
        self._step = task(name="step", ignore_result=True)(add_one)
        self._last = task(name="last", ignore_result=False)(add_one)
        self._split = task(name="split", ignore_result=True)(split)
        self._piece = task(name="piece", ignore_result=False)(piece)
        self._join = task(name="join", ignore_result=False)(join)

    def _chain(self, steps: int, last: Signature) -> Signature:
        return chain(self._step.s(0), *(self._step.s() for _ in range(steps - 2)), last)

    def send_chains(self, chains: int, steps: int) -> None:
        for _ in range(chains):
            self._chain(steps, self._step.s()).apply_async()

    def run_chain(self, steps: int) -> int:
        return int(self._chain(steps, self._last.s()).apply_async().get(timeout=RESULT_TIMEOUT_SECONDS))

    def run_fan_out(self, width: int) -> int:
        pieces = group(self._piece.si(number) for number in range(width))
        whole = chain(self._split.si(), pieces, self._join.s())
        return int(whole.apply_async().get(timeout=RESULT_TIMEOUT_SECONDS))

    def work(self, row: StartLogRow) -> None:
        self._started = row
        self._app.Worker(**WORKER_OPTIONS).start()

    def close(self) -> None:
        self._app.close()
