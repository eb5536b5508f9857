"""The queues, and what holds them back: job starts of each, and the calls that all of them share.

The window of job starts is the source's own rule. What keeps the provider content is the shared pool: three
queues with limits of their own would still be one account.
"""

from __future__ import annotations

from tidemill import Day, Limit, Pool, Refusal, Retention, Tidemill
from tidemill_apps.music.refusals import without_hint
from tidemill_apps.music.settings import MusicSettings

FULL, METADATA, EMBEDDING = "metadata-generation", "metadata-only", "embedding-only"
WORK_QUEUES = (FULL, METADATA, EMBEDDING)
PIPELINE_QUEUE = "music-pipeline"
CALLS = "music-calls"
RATED_BY_SETTING = (FULL, METADATA)
"""Whose job starts `queue_rate_limit_max` says."""

FAILED_KEPT = 1000
CRASHES = 3
"""A job whose worker died runs again twice at most: the third death is its last."""


class Pools:
    """`calls` is what the provider meters, `starts` the window of job starts of each queue."""

    def __init__(self, app: Tidemill, settings: MusicSettings) -> None:
        self.calls = _calls(app, settings)
        self.starts = {
            queue: app.pool(
                starts_of(queue),
                Limit.jobs(_starts(queue, settings), per=settings.minute_seconds),
                jitter=settings.calls.jitter,
            )
            for queue in WORK_QUEUES
        }


def declare_queues(app: Tidemill) -> None:
    for queue in WORK_QUEUES:
        app.queue(
            queue,
            concurrency=1,
            crash_limit=CRASHES,
            keep_done=Retention(age=0.0),
            keep_failed=Retention(count=FAILED_KEPT),
        )
    app.queue(PIPELINE_QUEUE, concurrency=1, crash_limit=CRASHES)


def starts_of(queue: str) -> str:
    """The pool that counts the queue's job starts."""
    return f"{queue}-starts"


def _starts(queue: str, settings: MusicSettings) -> int:
    return settings.embedding_starts if queue == EMBEDDING else settings.metadata_starts


def _calls(app: Tidemill, settings: MusicSettings) -> Pool:
    calls = settings.calls
    limits = [Limit.requests(calls.per_minute, per=settings.minute_seconds, shape=calls.shape)]
    if calls.per_day:
        limits.append(Limit.requests(calls.per_day, per=Day(calls.zone)))

    def judge(error: object) -> Refusal | None:
        return without_hint(error, calls.breaker_seconds)

    return app.pool(
        CALLS,
        *limits,
        jitter=calls.jitter,
        midnight=calls.midnight_seconds,
        resumes=settings.resumes,
        classify=judge,
    )
