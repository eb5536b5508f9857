"""The HTTP API of the feeds application, with its request and response types."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
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
from tidemill_apps.feeds.opml import InvalidOpml, format_opml, parse_opml
from tidemill_apps.feeds.service import MESSAGES, Feeds, InvalidFeed, check_url, new_import_id
from tidemill_apps.feeds.settings import RefreshInterval
from tidemill_apps.feeds.sites import mask_url

MAX_FEEDS_PER_PAGE = 1000
MAX_ARTICLES_LISTED = 100
MAX_REFUSED_LISTED = 20
HttpMethod = Literal["GET", "POST", "PATCH", "DELETE"]
RouteHandler = Callable[[RouteRequest], Awaitable[Any]]
FeedUrl = Annotated[str, Meta(min_length=1, max_length=2000)]
FeedTitle = Annotated[str, Meta(max_length=500)]


class NewFeedBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """A feed to add. `url` is the feed, or a web page that names its feed."""

    url: FeedUrl
    title: FeedTitle | None = None
    refresh_interval: RefreshInterval | None = None
    user_id: UUID | None = None


class FeedChangeBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """The request body of a change to a feed. Fields that the client leaves out do not change."""

    url: FeedUrl | UnsetType = UNSET
    title: FeedTitle | UnsetType = UNSET
    refresh_interval: RefreshInterval | UnsetType = UNSET


class FeedPauseBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    reason: Annotated[str, Meta(max_length=500)] | None = None


class OpmlBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """An OPML document to import, as text."""

    opml: str
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
    succeeded: int
    failed: int


class OpmlImportReply(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An import. `refused` has the first outlines whose URL cannot be fetched, with the reason."""

    import_id: str
    added: int
    known: int
    refused: tuple[str, ...] = ()


class ImportProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How many feeds of an import were fetched for the first time; `failed` is a part of `fetched`."""

    total: int
    fetched: int
    failed: int

    @property
    def fraction(self) -> float:
        return self.fetched / self.total if self.total else 1.0


class FeedHistoryReply(msgspec.Struct, frozen=True, kw_only=True):
    hours: list[HourCounts]
    articles: list[Article]


class FeedWorkerReply(msgspec.Struct, frozen=True, kw_only=True):
    status: Literal["running", "stopped"]
    concurrency: int


def build_feed_reply(feed: Feed, now: float, *, masked: bool) -> FeedReply:
    """Returns a feed for a response. `masked=True` hides the query values of its URL."""
    state, due = feed.state, feed.next_run(now)
    return FeedReply(
        id=feed.id,
        user_id=feed.user_id,
        title=feed.title,
        url=mask_url(feed.url) if masked else feed.url,
        refresh_interval=feed.refresh_interval,
        last_fetched=_moment(feed.last_fetched),
        last_fetch_status=feed.last_fetch_status,
        last_fetch_error=feed.last_fetch_error,
        next_at=None if state.paused else _moment(due.at),
        next_reason="paused" if state.paused else due.reason.value,
        paused=state.paused,
        gone=state.gone,
        failures=state.failures,
        succeeded=state.succeeded,
        failed=state.failed,
    )


def _moment(wall: float | None) -> datetime | None:
    return None if wall is None else datetime.fromtimestamp(wall, UTC)


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

    async def add(
        self, request: RouteRequest, url: str, title: str | None, interval: int | None, user: str | None
    ) -> Feed:
        new = NewFeed(
            url=url,
            title=title,
            refresh_interval=interval or self.feeds.settings.default_interval,
            user_id=user,
        )
        try:
            added = await self.feeds.add([new])
        except InvalidFeed as error:
            raise _refuse(error) from None
        if not added:
            sentence = MESSAGES.translate(request.language, "known", url=mask_url(url))
            raise HTTPError(HTTPStatus.CONFLICT, sentence, field="url")
        return added[0]

    async def change(self, feed: Feed, **values: Any) -> Feed:
        try:
            return await self.feeds.change(feed, **values)
        except InvalidFeed as error:
            raise _refuse(error) from None

    async def import_opml(self, opml: str, interval: int | None, user: str | None) -> OpmlImportReply:
        """Adds all feeds of an OPML document in one transaction."""
        try:
            outlines = parse_opml(opml)
        except InvalidOpml as error:
            raise HTTPError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error), field="opml") from None
        new: dict[str, NewFeed] = {}
        refused: list[str] = []
        for outline in outlines:
            try:
                url = check_url(outline.url)
            except InvalidFeed as error:
                refused.append(str(error))
                continue
            minutes = interval or self.feeds.settings.default_interval
            new[url] = NewFeed(url=url, title=outline.title, refresh_interval=minutes, user_id=user)
        import_id = new_import_id()
        added = await self.feeds.add(list(new.values()), import_id=import_id)
        return OpmlImportReply(
            import_id=import_id,
            added=len(added),
            known=len(new) - len(added),
            refused=tuple(refused[:MAX_REFUSED_LISTED]),
        )

    async def import_progress(self, import_id: str) -> ImportProgress:
        await self.feeds.store.prepare()
        counts = await self.feeds.store.counts(import_id)
        total = sum(counts.values())
        return ImportProgress(
            total=total, fetched=total - counts.get("new", 0), failed=counts.get("failed", 0)
        )


def _refuse(error: InvalidFeed) -> HTTPError:
    return HTTPError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error), field=error.field)


class FeedRoutes:
    def __init__(self, actions: FeedActions) -> None:
        self._actions, self._feeds = actions, actions.feeds

    def declare(self) -> None:
        """Adds the routes to the application."""
        add = self._add
        add("GET", "/api/feeds", self.list, list[FeedReply], "List feeds.", query=FeedsQuery)
        add("POST", "/api/feeds", self.create, FeedReply, "Add a feed.", role=Role.ADMIN, body=NewFeedBody)
        add("GET", "/api/feeds/opml", self.export, None, "Export all feeds as OPML.")
        add(
            "POST",
            "/api/feeds/opml",
            self.import_opml,
            OpmlImportReply,
            "Import feeds from OPML.",
            role=Role.ADMIN,
            body=OpmlBody,
        )
        add(
            "GET",
            "/api/feeds/imports/{id}",
            self.progress,
            ImportProgress,
            "How many feeds of an import were fetched.",
        )
        one = "/api/feeds/{id}"
        add("GET", one, self.get, FeedReply, "Return a feed.")
        add("PATCH", one, self.change, FeedReply, "Change a feed.", role=Role.ADMIN, body=FeedChangeBody)
        add("DELETE", one, self.delete, None, "Delete a feed and its articles.", role=Role.ADMIN)
        add("POST", f"{one}/refresh", self.refresh, FeedReply, "Refresh a feed now.", role=Role.OPERATOR)
        add(
            "POST",
            f"{one}/pause",
            self.pause,
            FeedReply,
            "Stop the scheduled refreshes of a feed.",
            role=Role.OPERATOR,
            body=FeedPauseBody,
        )
        add("POST", f"{one}/resume", self.resume, FeedReply, "End the pause of a feed.", role=Role.OPERATOR)
        add("GET", f"{one}/history", self.history, FeedHistoryReply, "Runs per hour, newest articles.")
        add("GET", "/api/worker", self.worker, FeedWorkerReply, "Whether a worker runs (S12).")

    async def list(self, request: RouteRequest) -> list[FeedReply]:
        query: FeedsQuery = request.query
        await self._feeds.store.prepare()
        after = "" if query.after is None else str(query.after)
        found = await self._feeds.store.find(
            after=after, limit=query.limit, status=query.status, text=query.text
        )
        return [self._reply(request, feed) for feed in found]

    async def create(self, request: RouteRequest) -> FeedReply:
        body: NewFeedBody = request.body
        feed = await self._actions.add(
            request, body.url, body.title, body.refresh_interval, _text_id(body.user_id)
        )
        return self._reply(request, feed)

    async def get(self, request: RouteRequest) -> FeedReply:
        return self._reply(request, await self._actions.load(request))

    async def change(self, request: RouteRequest) -> FeedReply:
        feed, body = await self._actions.load(request), request.body
        values = {
            name: value for name in body.__struct_fields__ if (value := getattr(body, name)) is not UNSET
        }
        return self._reply(request, await self._actions.change(feed, **values) if values else feed)

    async def delete(self, request: RouteRequest) -> None:
        await self._feeds.delete(await self._actions.load(request))

    async def refresh(self, request: RouteRequest) -> FeedReply:
        feed = await self._actions.load(request)
        await self._feeds.refresh(feed)
        return self._reply(request, feed)

    async def pause(self, request: RouteRequest) -> FeedReply:
        await self._feeds.schedules.pause(await self._actions.load(request), request.body.reason)
        return self._reply(request, await self._actions.load(request))

    async def resume(self, request: RouteRequest) -> FeedReply:
        await self._feeds.schedules.resume(await self._actions.load(request))
        return self._reply(request, await self._actions.load(request))

    async def history(self, request: RouteRequest) -> FeedHistoryReply:
        feed = await self._actions.load(request)
        return FeedHistoryReply(
            hours=await self._feeds.history.hours(self._feeds.now(), feed.id),
            articles=await self._feeds.articles.find(feed.id, MAX_ARTICLES_LISTED),
        )

    async def export(self, request: RouteRequest) -> TextResponse:
        return await export_opml(self._feeds, masked=not request.user.role.may(Role.ADMIN))

    async def import_opml(self, request: RouteRequest) -> OpmlImportReply:
        body: OpmlBody = request.body
        return await self._actions.import_opml(body.opml, body.refresh_interval, _text_id(body.user_id))

    async def progress(self, request: RouteRequest) -> ImportProgress:
        return await self._actions.import_progress(request.path["id"])

    async def worker(self, _: RouteRequest) -> FeedWorkerReply:
        running = [
            worker for worker in await self._feeds.app.inspect.workers() if self._feeds.queue in worker.queues
        ]
        return FeedWorkerReply(
            status="running" if running else "stopped", concurrency=self._feeds.settings.concurrency
        )

    def _reply(self, request: RouteRequest, feed: Feed) -> FeedReply:
        return build_feed_reply(feed, self._feeds.now(), masked=not request.user.role.may(Role.ADMIN))

    def _add(
        self,
        method: HttpMethod,
        path: str,
        handler: RouteHandler,
        response: Any,
        summary: str,
        *,
        role: Role = Role.VIEWER,
        body: Any = None,
        query: Any = None,
    ) -> None:
        self._feeds.app.web.route(
            method, path, role=role, summary=summary, body=body, query=query, response=response
        )(handler)


def _text_id(value: UUID | None) -> str | None:
    return None if value is None else str(value)


async def export_opml(feeds: Feeds, *, masked: bool) -> TextResponse:
    await feeds.store.prepare()
    found: list[Feed] = []
    while page := await feeds.store.find(after=found[-1].id if found else "", limit=MAX_FEEDS_PER_PAGE):
        found += page
    if masked:
        found = [msgspec.structs.replace(feed, url=mask_url(feed.url)) for feed in found]
    headers = {"content-disposition": 'attachment; filename="feeds.opml"'}
    return TextResponse(format_opml(found), "text/x-opml; charset=utf-8", headers=headers)
