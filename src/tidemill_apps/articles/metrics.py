"""Metrics and alerts of the articles application (requirements E12 and E13)."""

from __future__ import annotations

from tidemill import State, Tidemill
from tidemill_apps.common.status import WAITING_STATES, count_jobs

DURATION_BUCKETS_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class ArticleMetrics:
    """Metrics of embedding, written by every worker: a histogram of durations, and counters. The failure rate
    is failed / (failed + embedded). The mean duration is the histogram's sum / count."""

    def __init__(self, app: Tidemill) -> None:
        metrics = app.metrics
        self._seconds = metrics.histogram(
            "articles_embedding_duration_seconds",
            "Seconds to embed an article.",
            bounds=list(DURATION_BUCKETS_SECONDS),
        )
        self._embedded = metrics.counter("articles_embedded_total", "Embedded articles.")
        self._failed = metrics.counter("articles_failed_total", "Articles whose embedding failed for good.")
        self._retried = metrics.counter("articles_retried_total", "Failed embeddings that are retried.")
        self._calls = metrics.counter("articles_embedding_calls_total", "Calls to the embeddings API.")
        self._texts = metrics.counter("articles_embedding_texts_total", "Texts sent in these calls.")

    def count_embedded(self, seconds: float) -> None:
        self._embedded.add()
        self._seconds.observe(seconds)

    def count_failed(self, *, final: bool) -> None:
        (self._failed if final else self._retried).add()

    def count_called(self, texts: int) -> None:
        self._calls.add()
        self._texts.add(texts)


def declare_metrics(app: Tidemill, queue: str) -> None:
    async def waiting() -> float:
        return float(await count_jobs(app, queue, WAITING_STATES))

    async def in_progress() -> float:
        return float(await count_jobs(app, queue, (State.RUNNING,)))

    app.metrics.gauge("articles_queue_length", "Articles waiting to be embedded.", read=waiting)
    app.metrics.gauge("articles_in_progress", "Articles being embedded.", read=in_progress)
    _declare_alerts(app, queue)


def _declare_alerts(app: Tidemill, queue: str) -> None:
    """Declares the alert rules. They replace Tidemill's default rules, so the useful default rules are
    repeated here. The environment variables TIDEMILL_ALERTS_… set the channels."""
    app.alert("articles failed", on="dead_letters", queue=queue)
    app.alert("articles wait", on="oldest_job", queue=queue, above=3600, clear=600)
    app.alert("embeddings refused", on="pool_closed")
    app.alert("worker gone", on="worker_gone")
    app.alert("store lost", on="store_lost")
