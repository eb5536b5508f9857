"""Celery on Redis, one process without a pool: the quickest it does nothing in."""

from __future__ import annotations

from typing import Any

import celery

from benchmarks.adapters.shapes import Blocking, Started, nobody
from benchmarks.tally import Row

PREFETCH = 1_000

WITHOUT: dict[str, Any] = {
    "pool": "solo",
    "loglevel": "ERROR",
    "without_gossip": True,
    "without_mingle": True,
    "without_heartbeat": True,
}


def configured(app: celery.Celery) -> celery.Celery:
    app.conf.update(
        task_ignore_result=True,
        worker_prefetch_multiplier=PREFETCH,
        worker_disable_rate_limits=True,
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
    )
    return app


class CeleryOnRedis(Blocking):
    settings = (
        f"pool=solo, prefetch {PREFETCH}, results ignored, no gossip, mingle or heartbeat, no events, rate"
        " limits off"
    )
    acknowledges = "acknowledges just before the job runs (its default): a crash loses it"

    def open(self, url: str) -> None:
        self._app = configured(celery.Celery("bench", broker=url))
        self._started: Started = nobody

        def noop(sent: float, text: str) -> None:  # noqa: ARG001 - as it was sent
            self._started(sent)

        self._noop = self._app.task(name="noop")(noop)

    def send(self, sent: float, text: str = "") -> None:
        self._noop.delay(sent, text)

    def work(self, row: Row) -> None:
        self._started = row
        self._app.Worker(**WITHOUT).start()

    def close(self) -> None:
        self._app.close()
