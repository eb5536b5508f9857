"""The schedule of each feed, and the jobs that are sent directly: overdue feeds and refreshes by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import structlog
from msgspec import Meta
from msgspec.structs import replace

from tidemill import JobRequest, ScheduleNotFound, Task, Tidemill, Unique
from tidemill_apps.feeds.addresses import InvalidFeedUrl, parse_feed_url
from tidemill_apps.feeds.due_times import PRIORITIES, NextRun, Urgency, is_overdue
from tidemill_apps.feeds.feed_store import Feed, FeedStore
from tidemill_apps.feeds.settings import RefreshInterval
from tidemill_apps.feeds.sites import mask_url

log = structlog.get_logger("tidemill_apps")
OnConflict = Literal["skip", "replace", "merge", "rerun"]
NAME_PREFIX = "feed-"
MAX_FEEDS_PER_PAGE = 500
SLOW_KEY = "timed-out"
"""The key of jobs whose feed timed out at its last fetch; the queue limits concurrent jobs per key."""


class FeedSnapshot(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The payload of `rss:fetch`: the feed as it was when the job was created. The handler reads the row."""

    feed_id: UUID
    feed_url: Annotated[str, Meta(pattern=r"^https?://")]
    user_id: UUID | None = None
    last_fetched: datetime | None = None
    refresh_interval: RefreshInterval
    priority: Urgency = "normal"


def schedule_name(feed_id: str) -> str:
    return f"{NAME_PREFIX}{feed_id}"


ON_CONFLICT: Mapping[Urgency, OnConflict] = {"manual": "rerun", "overdue": "merge", "normal": "skip"}
"""The effect of a request while the feed has a job. By hand: a waiting job becomes urgent, and a running job
gets a successor. Overdue: a waiting job becomes urgent. A tick does nothing."""


def feed_unique(feed: FeedSnapshot) -> Unique:
    """Returns the unique key of a feed's job, which ends with the job."""
    return Unique(f"{NAME_PREFIX}{feed.feed_id}", on_conflict=ON_CONFLICT[feed.priority])


class FeedSchedules:
    """Schedules feeds. `fetch` is the task `rss:fetch`. `now` returns the wall time."""

    def __init__(
        self, app: Tidemill, feeds: FeedStore, fetch: Task[..., Any], now: Callable[[], float]
    ) -> None:
        self._app, self._feeds, self._fetch, self._now = app, feeds, fetch, now

    async def put(self, feed: Feed, next_run: NextRun) -> None:
        """Writes the feed's schedule: the next run at its time, then one per interval."""
        await self._app.schedules.upsert_many([self._entry(feed, next_run)])

    async def schedule(self, feeds: Iterable[Feed]) -> None:
        """Schedules feeds that are new or changed, and stores when each is due."""
        now = self._now()
        waiting = [(feed, feed.next_run(now)) for feed in feeds if not feed.state.paused]
        async with self._feeds.database.transaction() as connection:
            for feed, next_run in waiting:
                state = feed.state.for_url(feed.url).scheduled(feed.refresh_interval, next_run)
                await self._feeds.write_state(connection, feed, state.values)
        # A time in the past means now; the same past time again would mean that nothing has changed.
        entries = [self._entry(feed, replace(run, at=max(run.at, now))) for feed, run in waiting]
        await self._app.schedules.upsert_many(entries)
        for feed, run in waiting:
            self._log(feed, run.at - now, "normal")

    async def refresh_now(self, feeds: Sequence[Feed], urgency: Urgency) -> None:
        """Sends a job per feed that starts before the scheduled ones. A job that waits becomes urgent instead
        of a second job."""
        await self._app.enqueue_many([self._request(feed, urgency) for feed in feeds])
        for feed in feeds:
            self._log(feed, 0.0, urgency)

    async def remove(self, *feed_ids: str) -> None:
        await self._app.schedules.remove(*(schedule_name(feed_id) for feed_id in feed_ids))

    async def pause(self, feed: Feed, reason: str | None) -> None:
        """Stops the feed's scheduled fetches until `resume`."""
        await self._feeds.set_state(feed, paused=True)
        with suppress(ScheduleNotFound):  # the check creates none for a feed that is paused
            await self._app.schedules.pause(schedule_name(feed.id), reason=reason)

    async def resume(self, feed: Feed) -> None:
        """Ends a pause; a feed that is due by now is fetched at once."""
        await self._feeds.set_state(feed, paused=False)
        with suppress(ScheduleNotFound):
            await self._app.schedules.resume(schedule_name(feed.id))
        resumed = replace(feed, state=replace(feed.state, paused=False))
        await self.schedule([resumed])

    async def check(self, *, start: bool = False) -> int:
        """Restores what is missing: schedules of feeds without one, and of feeds that another program
        changed. Removes schedules of feeds that do not exist. With `start=True` it also sends overdue feeds.
        Returns how many feeds it scheduled."""
        scheduled, restored, after = await self._names(), 0, ""
        while page := await self._feeds.find(after=after, limit=MAX_FEEDS_PER_PAGE):
            after, now = page[-1].id, self._now()
            active = [feed for feed in page if not feed.state.paused and await self._check_row(feed)]
            changed = [
                feed
                for feed in active
                if schedule_name(feed.id) not in scheduled or not feed.is_scheduled_as_stored
            ]
            await self.schedule(changed)
            restored += len(changed)
            if start:
                await self.refresh_now([feed for feed in active if self._is_overdue(feed, now)], "overdue")
            scheduled -= {schedule_name(feed.id) for feed in page}
        for name in scheduled:
            if await self._feeds.get(name.removeprefix(NAME_PREFIX)) is None:
                await self._app.schedules.remove(name)
        return restored

    async def _check_row(self, feed: Feed) -> bool:
        """Returns False if another program wrote a row that cannot be fetched. The row then has the error."""
        try:
            UUID(feed.id)
            parse_feed_url(feed.url)
        except InvalidFeedUrl as error:
            problem = str(error)
        except ValueError:
            problem = f"id: must be a UUID, is {feed.id[:50]!r}"
        else:
            return True
        if feed.last_fetch_error != problem:
            await self._feeds.change(feed.id, last_fetch_status="failed", last_fetch_error=problem)
        return False

    async def _names(self) -> set[str]:
        found: set[str] = set()
        cursor: str | None = None
        while True:
            page = await self._app.schedules.list(limit=1000, cursor=cursor)
            found |= {view.name for view in page.schedules if view.name.startswith(NAME_PREFIX)}
            if (cursor := page.cursor) is None:
                return found

    def _is_overdue(self, feed: Feed, now: float) -> bool:
        return feed.next_run(now).at <= now and is_overdue(feed.last_fetched, feed.interval_seconds, now)

    def _entry(self, feed: Feed, next_run: NextRun) -> tuple[str, JobRequest[Any], Any]:
        options = {"every": feed.interval_seconds, "next_at": next_run.at}
        return schedule_name(feed.id), self._request(feed, "normal"), options

    def _request(self, feed: Feed, urgency: Urgency) -> JobRequest[Any]:
        last = feed.last_fetched
        snapshot = FeedSnapshot(
            feed_id=UUID(feed.id),
            feed_url=feed.url,
            user_id=None if feed.user_id is None else UUID(feed.user_id),
            last_fetched=None if last is None else datetime.fromtimestamp(last, UTC),
            refresh_interval=feed.refresh_interval,
            priority=urgency,
        )
        options: dict[str, Any] = {"priority": PRIORITIES[urgency]}
        if feed.state.timed_out:
            options["key"] = SLOW_KEY
        return self._fetch.using(**options).job(snapshot)

    def _log(self, feed: Feed, delay: float, urgency: Urgency) -> None:
        log.info(
            "feed scheduled",
            feedId=feed.id,
            feedUrl=mask_url(feed.url),
            delaySeconds=round(max(0.0, delay)),
            priority=urgency,
        )
