"""What of articles is counted (E12), and when people are told (E13)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill import State, Tidemill
from tidemill_apps.articles.hurrying import WAITS

if TYPE_CHECKING:
    from tidemill_apps.articles.articles import Articles

SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class Measures:
    """Added to by whoever embeds, in any process. The mean time is the histogram's sum by its count, the
    failure rate what failed by what ended."""

    def __init__(self, app: Tidemill) -> None:
        metrics = app.metrics
        self._seconds = metrics.histogram(
            "articles_embedding_seconds",
            "Seconds that the embedding of an article took.",
            bounds=list(SECONDS),
        )
        self._embedded = metrics.counter("articles_embedded_total", "Articles that were embedded.")
        self._failed = metrics.counter("articles_failed_total", "Articles whose embedding failed for good.")
        self._retried = metrics.counter(
            "articles_retried_total", "Embeddings that failed and are tried again."
        )
        self._calls = metrics.counter("articles_embedding_calls_total", "Calls to the embeddings API.")
        self._texts = metrics.counter(
            "articles_embedding_texts_total", "Texts that were sent in those calls."
        )

    def embedded(self, seconds: float) -> None:
        self._embedded.add()
        self._seconds.observe(seconds)

    def failed(self, *, final: bool) -> None:
        (self._failed if final else self._retried).add()

    def called(self, texts: int) -> None:
        self._calls.add()
        self._texts.add(texts)


def declare(articles: Articles) -> None:
    app, queue = articles.app, articles.queue

    async def counted(*states: State) -> float:
        counts = (await app.inspect.counts()).get(queue, {})
        return float(sum(counts.get(state, 0) for state in states))

    async def waiting() -> float:
        return await counted(*WAITS)

    async def in_progress() -> float:
        return await counted(State.RUNNING)

    app.metrics.gauge("articles_queue_length", "Articles that wait to be embedded.", read=waiting)
    app.metrics.gauge("articles_in_progress", "Articles that are being embedded.", read=in_progress)
    _alert(app, queue)


def _alert(app: Tidemill, queue: str) -> None:
    """These take the place of Tidemill's usual ones, so those that matter here are said again. Who is told is
    set by TIDEMILL_ALERTS_…"""
    app.alert("articles failed", on="dead_letters", queue=queue)
    app.alert("articles wait", on="oldest_job", queue=queue, above=3600, clear=600)
    app.alert("embeddings refused", on="pool_closed")
    app.alert("worker gone", on="worker_gone")
    app.alert("store lost", on="store_lost")
