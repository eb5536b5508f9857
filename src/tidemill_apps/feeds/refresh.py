"""The handler of `rss:fetch`: fetches one feed, stores its articles, and schedules its next run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Any

import msgspec
import structlog
from msgspec.structs import replace

from tidemill import ConfigurationError, Context, GiveUp, Pool, RetryAfter, SnoozeFor
from tidemill_apps.feeds.article_store import ArticleStore
from tidemill_apps.feeds.documents import FeedDocument, UnreadableFeed
from tidemill_apps.feeds.due_times import DelayReason, NextRun, count_redirect, site_wait
from tidemill_apps.feeds.feed_schedules import FeedSchedules, FeedSnapshot
from tidemill_apps.feeds.feed_store import Feed, FeedStore
from tidemill_apps.feeds.fetcher import FetchAnswer, Fetcher, FetchError, FetchErrorKind, FetchRequest
from tidemill_apps.feeds.history import FeedHistory
from tidemill_apps.feeds.parser_process import FeedParser
from tidemill_apps.feeds.refresh_outcomes import (
    FeedFailure,
    RefreshResult,
    SiteRefused,
    body_digest,
    raise_for_status,
    state_after_failure,
    state_after_success,
)
from tidemill_apps.feeds.sites import mask_url

log = structlog.get_logger("tidemill_apps")
EARLY_TOLERANCE_SECONDS = 1.0
"""A run that is due in less than this is not early."""
OUTAGE_WAIT_SECONDS = 60.0
UNCONNECTED_KINDS = (FetchErrorKind.DNS, FetchErrorKind.CONNECT, FetchErrorKind.TIMEOUT)


class FetchTools(msgspec.Struct, frozen=True):
    """The state of a worker that every run uses."""

    fetcher: Fetcher
    parser: FeedParser


class FeedRefresh:
    """Refreshes feeds. `site_of` returns the pool key of a URL. The caller sets `pool` and `schedules`."""

    pool: Pool
    schedules: FeedSchedules

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

    async def run(self, ctx: Context, snapshot: FeedSnapshot) -> RefreshResult:
        """Refreshes one feed. The row decides, not the snapshot: the row may have changed since."""
        feed_id = str(snapshot.feed_id)
        feed = await self.feeds.get(feed_id)
        if feed is None:
            ctx.used(requests=0)
            await self.schedules.remove(feed_id)
            return RefreshResult(feed_id=feed_id, outcome="deleted")
        if (due := _earliest_run(feed, snapshot, self.now())) is not None:
            ctx.used(requests=0)
            await self.schedules.put(feed, due)
            return RefreshResult(feed_id=feed_id, outcome="early")
        run = FeedRun(self, ctx, snapshot, feed)
        try:
            return await run.refresh()
        except FeedFailure as failure:
            run.log("feed failed", error=str(failure))
            if failure.retryable and ctx.attempt < self.attempts:
                if failure.retry_after is not None:
                    raise RetryAfter(failure.retry_after, str(failure)) from None
                raise
            await run.record(failure)
            raise GiveUp(str(failure)) from None


def _earliest_run(feed: Feed, snapshot: FeedSnapshot, now: float) -> NextRun | None:
    """Returns when the feed may be fetched, or None if now. A run by hand ignores the feed's times, but never
    a Retry-After."""
    closed = feed.state.for_url(feed.url).closed_until
    if closed is not None and closed > now:
        return NextRun(closed, DelayReason.SERVER_WAIT)
    if snapshot.priority == "manual":
        return None
    due = feed.next_run(now)
    return due if due.at > now + EARLY_TOLERANCE_SECONDS or feed.state.paused else None


class FeedRun:
    """One run of `rss:fetch` for one feed. The claim has reserved one request to the site of the snapshot."""

    def __init__(self, refresh: FeedRefresh, ctx: Context, snapshot: FeedSnapshot, feed: Feed) -> None:
        self._refresh, self._ctx, self._snapshot = refresh, ctx, snapshot
        self._feed, self._began, self._discovered = feed, refresh.now(), False
        self._fetch_tools: FetchTools = ctx.state
        self._reserved_site: str | None = refresh.site_of(snapshot.feed_url)

    async def refresh(self) -> RefreshResult:
        answer = await self._fetch()
        document = await self._read(answer)
        if self._discovered:
            answer = await self._fetch()
            document = await self._read(answer)
        return await self.record(answer, document)

    async def _fetch(self) -> FetchAnswer:
        """Fetches the feed's URL. A second fetch, a redirect, and a URL of another site than the snapshot's
        reserve a request of their own."""
        state, site = self._feed.state.for_url(self._feed.url), self._refresh.site_of(self._feed.url)
        request = FetchRequest(url=self._feed.url, etag=state.etag, last_modified=state.last_modified)
        claimed, self._reserved_site = self._reserved_site, None
        try:
            async with AsyncExitStack() as stack:

                async def reserve(url: str) -> None:
                    key = self._refresh.site_of(url)
                    try:
                        await stack.enter_async_context(self._ctx.spend(self._refresh.pool, key=key))
                    except ConfigurationError:  # two requests of one run never fit into the limit
                        raise self._explain_second_request(key, url) from None

                if claimed != site:
                    if claimed is not None:
                        self._ctx.used(requests=0)
                    await reserve(request.url)
                answer = await self._fetch_tools.fetcher.fetch(request, reserve)
                self._raise_if_refused(answer)
        except FetchError as error:
            raise await self._explain(error, site) from None
        except SiteRefused as refused:
            await self._record_refusal(refused)
            if refused.site != claimed:  # the pool key that this job waits for stays open
                raise SnoozeFor(refused.wait or OUTAGE_WAIT_SECONDS, str(refused)) from None
            raise
        raise_for_status(answer, conditional=bool(state.etag or state.last_modified))
        return answer

    def _raise_if_refused(self, answer: FetchAnswer) -> None:
        if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
            wait = site_wait(answer.retry_after, answer.headers, self._refresh.now())
            raise SiteRefused(self._refresh.site_of(answer.url), wait)

    def _explain_second_request(self, site: str, url: str) -> FeedFailure:
        """Returns the failure of a run that needs a second request to a site that is too slow for it. The URL
        that a page named is stored, so another attempt begins there; a redirect would begin anew."""
        problem = f"{site} allows no second request soon enough, and {mask_url(url)} needs one"
        return FeedFailure(f"{problem}; give the feed this URL", retryable=self._discovered)

    async def _explain(self, error: FetchError, site: str) -> Exception:
        """Returns the failure of a fetch without an answer. If nothing could be reached in the last minute,
        it is our network, and the job waits without a failure."""
        feeds, history, now = self._refresh.feeds, self._refresh.history, self._refresh.now()
        if error.kind in UNCONNECTED_KINDS:
            async with feeds.database.transaction() as connection:
                await history.count_connection(connection, site, now, connected=False)
            if (await history.connections(now)).network_down:
                return SnoozeFor(OUTAGE_WAIT_SECONDS, "no site can be reached; this looks like our network")
        failure = FeedFailure(error.text, retryable=error.retryable)
        failure.timed_out = error.kind is FetchErrorKind.TIMEOUT
        return failure

    async def _record_refusal(self, refused: SiteRefused) -> None:
        """Stores that the site asked to wait, so that a run by hand does not ask again before."""
        self.log("site refused", error=str(refused))
        if refused.wait is not None:
            until = self._refresh.now() + refused.wait
            state = replace(self._feed.state.for_url(self._feed.url), closed_until=until)
            next_run = NextRun(until, DelayReason.SERVER_WAIT)
            state = state.scheduled(self._feed.refresh_interval, next_run)
            await self._refresh.feeds.set_state(self._feed, **state.values)

    async def _read(self, answer: FetchAnswer) -> FeedDocument | None:
        """Returns the document of an answer; None if it is the stored one, or if it is an HTML page whose
        feed replaces the URL of a new feed."""
        state = self._feed.state.for_url(self._feed.url)
        if answer.body is None or body_digest(answer.body) == state.digest:
            return None
        try:
            return await self._fetch_tools.parser.parse(answer.body, answer.content_type, answer.url)
        except UnreadableFeed as error:
            if state.successes or self._discovered or not await self._discover(answer, answer.body):
                raise FeedFailure(str(error)) from None
            return None

    async def _discover(self, answer: FetchAnswer, body: bytes) -> bool:
        """Gives the feed the first URL that the HTML page names and that no other feed has. Returns False if
        there is none."""
        try:
            links = await self._fetch_tools.parser.find_links(body, answer.content_type, answer.url)
        except UnreadableFeed:
            return False
        for link in links:
            if link.url != self._feed.url and await self._refresh.feeds.find_by_url(link.url) is None:
                await self._refresh.feeds.change(self._feed.id, url=link.url)
                self._feed, self._discovered = replace(self._feed, url=link.url), True
                return True
        return False

    async def record(
        self, result: FetchAnswer | FeedFailure, document: FeedDocument | None = None
    ) -> RefreshResult:
        """Stores the outcome of the run in one transaction, and schedules the next run. If the feed was
        deleted, or got another URL, nothing is stored."""
        owner, now, count = self._refresh, self._refresh.now(), 0
        success = not isinstance(result, FeedFailure)
        target = await self._redirect_target(result, now) if isinstance(result, FetchAnswer) else None
        async with owner.feeds.database.transaction() as connection:
            feed = await owner.feeds.load(connection, self._feed.id)
            if feed is None or feed.url != self._feed.url:
                outcome: Any = "deleted" if feed is None else "superseded"
                return RefreshResult(feed_id=self._feed.id, outcome=outcome)
            state = feed.state.for_url(feed.url)
            row: dict[str, Any] = {"last_fetched": now, "last_fetch_error": None}
            if isinstance(result, FeedFailure):
                state, next_run = state_after_failure(feed, state, result, now)
                row |= {"last_fetch_status": "failed", "last_fetch_error": str(result)}
            else:
                if document is not None:
                    row |= {} if feed.title or not document.title else {"title": document.title}
                    count = await owner.articles.store_entries(connection, feed.id, document.entries, now)
                state, next_run = state_after_success(feed, state, result, document, now)
                row["last_fetch_status"] = "success"
                if target is not None:
                    row["url"] = target
                    state = replace(state, url=target, redirect_url=None, redirect_count=0)
                site = owner.site_of(result.url)
                await owner.history.count_connection(connection, site, now, connected=True)
            await owner.feeds.change_row(connection, feed.id, row)
            await owner.feeds.write_state(connection, feed, state.values)
            await owner.history.count_run(
                connection, feed.id, now, success=success, articles=count, seconds=now - self._began
            )
        await owner.schedules.put(replace(feed, **row, state=state), next_run)
        if success:
            self.log("feed refreshed", articleCount=count, delaySeconds=round(next_run.at - now))
        outcome = "failed" if not success else "unchanged" if document is None else "fetched"
        return RefreshResult(feed_id=feed.id, article_count=count, outcome=outcome)

    async def _redirect_target(self, answer: FetchAnswer, now: float) -> str | None:
        """Returns the target of a permanent redirect that lasted, which replaces the feed's URL. Returns None
        if another feed has that URL."""
        before = self._feed.state.for_url(self._feed.url).redirect
        redirect = count_redirect(before, answer.permanent_url, now)
        if redirect is None or not redirect.is_confirmed(now):
            return None
        return redirect.url if await self._refresh.feeds.find_by_url(redirect.url) is None else None

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
