"""The class `Feeds`. It declares the queue, the pool, the task and the webhook. Its methods add, change,
delete and refresh feeds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from msgspec.structs import replace

from tidemill import (
    Context,
    DependencyUnavailable,
    FinishedJob,
    Limit,
    Pool,
    Retention,
    Retry,
    SnoozeFor,
    StoreUnavailable,
    Task,
    Tidemill,
)
from tidemill_apps.common.database import Database, check_separate_files
from tidemill_apps.common.messages import MessageCatalogue
from tidemill_apps.feeds.addresses import InvalidFeedUrl, parse_feed_url
from tidemill_apps.feeds.article_store import ArticleStore
from tidemill_apps.feeds.due_times import DAY_SECONDS
from tidemill_apps.feeds.feed_schedules import FeedSchedules, FeedSnapshot, feed_unique
from tidemill_apps.feeds.feed_store import Feed, FeedStore, NewFeed
from tidemill_apps.feeds.fetcher import Fetcher
from tidemill_apps.feeds.history import FeedHistory
from tidemill_apps.feeds.parser_process import FeedParser
from tidemill_apps.feeds.refresh import FeedRefresh, FetchTools
from tidemill_apps.feeds.refresh_outcomes import RefreshResult, SiteRefused
from tidemill_apps.feeds.settings import FeedsSettings
from tidemill_apps.feeds.sites import mask_url, site_of

MESSAGES = MessageCatalogue(Path(__file__).with_name("locales"))
FEEDS_QUEUE, FETCH_TASK, SITE_POOL = "rss", "rss:fetch", "sites"
DATABASE_VARIABLE = "FEEDS_DATABASE_URL"
TASK_TIMEOUT_SECONDS = 900.0
FIRST_RETRY_SECONDS = 2.0
DATABASE_RETRY_SECONDS = 15.0
DONE_RETENTION = Retention(age=DAY_SECONDS, count=1000)
FAILED_RETENTION = Retention(age=7 * DAY_SECONDS)


class InvalidFeed(ValueError):
    """Raised if a value of a feed is refused. `field` is its name; the message includes a remedy."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


def classify_reply(reply: object) -> Literal[False] | None:
    """Says which answers of a site close its key: only a 429. A 503 or a 403 concerns one feed."""
    return None if isinstance(reply, SiteRefused) else False


class Feeds:
    """The feeds application on the Tidemill object `app`."""

    queue = FEEDS_QUEUE

    def __init__(self, app: Tidemill, settings: FeedsSettings) -> None:
        check_separate_files(app, settings.database_url, DATABASE_VARIABLE)
        self.app, self.settings = app, settings.checked()
        self.site_of = partial(site_of, independent_sites=settings.independent_sites)
        database = Database(settings.database_url, DATABASE_VARIABLE, FeedsSettings().database_url)
        self.store = FeedStore(database)
        self.articles = ArticleStore(self.store, settings.articles_per_feed)
        self.history = FeedHistory(self.store)
        self._refresh = FeedRefresh(
            self.store,
            self.articles,
            self.history,
            now=self.now,
            site_of=self.site_of,
            attempts=settings.attempts,
        )
        self._declare_queue()
        self.pool = self._declare_pool()
        self.fetch = self._fetch_task()
        self.schedules = FeedSchedules(app, self.store, self.fetch, self.now)
        self._refresh.pool, self._refresh.schedules = self.pool, self.schedules
        if settings.webhook_url:
            self._declare_webhook()
        app.lifespan(self._lifespan)
        self._started = False
        app.periodic("feeds", every=settings.check_seconds)(self._check)

    def now(self) -> float:
        return self.app.clock.wall()

    async def add(self, new: Sequence[NewFeed], *, import_id: str | None = None) -> list[Feed]:
        """Adds feeds and schedules them at once. Returns the added ones; a URL that exists is left out."""
        await self.store.prepare()
        checked = [replace(feed, url=check_url(feed.url)) for feed in new]
        added = await self.store.add(checked, import_id)
        await self.schedules.schedule(added)
        return added

    async def change(self, feed: Feed, **values: Any) -> Feed:
        """Changes URL, title or interval of a feed, and moves its next run. A new URL is fetched at once."""
        if "url" in values:
            values["url"] = check_url(values["url"])
            other = await self.store.find_by_url(values["url"])
            if other is not None and other.id != feed.id:
                raise InvalidFeed("url", f"feed {other.id} has this URL already; use that feed")
        await self.store.change(feed.id, **values)
        changed = replace(feed, **values)
        if changed.url != feed.url:
            await self.refresh(changed)
        await self.schedules.schedule([await self._reload(changed)])
        return await self._reload(changed)

    async def delete(self, feed: Feed) -> None:
        """Deletes a feed and its schedule. A job that waits or runs finds no row, and ends."""
        await self.store.delete(feed.id)
        await self.schedules.remove(feed.id)

    async def refresh(self, feed: Feed) -> None:
        """Refreshes a feed now. Its failures no longer lengthen the interval."""
        await self.store.set_state(feed, failures=0)
        await self.schedules.refresh_now([feed], "manual")

    async def close(self) -> None:
        await self.store.database.close()

    async def _reload(self, feed: Feed) -> Feed:
        return await self.store.get(feed.id) or feed

    def _declare_queue(self) -> None:
        self.app.queue(
            FEEDS_QUEUE,
            concurrency=self.settings.concurrency,
            key_concurrency=self.settings.slow_concurrency,
            keep_done=DONE_RETENTION,
            keep_failed=FAILED_RETENTION,
            keep_cancelled=DONE_RETENTION,
        )

    def _declare_pool(self) -> Pool:
        limit = Limit.requests(1, per=self.settings.site_seconds)
        jitter = self.settings.jitter
        return self.app.pool(SITE_POOL, limit, keyed=True, jitter=jitter, classify=classify_reply)

    def _fetch_task(self) -> Task[[FeedSnapshot], RefreshResult]:
        @self.app.task(
            name=FETCH_TASK,
            queue=FEEDS_QUEUE,
            priority=5,
            pool=self.pool.by(lambda feed: self.site_of(feed.feed_url)),
            unique=feed_unique,
            retry=Retry(attempts=self.settings.attempts, first=FIRST_RETRY_SECONDS, jitter=0),
            timeout=TASK_TIMEOUT_SECONDS,
        )
        async def fetch(ctx: Context, feed: FeedSnapshot) -> RefreshResult:
            try:
                return await self._refresh.run(ctx, feed)
            except DependencyUnavailable:
                raise
            except StoreUnavailable as error:  # Tidemill's own store
                raise SnoozeFor(DATABASE_RETRY_SECONDS, str(error)) from None

        return fetch

    def _declare_webhook(self) -> None:
        def body(job: FinishedJob) -> dict[str, Any]:
            count = (job.result or {}).get("articleCount", 0)
            feed_id = job.arguments["feed"]["feedId"]
            return {"event": "feed.refreshed", "feedId": feed_id, "articleCount": count}

        self.app.webhook(
            "feed-refreshed",
            self.settings.webhook_url,
            on=("job.done",),
            tasks=[self.fetch],
            event="feed.refreshed",
            body=body,
        )

    async def _lifespan(self) -> AsyncIterator[FetchTools]:
        await self.store.prepare()
        async with AsyncExitStack() as stack:
            fetcher = await stack.enter_async_context(Fetcher(self.settings.fetch_limits))
            parser = await stack.enter_async_context(FeedParser())
            yield FetchTools(fetcher, parser)
        await self.close()

    async def _check(self) -> None:
        await self.schedules.check(start=not self._started)
        self._started = True
        await self.history.prune(self.now())


def check_url(url: str) -> str:
    """Returns the URL in its normal form. Raises InvalidFeed if it cannot be fetched."""
    try:
        return parse_feed_url(url.strip()).url
    except InvalidFeedUrl as error:
        problem = str(error).removeprefix("url: ")
        raise InvalidFeed(
            "url", f"{problem}, is {mask_url(url)[:200]!r}; give the address of a feed"
        ) from None


def new_import_id() -> str:
    return uuid4().hex
