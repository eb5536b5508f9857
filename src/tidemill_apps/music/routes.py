"""The HTTP API: `/api/queue/…` as its clients know it, and songs like a song or a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from tidemill.web import Asked, Refused, Role
from tidemill_apps.music.enqueuing import Work
from tidemill_apps.music.pipeline import Retried, Start, Started, Stopped
from tidemill_apps.music.planning import Preview
from tidemill_apps.music.similar import Match
from tidemill_apps.music.standing import Stage
from tidemill_apps.music.status import Status, status_of

if TYPE_CHECKING:
    from tidemill_apps.music.music import Music

NOT_FOUND = 404


class Wanted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """`limit`: of songs. `dry_run`: only say what it would do. `work`: all of it, or one half.
    `hide_missing`: songs that the music server does not list are gone for good, however many."""

    skip_sync: bool = False
    hide_missing: bool = False
    limit: Annotated[int, Meta(ge=1)] | None = None
    dry_run: bool = False
    work: Work = "full"

    def start(self) -> Start:
        return Start(
            skip_sync=self.skip_sync, hide_missing=self.hide_missing, limit=self.limit, work=self.work
        )


class Begun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Either what was begun, or what would be."""

    started: Started | None = None
    preview: Preview | None = None


class Stands(Struct, frozen=True):
    state: Stage


class Ended(Struct, frozen=True, kw_only=True):
    """`running` jobs end by themselves: their call is paid for."""

    state: Stage
    cancelled: int
    running: int
    released: int


class Count(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    count: Annotated[int, Meta(ge=1, le=100)] = 10


class Searched(Count, frozen=True, kw_only=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(min_length=1, max_length=1000)]


class Like(Struct, frozen=True, kw_only=True):
    """`likeness` is 1 for the same and about 0 for what has nothing in common."""

    navidrome_id: str
    title: str
    artist: str
    mood: str | None
    likeness: float


class Likes(Struct, frozen=True):
    songs: list[Like]


def declare(music: Music) -> None:
    _reading(music)
    _setting_off(music)
    _holding(music)


def _reading(music: Music) -> None:
    web = music.app.web

    @web.route("GET", "/api/queue/status", role=Role.VIEWER, says="How the pipeline stands.", answers=Status)
    async def status(_: Asked) -> Status:
        await music.prepare()
        return await status_of(music)

    @web.route(
        "GET",
        "/api/songs/{song}/similar",
        role=Role.VIEWER,
        says="Songs like this one.",
        query=Count,
        answers=Likes,
    )
    async def similar(asked: Asked) -> Likes:
        await music.prepare()
        id_ = asked.path["song"]
        if not await music.library.stored([id_]):
            raise Refused(NOT_FOUND, f"song: there is no {id_!r}; GET /api/songs/search finds ids")
        return likes(await music.similar.to_song(id_, asked.query.count))

    @web.route(
        "GET",
        "/api/songs/search",
        role=Role.VIEWER,
        says="Songs like what a text says. It takes one call of the provider.",
        query=Searched,
        answers=Likes,
    )
    async def search(asked: Asked) -> Likes:
        await music.prepare()
        return likes(await music.search.find(asked.query.text, asked.query.count))


def _setting_off(music: Music) -> None:
    web, pipeline = music.app.web, music.pipeline

    @web.route(
        "POST",
        "/api/queue/start",
        role=Role.OPERATOR,
        says="Sync, enqueue and run; with dryRun only say what that would take.",
        takes=Wanted,
        answers=Begun,
    )
    async def start(asked: Asked) -> Begun:
        await music.prepare()
        wanted: Wanted = asked.body
        if wanted.dry_run:
            return Begun(preview=await pipeline.preview(wanted.start()))
        return Begun(started=await pipeline.start(wanted.start()))

    @web.route(
        "POST",
        "/api/queue/retry",
        role=Role.OPERATOR,
        says="Failed jobs and songs run again.",
        answers=Retried,
    )
    async def retry(_: Asked) -> Retried:
        await music.prepare()
        return await pipeline.retry()


def _holding(music: Music) -> None:
    web, pipeline = music.app.web, music.pipeline

    @web.route(
        "POST",
        "/api/queue/pause",
        role=Role.OPERATOR,
        says="Start nothing new until it is resumed.",
        answers=Stands,
    )
    async def pause(asked: Asked) -> Stands:
        return Stands(await pipeline.pause(asked.who.name))

    @web.route(
        "POST",
        "/api/queue/resume",
        role=Role.OPERATOR,
        says="End a pause; without a pause, end the breaker's closure before its time.",
        answers=Stands,
    )
    async def resume(_: Asked) -> Stands:
        return Stands(await pipeline.resume())

    @web.route(
        "POST",
        "/api/queue/stop",
        role=Role.OPERATOR,
        says="Cancel what waits; its songs wait again.",
        answers=Ended,
    )
    async def stop(asked: Asked) -> Ended:
        await music.prepare()
        stopped: Stopped = await pipeline.stop(asked.who.name)
        stage = (await pipeline.standing()).stage
        return Ended(
            state=stage, cancelled=stopped.cancelled, running=stopped.running, released=stopped.released
        )


def likes(matches: list[Match]) -> Likes:
    return Likes(
        [
            Like(
                navidrome_id=match.song.navidrome_id,
                title=match.song.song.title,
                artist=match.song.song.artist,
                mood=match.song.mood,
                likeness=round(match.likeness, 4),
            )
            for match in matches
        ]
    )
