"""Celery on Redis: one process without a pool, its fastest setting for no-op jobs."""

from __future__ import annotations

from typing import Any

import celery

from benchmarks.adapters.base import BlockingAdapter, Started, ignore_start
from benchmarks.start_log import StartLogRow

PREFETCH = 1_000

WORKER_OPTIONS: dict[str, Any] = {
    "pool": "solo",
    "loglevel": "ERROR",
    "without_gossip": True,
    "without_mingle": True,
    "without_heartbeat": True,
}


def configure_app(app: celery.Celery) -> celery.Celery:
    app.conf.update(
        task_ignore_result=True,
        worker_prefetch_multiplier=PREFETCH,
        worker_disable_rate_limits=True,
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
    )
    return app


class CeleryOnRedis(BlockingAdapter):
    settings = (
        f"pool=solo, prefetch {PREFETCH}, results ignored, no gossip, mingle or heartbeat, no events, rate"
        " limits off"
    )
    acknowledges = "acknowledges just before the job runs (its default): a crash loses it"

    def open(self, url: str) -> None:
        self._app = configure_app(celery.Celery("bench", broker=url))
        self._started: Started = ignore_start

        def noop(sent: float, text: str) -> None:  # noqa: ARG001 - sent as an argument
            self._started(sent)

        self._noop = self._app.task(name="noop")(noop)

    def send(self, sent: float, text: str = "") -> None:
        self._noop.delay(sent, text)

    def work(self, row: StartLogRow) -> None:
        self._started = row
        self._app.Worker(**WORKER_OPTIONS).start()

    def close(self) -> None:
        self._app.close()
