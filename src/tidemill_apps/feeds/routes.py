"""The HTTP API of the feeds application, with its request and response types."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tidemill.web import HTTPError, Role, RouteRequest, TextResponse
from tidemill_apps.feeds.article_store import Article
from tidemill_apps.feeds.feed_store import Feed, NewFeed
from tidemill_apps.feeds.history import HourCounts
from tidemill_apps.feeds.opml import InvalidOpml, OpmlOutline, format_opml, parse_opml
from tidemill_apps.feeds.service import MESSAGES, Feeds, InvalidFeed, check_url, new_import_id
from tidemill_apps.feeds.settings import RefreshInterval
from tidemill_apps.feeds.sites import mask_url

MAX_FEEDS_PER_PAGE = 1000
MAX_ARTICLES_LISTED = 100
MAX_REFUSED_LISTED = 20
FeedUrl = Annotated[str, Meta(min_length=1, max_length=2000)]
FeedTitle = Annotated[str, Meta(max_length=500)]


class NewFeedBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """A feed to add. `url` is the feed, or a web page that names its feed."""

    url: FeedUrl
    title: FeedTitle | None = None
    refresh_interval: RefreshInterval | None = None
    user_id: UUID | None = None


class FeedChangeBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """A change to a feed. Fields that the client leaves out do not change."""

    url: FeedUrl | UnsetType = UNSET
    title: FeedTitle | UnsetType = UNSET
    refresh_interval: RefreshInterval | UnsetType = UNSET


class FeedPauseBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    reason: Annotated[str, Meta(max_length=500)] | None = None


class OpmlBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """An OPML document to import, as text."""

    opml: str = ""
    refresh_interval: RefreshInterval | None = None
    user_id: UUID | None = None


class FeedsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`after` is the last id of the previous page."""

    after: UUID | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_FEEDS_PER_PAGE)] = 100
    status: Literal["success", "failed"] | None = None
    text: Annotated[str, Meta(max_length=200)] = ""


class FeedReply(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A feed in a response. `next_reason` says why the next run is at `next_at`."""

    id: str
    user_id: str | None
    title: str | None
    url: str
    refresh_interval: int
    last_fetched: datetime | None
    last_fetch_status: str | None
    last_fetch_error: str | None
    next_at: datetime | None
    next_reason: str | None
    paused: bool
    gone: bool
    failures: int
    successes: int
    failed: int


class OpmlImportReply(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An import. `refused_count` outlines have a URL that cannot be fetched; `refused` has the reasons of the
    first ones."""

    import_id: str
    added: int
    known: int
    refused: tuple[str, ...] = ()
    refused_count: int = 0


class ImportProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How many feeds of an import were fetched for the first time; `failed` is a part of `fetched`."""

    total: int
    fetched: int
    failed: int


class FeedHistoryReply(msgspec.Struct, frozen=True, kw_only=True):
    hours: list[HourCounts]
    articles: list[Article]


class FeedWorkerReply(msgspec.Struct, frozen=True, kw_only=True):
    status: Literal["running", "stopped"]
    concurrency: int


class FeedActions:
    """The actions of the API and the pages. A refused action changes nothing and raises HTTPError."""

    def __init__(self, feeds: Feeds) -> None:
        self.feeds = feeds

    async def load(self, request: RouteRequest) -> Feed:
        """Returns the feed whose id is in the request's path. Raises HTTPError 404 if there is none."""
        await self.feeds.store.prepare()
        named = request.path["id"]
        try:
            feed = await self.feeds.store.get(str(UUID(named)))
        except ValueError:
            feed = None
        if feed is None:
            sentence = MESSAGES.translate(request.language, "unknown", feed=named[:40])
            raise HTTPError(HTTPStatus.NOT_FOUND, sentence, field="id")
        return feed

    async def find(self, query: FeedsQuery, limit: int) -> list[Feed]:
        await self.feeds.store.prepare()
        after = "" if query.after is None else str(query.after)
        return await self.feeds.store.find(after=after, limit=limit, status=query.status, text=query.text)

    async def add(self, request: RouteRequest) -> Feed:
        """Adds the feed of a NewFeedBody."""
        body: NewFeedBody = request.body
        new = self._new_feed(body.url, body.title, body)
        try:
            added = await self.feeds.add([new])
        except InvalidFeed as error:
            raise _refuse(error) from None
        if not added:
            sentence = MESSAGES.translate(request.language, "known", url=mask_url(body.url))
            raise HTTPError(HTTPStatus.CONFLICT, sentence, field="url")
        return added[0]

    async def change(self, feed: Feed, **values: Any) -> Feed:
        try:
            return await self.feeds.change(feed, **values)
        except InvalidFeed as error:
            raise _refuse(error) from None

    async def import_opml(self, body: OpmlBody) -> OpmlImportReply:
        """Adds all feeds of an OPML document in one transaction."""
        try:
            outlines = parse_opml(body.opml)
        except InvalidOpml as error:
            raise HTTPError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error), field="opml") from None
        new, refused = self._check_outlines(outlines, body)
        import_id = new_import_id()
        added = len(await self.feeds.add(list(new.values()), import_id=import_id))
        listed = tuple(refused[:MAX_REFUSED_LISTED])
        return OpmlImportReply(
            import_id=import_id,
            added=added,
            known=len(new) - added,
            refused=listed,
            refused_count=len(refused),
        )

    def _check_outlines(
        self, outlines: Iterable[OpmlOutline], body: OpmlBody
    ) -> tuple[dict[str, NewFeed], list[str]]:
        """Returns the feeds by URL, and a sentence for each outline whose URL cannot be fetched."""
        new: dict[str, NewFeed] = {}
        refused: list[str] = []
        for outline in outlines:
            try:
                url = check_url(outline.url)
                new[url] = self._new_feed(url, outline.title, body)
            except InvalidFeed as error:
                refused.append(str(error))
        return new, refused

    async def import_progress(self, import_id: str) -> ImportProgress:
        await self.feeds.store.prepare()
        counts = await self.feeds.store.counts(import_id)
        total, failed = sum(counts.values()), counts.get("failed", 0)
        return ImportProgress(total=total, fetched=total - counts.get("new", 0), failed=failed)

    def _new_feed(self, url: str, title: str | None, body: NewFeedBody | OpmlBody) -> NewFeed:
        interval = body.refresh_interval or self.feeds.settings.default_interval
        user = None if body.user_id is None else str(body.user_id)
        return NewFeed(url=url, title=title, refresh_interval=interval, user_id=user)


def _refuse(error: InvalidFeed) -> HTTPError:
    return HTTPError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error), field=error.field)


class FeedRoutes:
    def __init__(self, actions: FeedActions) -> None:
        self._actions, self._feeds = actions, actions.feeds

    def declare(self) -> None:
        """Adds the routes to the application."""
        self._declare_reads("/api/feeds/{id}", "/api/feeds/opml")
        self._declare_writes("/api/feeds/{id}", "/api/feeds/opml")

    def _declare_reads(self, one: str, opml: str) -> None:
        reads: tuple[tuple[str, Any, Any, str, Any], ...] = (
            ("/api/feeds", self.list, list[FeedReply], "List feeds.", FeedsQuery),
            (opml, self.export, None, "Export all feeds as OPML.", None),
            ("/api/feeds/imports/{id}", self.progress, ImportProgress, "Progress of an import.", None),
            (one, self.get, FeedReply, "Return a feed.", None),
            (f"{one}/history", self.history, FeedHistoryReply, "Runs per hour, newest articles.", None),
            ("/api/worker", self.worker, FeedWorkerReply, "Whether a worker runs (S12).", None),
        )
        for path, handler, reply, summary, query in reads:
            route = self._feeds.app.web.route
            route("GET", path, role=Role.VIEWER, summary=summary, query=query, response=reply)(handler)

    def _declare_writes(self, one: str, opml: str) -> None:
        writes: tuple[tuple[Any, str, Role, Any, Any, str, Any], ...] = (
            ("POST", "/api/feeds", Role.ADMIN, self.create, FeedReply, "Add a feed.", NewFeedBody),
            ("POST", opml, Role.ADMIN, self.import_opml, OpmlImportReply, "Import feeds.", OpmlBody),
            ("PATCH", one, Role.ADMIN, self.change, FeedReply, "Change a feed.", FeedChangeBody),
            ("DELETE", one, Role.ADMIN, self.delete, None, "Delete a feed and its articles.", None),
            ("POST", f"{one}/refresh", Role.OPERATOR, self.refresh, FeedReply, "Refresh a feed now.", None),
            ("POST", f"{one}/pause", Role.OPERATOR, self.pause, FeedReply, "Pause a feed.", FeedPauseBody),
            ("POST", f"{one}/resume", Role.OPERATOR, self.resume, FeedReply, "Resume a feed.", None),
        )
        for method, path, role, handler, reply, summary, body in writes:
            route = self._feeds.app.web.route
            route(method, path, role=role, summary=summary, body=body, response=reply)(handler)

    async def list(self, request: RouteRequest) -> list[FeedReply]:
        found = await self._actions.find(request.query, request.query.limit)
        return [self._reply(request, feed) for feed in found]

    async def create(self, request: RouteRequest) -> FeedReply:
        return self._reply(request, await self._actions.add(request))

    async def get(self, request: RouteRequest) -> FeedReply:
        return self._reply(request, await self._actions.load(request))

    async def change(self, request: RouteRequest) -> FeedReply:
        feed = await self._actions.load(request)
        given = msgspec.structs.asdict(request.body).items()
        values = {name: value for name, value in given if value is not UNSET}
        return self._reply(request, await self._actions.change(feed, **values) if values else feed)

    async def delete(self, request: RouteRequest) -> None:
        await self._feeds.delete(await self._actions.load(request))

    async def refresh(self, request: RouteRequest) -> FeedReply:
        feed = await self._actions.load(request)
        await self._feeds.refresh(feed)
        return self._reply(request, feed)

    async def pause(self, request: RouteRequest) -> FeedReply:
        await self._feeds.schedules.pause(await self._actions.load(request), request.body.reason)
        return await self.get(request)

    async def resume(self, request: RouteRequest) -> FeedReply:
        await self._feeds.schedules.resume(await self._actions.load(request))
        return await self.get(request)

    async def history(self, request: RouteRequest) -> FeedHistoryReply:
        feed = await self._actions.load(request)
        hours = await self._feeds.history.hours(self._feeds.now(), feed.id)
        return FeedHistoryReply(
            hours=hours, articles=await self._feeds.articles.find(feed.id, MAX_ARTICLES_LISTED)
        )

    async def export(self, request: RouteRequest) -> TextResponse:
        await self._feeds.store.prepare()
        found: list[Feed] = []
        while page := await self._feeds.store.find(
            after=found[-1].id if found else "", limit=MAX_FEEDS_PER_PAGE
        ):
            found += page
        if not request.user.role.may(Role.ADMIN):
            found = [msgspec.structs.replace(feed, url=mask_url(feed.url)) for feed in found]
        headers = {"content-disposition": 'attachment; filename="feeds.opml"'}
        return TextResponse(format_opml(found), "text/x-opml; charset=utf-8", headers=headers)

    async def import_opml(self, request: RouteRequest) -> OpmlImportReply:
        return await self._actions.import_opml(request.body)

    async def progress(self, request: RouteRequest) -> ImportProgress:
        return await self._actions.import_progress(request.path["id"])

    async def worker(self, _: RouteRequest) -> FeedWorkerReply:
        workers = await self._feeds.app.inspect.workers()
        running = any(self._feeds.queue in worker.queues for worker in workers)
        concurrency = self._feeds.settings.concurrency
        return FeedWorkerReply(status="running" if running else "stopped", concurrency=concurrency)

    def _reply(self, request: RouteRequest, feed: Feed) -> FeedReply:
        """Returns a feed for a response. Query values of its URL are for admins only."""
        state, due = feed.state, feed.next_run(self._feeds.now())
        values: dict[str, Any] = msgspec.structs.asdict(feed) | msgspec.structs.asdict(state)
        values |= {
            "url": feed.url if request.user.role.may(Role.ADMIN) else mask_url(feed.url),
            "last_fetched": _to_datetime(feed.last_fetched),
            "next_at": None if state.paused else _to_datetime(due.at),
            "next_reason": "paused" if state.paused else due.reason.value,
        }
        return FeedReply(**{name: values[name] for name in FeedReply.__struct_fields__})


def _to_datetime(wall: float | None) -> datetime | None:
    return None if wall is None else datetime.fromtimestamp(wall, UTC)
