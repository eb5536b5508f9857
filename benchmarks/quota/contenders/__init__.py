"""The contenders: how their processes start, and why their settings are the best in their documentation."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.quota.process_settings import ProcessSettings

SLOTS = 40
"""Maximum concurrent calls of every contender; fewer if only the provider limits the concurrency."""

CELERY_SLOTS = 12
"""Celery's limiter spreads the calls, so that fewer than five run at once. More slots would only make it
prefetch more jobs, and each job that waits in a worker keeps a timer running there."""


@dataclass(frozen=True)
class Contender:
    """One contender.

    `work` is the command of its worker processes, and `processes` their number. Each prints `ready`
    `times` times when it waits for jobs. `enqueue` is the command that enqueues the jobs; None if the
    workers create them."""

    name: str
    settings: str
    work: Callable[[ProcessSettings], list[str]]
    ready: str = "ready"
    times: int = 1
    processes: int = 1
    workers: int = 1
    enqueue: str | None = None
    rule: str = ""
    needs_redis: bool = False


def _module(name: str, *words: str) -> list[str]:
    return [sys.executable, "-m", f"benchmarks.quota.contenders.{name}", *words]


def _tidemill(setting: ProcessSettings) -> list[str]:
    app = "benchmarks.quota.contenders.tidemill_app:app"
    return [sys.executable, "-m", "tidemill", "worker", app, "--processes", str(setting.workers)]


def _celery(setting: ProcessSettings) -> list[str]:
    """Returns the command of one worker; `rate_limit` and `--concurrency` apply per worker."""
    each = max(1, (setting.account.at_once or CELERY_SLOTS) // setting.workers)
    app = ["-A", "benchmarks.quota.contenders.celery_app:app"]
    how = ["--pool=gevent", f"--concurrency={each}", "--without-gossip", "--without-mingle", "-n"]
    return [sys.executable, "-m", "celery", *app, "worker", "-l", "INFO", *how, "worker%%i@%h"]


def _rules(_: ProcessSettings) -> list[str]:
    return _module("simple_limiters")


CONTENDERS = (
    Contender(
        name="Tidemill",
        settings="4 processes on one SQLite file, 10 slots each (its default); the pool declares the "
        "account's limits with the shape each provider documents (paced for Gemini, which documents none) "
        "and jitter=0.25: the usual guard of half a second is meant for minutes, and these take 6 s; the "
        "client connects in the lifespan, as its how-to advises",
        work=_tidemill,
        ready="worker started",
        times=4,
        workers=4,
        enqueue="tidemill_app",
    ),
    Contender(
        name="Celery, one worker",
        settings="`rate_limit` is the account's strictest limit; it holds per worker and not globally, says "
        "its documentation, so there is one, with the gevent pool it advises for calls that wait, 12 at once "
        "and `worker_prefetch_multiplier=1` (5 and its default of 4 where the provider limits calls under "
        "way); on 429 `retry` after the delays of `retry_backoff` (1 s doubled, full jitter, scaled) with no "
        "last attempt; Redis",
        work=_celery,
        ready="ready.",
        enqueue="celery_app",
        needs_redis=True,
    ),
    Contender(
        name="Celery, four workers",
        settings="the same, with a quarter of the rate (and of the calls under way) for each of four workers",
        work=_celery,
        ready="ready.",
        processes=4,
        workers=4,
        enqueue="celery_app",
        needs_redis=True,
    ),
    Contender(
        name="BullMQ",
        settings="4 processes of the Python package, 10 slots each; `setGlobalRateLimit` is the account's "
        "strictest limit, `setGlobalConcurrency` where the provider limits calls under way; `drainDelay` of "
        "1 s, scaled, because its Python worker notices the end of a limit only then; on 429 `rateLimit` for "
        "as long as the answer says, exponential backoff (1 s doubled, scaled), attempts enough; Redis",
        work=lambda _: _module("bullmq_worker"),
        processes=4,
        workers=4,
        enqueue="bullmq_worker",
        needs_redis=True,
    ),
    Contender(
        name="retry with backoff",
        settings="one process, 40 slots (5 where the provider limits calls under way) that call as they can; "
        "on 429 anything up to 1 s, doubled each time up to 60 s, which is what providers' guides advise",
        work=_rules,
        rule="backoff",
    ),
    Contender(
        name="fixed window",
        settings="the same, and in a window never more than the account's strictest limit",
        work=_rules,
        rule="window",
    ),
    Contender(
        name="bucket with b = limit",
        settings="the same, and a token bucket as large as the limit that refills at the limit's rate",
        work=_rules,
        rule="bucket",
    ),
)
