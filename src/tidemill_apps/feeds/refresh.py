"""The handler of `rss:fetch`: fetches one feed, stores its articles, and schedules its next run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from hashlib import blake2b
from http import HTTPStatus
from typing import Any, Literal

import msgspec
import structlog
from msgspec.structs import replace

from tidemill import Context, GiveUp, Pool, RetryAfter, SnoozeFor
from tidemill_apps.feeds.article_store import ArticleStore
from tidemill_apps.feeds.documents import FeedDocument, UnreadableFeed
from tidemill_apps.feeds.due_times import (
    DelayReason,
    NextRun,
    RedirectRecord,
    WaitHints,
    count_redirect,
    next_after_failure,
    next_after_success,
    site_wait,
)
from tidemill_apps.feeds.feed_schedules import FeedSchedules, FeedSnapshot
from tidemill_apps.feeds.feed_store import FRESH_STATE, Feed, FeedStore
from tidemill_apps.feeds.fetcher import FetchAnswer, Fetcher, FetchError, FetchErrorKind, FetchRequest
from tidemill_apps.feeds.history import FeedHistory
from tidemill_apps.feeds.parser_process import FeedParser
from tidemill_apps.feeds.sites import mask_url

log = structlog.get_logger("tidemill_apps")
EARLY_TOLERANCE_SECONDS = 1.0
"""A run that is due in less than this is not early."""
OUTAGE_WAIT_SECONDS = 60.0
MAX_RETRY_AFTER_IN_JOB_SECONDS = 60.0
"""A 503 that asks for a longer wait ends the run."""
MAX_ERROR_CHARS = 500
UNCONNECTED_KINDS = (FetchErrorKind.DNS, FetchErrorKind.CONNECT, FetchErrorKind.TIMEOUT)


class FetchTools(msgspec.Struct, frozen=True):
    """The state of a worker that every run uses."""

    fetcher: Fetcher
    parser: FeedParser


class RefreshResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a job. `outcome`: `early` means that the feed was not due, and `superseded` that its URL
    was changed during the fetch."""

    feed_id: str
    article_count: int = 0
    outcome: Literal["fetched", "unchanged", "early", "deleted", "superseded"]


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
        self,
        text: str,
        *,
        retryable: bool = False,
        retry_after: float | None = None,
        gone: bool = False,
        timed_out: bool = False,
    ) -> None:
        super().__init__(text[:MAX_ERROR_CHARS])
        self.retryable, self.retry_after = retryable, retry_after
        self.gone, self.timed_out = gone, timed_out


class FeedRefresh:
    """Refreshes feeds. `site_of` returns the pool key of a URL."""

    def __init__(
        self,
        feeds: FeedStore,
        articles: ArticleStore,
        history: FeedHistory,
        *,
        now: Callable[[], float],
        site_of: Callable[[str], str],
        attempts: int,
    ) -> None:
        self.feeds, self.articles, self.history = feeds, articles, history
        self.now, self.site_of, self.attempts = now, site_of, attempts
        self.pool: Pool
        self.schedules: FeedSchedules

    async def run(self, ctx: Context, snapshot: FeedSnapshot) -> RefreshResult:
        """Refreshes one feed. The row decides, not the snapshot: the row may have changed since."""
        began, feed_id = self.now(), str(snapshot.feed_id)
        feed = await self.feeds.get(feed_id)
        if feed is None:
            ctx.used(requests=0)
            await self.schedules.remove(feed_id)
            return RefreshResult(feed_id=feed_id, outcome="deleted")
        if (due := _earliest_run(feed, snapshot, began)) is not None:
            ctx.used(requests=0)
            await self.schedules.put(feed, due)
            return RefreshResult(feed_id=feed_id, outcome="early")
        run = FeedRun(self, ctx, snapshot, feed, began)
        try:
            return await run.refresh()
        except FeedFailure as failure:
            run.log("feed failed", error=str(failure))
            if failure.retryable and ctx.attempt < self.attempts:
                if failure.retry_after is not None:
                    raise RetryAfter(failure.retry_after, str(failure)) from None
                raise
            await run.record_failure(failure)
            raise GiveUp(str(failure)) from None


def _earliest_run(feed: Feed, snapshot: FeedSnapshot, now: float) -> NextRun | None:
    """Returns when the feed may be fetched, or None if now. A run by hand ignores the feed's times, but never
    a Retry-After."""
    closed = feed.state.closed_until
    if closed is not None and closed > now and feed.state.url == feed.url:
        return NextRun(closed, DelayReason.RETRY_AFTER)
    if snapshot.priority == "manual":
        return None
    due = feed.next_run(now)
    is_early = due.at > now + EARLY_TOLERANCE_SECONDS
    return due if is_early or feed.state.paused else None


class FeedRun:
    """One run of `rss:fetch` for one feed."""

    def __init__(
        self, refresh: FeedRefresh, ctx: Context, snapshot: FeedSnapshot, feed: Feed, began: float
    ) -> None:
        self._refresh, self._ctx, self._snapshot = refresh, ctx, snapshot
        self._feed, self._began = feed, began
        self._discovered = False
        self._tools: FetchTools = ctx.state
        self._reserved_site: str | None = refresh.site_of(snapshot.feed_url)

    async def refresh(self) -> RefreshResult:
        answer = await self._fetch()
        document = await self._read(answer)
        if self._discovered:
            answer = await self._fetch()
            document = await self._read(answer)
        return await self._record_success(answer, document)

    async def _fetch(self) -> FetchAnswer:
        """Fetches the feed's URL. The claim has reserved one request to the site of the snapshot; every other
        request reserves its own."""
        feed, owner = self._feed, self._refresh
        site = owner.site_of(feed.url)
        validators = feed.state if feed.state.url == feed.url else None
        request = FetchRequest(
            url=feed.url,
            etag=None if validators is None else validators.etag,
            last_modified=None if validators is None else validators.last_modified,
        )
        try:
            async with AsyncExitStack() as stack:

                async def reserve(url: str) -> None:
                    await stack.enter_async_context(self._ctx.spend(owner.pool, key=owner.site_of(url)))

                if self._reserved_site != site:
                    if self._reserved_site is not None:
                        self._ctx.used(requests=0)
                    await reserve(feed.url)
                claimed, self._reserved_site = self._reserved_site, None
                answer = await self._tools.fetcher.fetch(request, reserve)
                self._raise_if_refused(answer)
        except FetchError as error:
            raise await self._explain(error, site) from None
        except SiteRefused as refused:
            await self._record_refusal(refused)
            if refused.site != claimed:  # this job waits for another key, which stays open
                raise SnoozeFor(refused.wait or OUTAGE_WAIT_SECONDS, str(refused)) from None
            raise
        self._raise_for_status(answer, request)
        return answer

    def _raise_if_refused(self, answer: FetchAnswer) -> None:
        if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
            wait = site_wait(answer.retry_after, answer.headers, self._refresh.now())
            raise SiteRefused(self._refresh.site_of(answer.url), wait)

    async def _explain(self, error: FetchError, site: str) -> Exception:
        """Returns the failure of a fetch without an answer. If nothing could be reached in the last minute,
        it is our network, and the job waits without a failure."""
        owner, now = self._refresh, self._refresh.now()
        unconnected = error.kind in UNCONNECTED_KINDS
        if unconnected:
            async with owner.feeds.database.transaction() as connection:
                await owner.history.count_connection(connection, site, now, connected=False)
            if (await owner.history.connections(now)).network_down:
                return SnoozeFor(OUTAGE_WAIT_SECONDS, "no site can be reached; this looks like our network")
        timed_out = error.kind is FetchErrorKind.TIMEOUT
        return FeedFailure(error.text, retryable=error.retryable, timed_out=timed_out)

    def _raise_for_status(self, answer: FetchAnswer, request: FetchRequest) -> None:
        status = answer.status
        if answer.body is not None:
            return
        if status == HTTPStatus.NOT_MODIFIED:
            if request.etag is None and request.last_modified is None:
                raise FeedFailure("the server answered 304 (not modified) to a request without a condition")
            return
        text = f"the server answered {status} ({_phrase(status)})"
        if status == HTTPStatus.SERVICE_UNAVAILABLE and answer.retry_after is not None:
            short = answer.retry_after <= MAX_RETRY_AFTER_IN_JOB_SECONDS
            raise FeedFailure(text, retryable=short, retry_after=answer.retry_after)
        server_error = status >= HTTPStatus.INTERNAL_SERVER_ERROR
        raise FeedFailure(text, retryable=server_error, retry_after=None, gone=status == HTTPStatus.GONE)

    async def _read(self, answer: FetchAnswer) -> FeedDocument | None:
        """Returns the document of an answer; None if it is the stored one, or if it is an HTML page whose
        feed replaces the URL of a new feed."""
        state = self._feed.state
        if answer.body is None or (state.url == self._feed.url and _digest(answer.body) == state.digest):
            return None
        try:
            return await self._tools.parser.parse(answer.body, answer.content_type, answer.url)
        except UnreadableFeed as error:
            if state.succeeded == 0 and not self._discovered and await self._discover(answer):
                return None
            raise FeedFailure(str(error)) from None

    async def _discover(self, answer: FetchAnswer) -> bool:
        """Gives the feed the first URL that the HTML page names and that no other feed has. Returns False if
        there is none."""
        body = answer.body or b""
        try:
            links = await self._tools.parser.find_links(body, answer.content_type, answer.url)
        except UnreadableFeed:
            return False
        for link in links:
            if link.url != self._feed.url and await self._refresh.feeds.find_by_url(link.url) is None:
                await self._refresh.feeds.change(self._feed.id, url=link.url)
                self._feed, self._discovered = replace(self._feed, url=link.url), True
                break
        return self._discovered

    async def _record_success(self, answer: FetchAnswer, document: FeedDocument | None) -> RefreshResult:
        owner, now, count = self._refresh, self._refresh.now(), 0
        redirect = count_redirect(self._earlier_redirect, answer.permanent_url, now)
        target = await self._confirmed_target(redirect, now)
        async with owner.feeds.database.transaction() as connection:
            current = await owner.feeds.load(connection, self._feed.id)
            if current is None or current.url != self._feed.url:
                outcome: Any = "deleted" if current is None else "superseded"
                return RefreshResult(feed_id=self._feed.id, outcome=outcome)
            if document is not None:
                count = await owner.articles.store_entries(connection, current.id, document.entries, now)
            ttl = None if document is None else document.ttl_seconds
            hints = WaitHints(retry_after=answer.retry_after, max_age=answer.max_age, ttl=ttl)
            next_run = next_after_success(now, current.interval_seconds, hints)
            row = {"last_fetched": now, "last_fetch_status": "success", "last_fetch_error": None}
            if not current.title and document is not None and document.title:
                row["title"] = document.title
            values = _success_values(current, answer, next_run, now)
            values |= _redirect_values(None if target else redirect)
            if target is not None:
                row["url"] = values["url"] = target
            await owner.feeds.change_row(connection, current.id, row)
            await owner.feeds.write_state(connection, current, values)
            site = owner.site_of(answer.url)
            await owner.history.count_connection(connection, site, now, connected=True)
            await owner.history.count_run(
                connection, current.id, now, succeeded=True, articles=count, seconds=now - self._began
            )
        await self._schedule_next(current, row, next_run, timed_out=False)
        self.log("feed refreshed", articleCount=count, delaySeconds=round(next_run.at - now))
        outcome = "unchanged" if document is None else "fetched"
        return RefreshResult(feed_id=current.id, article_count=count, outcome=outcome)

    @property
    def _earlier_redirect(self) -> RedirectRecord | None:
        return self._feed.state.redirect if self._feed.state.url == self._feed.url else None

    async def _confirmed_target(self, redirect: RedirectRecord | None, now: float) -> str | None:
        """Returns the target of a permanent redirect that lasted, which replaces the feed's URL. Returns None
        if another feed has that URL."""
        if redirect is None or not redirect.is_confirmed(now):
            return None
        return redirect.url if await self._refresh.feeds.find_by_url(redirect.url) is None else None

    async def record_failure(self, failure: FeedFailure) -> None:
        """Stores the final failure of the run, and schedules the next run. A feed that was deleted gets
        none."""
        owner, now = self._refresh, self._refresh.now()
        async with owner.feeds.database.transaction() as connection:
            current = await owner.feeds.load(connection, self._feed.id)
            if current is None or current.url != self._feed.url:
                return
            state, fresh = current.state, current.state.url != current.url
            failures = 1 if fresh else state.failures + 1
            next_run = next_after_failure(
                now,
                current.interval_seconds,
                failures,
                retry_after=failure.retry_after,
                gone=failure.gone,
            )
            row = {"last_fetched": now, "last_fetch_status": "failed", "last_fetch_error": str(failure)}
            values = {
                **(FRESH_STATE if fresh else {}),
                **_schedule_values(current, next_run),
                "failures": failures,
                "failing_since": now if fresh or state.failing_since is None else state.failing_since,
                "failed": state.failed + 1,
                "timed_out": failure.timed_out,
                "gone": failure.gone,
                "closed_until": _closed_until(failure.retry_after, now),
            }
            await owner.feeds.change_row(connection, current.id, row)
            await owner.feeds.write_state(connection, current, values)
            await owner.history.count_run(
                connection, current.id, now, succeeded=False, articles=0, seconds=now - self._began
            )
        await self._schedule_next(current, row, next_run, timed_out=failure.timed_out)

    async def _record_refusal(self, refused: SiteRefused) -> None:
        """Stores that the site asked to wait, so that a run by hand does not ask again before."""
        self.log("site refused", error=str(refused))
        if refused.wait is None:
            return
        feed, until = self._feed, self._refresh.now() + refused.wait
        values = {} if feed.state.url == feed.url else FRESH_STATE
        next_run = NextRun(until, DelayReason.RETRY_AFTER)
        await self._refresh.feeds.set_state(
            feed, **{**values, **_schedule_values(feed, next_run), "closed_until": until}
        )

    async def _schedule_next(
        self, feed: Feed, row: dict[str, Any], next_run: NextRun, *, timed_out: bool
    ) -> None:
        state = replace(feed.state, timed_out=timed_out)
        await self._refresh.schedules.put(replace(feed, **row, state=state), next_run)

    def log(self, event: str, **values: Any) -> None:
        """Writes a log line with the fields of requirement S6."""
        log.info(
            event,
            jobId=self._ctx.job_id,
            feedId=self._feed.id,
            feedUrl=mask_url(self._feed.url),
            attempt=self._ctx.attempt,
            priority=self._snapshot.priority,
            duration=round(self._refresh.now() - self._began, 3),
            **values,
        )


def _success_values(feed: Feed, answer: FetchAnswer, next_run: NextRun, now: float) -> dict[str, Any]:
    kept, fresh = feed.state, answer.body is not None
    return {
        **_schedule_values(feed, next_run),
        "etag": answer.etag if fresh else answer.etag or kept.etag,
        "last_modified": answer.last_modified if fresh else answer.last_modified or kept.last_modified,
        "digest": kept.digest if answer.body is None else _digest(answer.body),
        "failures": 0,
        "failing_since": None,
        "succeeded": kept.succeeded + 1,
        "timed_out": False,
        "gone": False,
        "closed_until": _closed_until(answer.retry_after, now),
    }


def _redirect_values(redirect: RedirectRecord | None) -> dict[str, Any]:
    return {
        "redirect_url": None if redirect is None else redirect.url,
        "redirect_count": 0 if redirect is None else redirect.count,
        "redirect_since": None if redirect is None else redirect.since,
    }


def _schedule_values(feed: Feed, next_run: NextRun) -> dict[str, Any]:
    return {
        "url": feed.url,
        "interval": feed.refresh_interval,
        "next_at": next_run.at,
        "next_reason": next_run.reason.value,
    }


def _closed_until(retry_after: float | None, now: float) -> float | None:
    wait = site_wait(retry_after, {}, now)
    return None if not wait else now + wait


def _digest(body: bytes) -> str:
    return blake2b(body, digest_size=16).hexdigest()


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "unknown status"
