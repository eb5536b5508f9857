"""The outcomes of a refresh: what an answer or a failure means for the feed's state and its next run."""

from __future__ import annotations

from hashlib import blake2b
from http import HTTPStatus
from typing import Literal

import msgspec
from msgspec.structs import replace

from tidemill_apps.feeds.documents import FeedDocument
from tidemill_apps.feeds.due_times import (
    NextRun,
    WaitHints,
    count_redirect,
    next_after_failure,
    next_after_success,
    site_wait,
)
from tidemill_apps.feeds.feed_store import Feed, FeedState
from tidemill_apps.feeds.fetcher import FetchAnswer

MAX_RETRY_AFTER_IN_JOB_SECONDS = 60.0
"""A 503 that asks for a longer wait ends the run."""
MAX_ERROR_CHARS = 500


class RefreshResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a job. `early`: the feed was not due. `superseded`: its URL changed during the fetch."""

    feed_id: str
    article_count: int = 0
    outcome: Literal["fetched", "unchanged", "failed", "early", "deleted", "superseded"]


class SiteRefused(Exception):
    """Raised if a site answers 429. The pool reads `status` and `headers`, and closes the key of the site."""

    def __init__(self, site: str, wait: float | None) -> None:
        super().__init__(f"{site} answered 429 (too many requests)")
        self.status = int(HTTPStatus.TOO_MANY_REQUESTS)
        self.headers = {} if wait is None else {"retry-after": f"{wait:.3f}"}
        self.site, self.wait = site, wait


class FeedFailure(Exception):
    """Raised if a feed could not be refreshed. `retry_after` is the wait that the server asked for."""

    def __init__(
        self, text: str, *, retryable: bool = False, retry_after: float | None = None, gone: bool = False
    ) -> None:
        super().__init__(text[:MAX_ERROR_CHARS])
        self.retryable, self.retry_after, self.gone = retryable, retry_after, gone
        self.timed_out = False


def raise_for_status(answer: FetchAnswer, *, conditional: bool) -> None:
    status = answer.status
    if answer.body is not None or (status == HTTPStatus.NOT_MODIFIED and conditional):
        return
    phrase = HTTPStatus(status).phrase if status in set(HTTPStatus) else "unknown status"
    text, wait = f"the server answered {status} ({phrase})", answer.retry_after
    if status == HTTPStatus.SERVICE_UNAVAILABLE and wait is not None:
        raise FeedFailure(text, retryable=wait <= MAX_RETRY_AFTER_IN_JOB_SECONDS, retry_after=wait)
    server_error = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    raise FeedFailure(text, retryable=server_error, gone=status == HTTPStatus.GONE)


def state_after_success(
    feed: Feed, state: FeedState, answer: FetchAnswer, document: FeedDocument | None, now: float
) -> tuple[FeedState, NextRun]:
    """Returns the state after a success, and the next run. A 304 may leave out the validators."""
    ttl = None if document is None else document.ttl_seconds
    hints = WaitHints(retry_after=answer.retry_after, max_age=answer.max_age, ttl=ttl)
    next_run = next_after_success(now, feed.interval_seconds, hints)
    redirect = count_redirect(state.redirect, answer.permanent_url, now)
    kept = state if answer.body is None else FeedState()
    after = replace(
        state,
        etag=answer.etag or kept.etag,
        last_modified=answer.last_modified or kept.last_modified,
        digest=kept.digest if answer.body is None else body_digest(answer.body),
        failures=0,
        failing_since=None,
        successes=state.successes + 1,
        timed_out=False,
        gone=False,
        closed_until=_closed_until(answer.retry_after, now),
        redirect_url=None if redirect is None else redirect.url,
        redirect_count=0 if redirect is None else redirect.count,
        redirect_since=None if redirect is None else redirect.since,
    )
    return after.scheduled(feed.refresh_interval, next_run), next_run


def state_after_failure(
    feed: Feed, state: FeedState, failure: FeedFailure, now: float
) -> tuple[FeedState, NextRun]:
    failures, interval = state.failures + 1, feed.interval_seconds
    next_run = next_after_failure(now, interval, failures, retry_after=failure.retry_after, gone=failure.gone)
    after = replace(
        state,
        failures=failures,
        failing_since=now if state.failing_since is None else state.failing_since,
        failed=state.failed + 1,
        timed_out=failure.timed_out,
        gone=failure.gone,
        closed_until=_closed_until(failure.retry_after, now),
    )
    return after.scheduled(feed.refresh_interval, next_run), next_run


def _closed_until(retry_after: float | None, now: float) -> float | None:
    wait = site_wait(retry_after, {}, now)
    return now + wait if wait else None


def body_digest(body: bytes) -> str:
    return blake2b(body, digest_size=16).hexdigest()
