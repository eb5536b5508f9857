"""The HTTP API of the music application. `/api/queue/…` is compatible with the original application;
`/api/songs/…` searches songs."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from msgspec import Meta, Struct

from tidemill.web import HTTPError, Role, RouteRequest
from tidemill_apps.music.batches import Work
from tidemill_apps.music.pipeline_control import (
    PipelineRetryResult,
    PipelineStartRequest,
    PipelineStartResult,
    PipelineStopResult,
)
from tidemill_apps.music.pipeline_state import PipelineStage
from tidemill_apps.music.preview import StartPreview
from tidemill_apps.music.search import SimilarSong
from tidemill_apps.music.service import Music
from tidemill_apps.music.status import PipelineStatus, load_status


class PipelineStartBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The request body of a start. `dry_run=True` only predicts the result. The other fields are explained at
    `PipelineStartRequest`."""

    skip_sync: bool = False
    hide_missing: bool = False
    limit: Annotated[int, Meta(ge=1)] | None = None
    dry_run: bool = False
    work: Work = "full"

    def start(self) -> PipelineStartRequest:
        return PipelineStartRequest(
            skip_sync=self.skip_sync, hide_missing=self.hide_missing, limit=self.limit, work=self.work
        )


class PipelineStartReply(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The response to a start: `started`, or `preview` for a dry run."""

    started: PipelineStartResult | None = None
    preview: StartPreview | None = None


class PipelineStateReply(Struct, frozen=True):
    state: PipelineStage


class PipelineStopReply(Struct, frozen=True, kw_only=True):
    """The response to a stop. `cancelled` and `running` are numbers of jobs; running jobs finish, because
    their call is paid for. `released` is the number of songs that wait again."""

    state: PipelineStage
    cancelled: int
    running: int
    released: int


class MatchCountQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    count: Annotated[int, Meta(ge=1, le=100)] = 10


class SongSearchQuery(MatchCountQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(min_length=1, max_length=1000)]


class SongMatch(Struct, frozen=True, kw_only=True):
    """A song found by similarity. `similarity` is 1 for identical songs and about 0 for unrelated songs."""

    navidrome_id: str
    title: str
    artist: str
    mood: str | None
    similarity: float


class SongMatches(Struct, frozen=True):
    songs: list[SongMatch]


def declare_routes(music: Music) -> None:
    _declare_read_routes(music)
    _declare_start_routes(music)
    _declare_pause_routes(music)


def _declare_read_routes(music: Music) -> None:
    web = music.app.web

    @web.route(
        "GET",
        "/api/queue/status",
        role=Role.VIEWER,
        summary="Return the status of the pipeline.",
        response=PipelineStatus,
    )
    async def status(_: RouteRequest) -> PipelineStatus:
        await music.prepare()
        return await load_status(music)

    @web.route(
        "GET",
        "/api/songs/{song}/similar",
        role=Role.VIEWER,
        summary="Find songs similar to this one.",
        query=MatchCountQuery,
        response=SongMatches,
    )
    async def similar(request: RouteRequest) -> SongMatches:
        await music.prepare()
        id_ = request.path["song"]
        if not await music.library.load_rows([id_]):
            raise HTTPError(
                HTTPStatus.NOT_FOUND, f"song: there is no {id_!r}; GET /api/songs/search finds ids"
            )
        return build_song_matches(await music.similar.to_song(id_, request.query.count))

    @web.route(
        "GET",
        "/api/songs/search",
        role=Role.VIEWER,
        summary="Find songs by a text. Costs one provider call.",
        query=SongSearchQuery,
        response=SongMatches,
    )
    async def search(request: RouteRequest) -> SongMatches:
        await music.prepare()
        return build_song_matches(await music.search.find(request.query.text, request.query.count))


def _declare_start_routes(music: Music) -> None:
    web, pipeline = music.app.web, music.pipeline

    @web.route(
        "POST",
        "/api/queue/start",
        role=Role.OPERATOR,
        summary="Sync, enqueue and run; with dryRun only predict.",
        body=PipelineStartBody,
        response=PipelineStartReply,
    )
    async def start(request: RouteRequest) -> PipelineStartReply:
        await music.prepare()
        wanted: PipelineStartBody = request.body
        if wanted.dry_run:
            return PipelineStartReply(preview=await pipeline.preview(wanted.start()))
        return PipelineStartReply(started=await pipeline.start(wanted.start()))

    @web.route(
        "POST",
        "/api/queue/retry",
        role=Role.OPERATOR,
        summary="Retry failed jobs and songs.",
        response=PipelineRetryResult,
    )
    async def retry(_: RouteRequest) -> PipelineRetryResult:
        await music.prepare()
        return await pipeline.retry()


def _declare_pause_routes(music: Music) -> None:
    web, pipeline = music.app.web, music.pipeline

    @web.route(
        "POST",
        "/api/queue/pause",
        role=Role.OPERATOR,
        summary="Start nothing new until it is resumed.",
        response=PipelineStateReply,
    )
    async def pause(request: RouteRequest) -> PipelineStateReply:
        return PipelineStateReply(await pipeline.pause(request.user.name))

    @web.route(
        "POST",
        "/api/queue/resume",
        role=Role.OPERATOR,
        summary="End a pause; without a pause, open the closed pool.",
        response=PipelineStateReply,
    )
    async def resume(_: RouteRequest) -> PipelineStateReply:
        return PipelineStateReply(await pipeline.resume())

    @web.route(
        "POST",
        "/api/queue/stop",
        role=Role.OPERATOR,
        summary="Cancel waiting jobs; their songs wait again.",
        response=PipelineStopReply,
    )
    async def stop(request: RouteRequest) -> PipelineStopReply:
        await music.prepare()
        stopped: PipelineStopResult = await pipeline.stop(request.user.name)
        stage = (await pipeline.load_state()).stage
        return PipelineStopReply(
            state=stage, cancelled=stopped.cancelled, running=stopped.running, released=stopped.released
        )


def build_song_matches(matches: list[SimilarSong]) -> SongMatches:
    return SongMatches(
        [
            SongMatch(
                navidrome_id=match.song.navidrome_id,
                title=match.song.song.title,
                artist=match.song.song.artist,
                mood=match.song.mood,
                similarity=round(match.similarity, 4),
            )
            for match in matches
        ]
    )
