"""The dashboard pages of the music application."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

import msgspec
from msgspec import Meta, Struct

from tidemill import Filter, Job, State
from tidemill.web import HTTPError, PageResponse, Redirect, Role, RouteRequest
from tidemill_apps.common.messages import MessageCatalogue
from tidemill_apps.common.pages import add_templates
from tidemill_apps.music.batches import Work
from tidemill_apps.music.limits import PIPELINE_QUEUE, WORK_QUEUES
from tidemill_apps.music.pipeline_control import PipelineStartRequest
from tidemill_apps.music.search import SongListQuery, load_song_list
from tidemill_apps.music.service import Music
from tidemill_apps.music.status import RETRY_COMMAND, format_missing_problem, load_status
from tidemill_apps.music.sync import load_missing_count

MESSAGES = MessageCatalogue(Path(__file__).with_name("locales"))
MAX_ERRORS_SHOWN = 5
MAX_SIMILAR_SONGS = 10


class StartForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of the start form. An unticked box counts as False, because the browser does not send it."""

    limit: Annotated[int, Meta(ge=1)] | None = None
    sync: bool = False
    hide_missing: bool = False
    work: Work = "full"

    def start(self) -> PipelineStartRequest:
        return PipelineStartRequest(
            skip_sync=not self.sync, hide_missing=self.hide_missing, limit=self.limit, work=self.work
        )

    def query(self) -> str:
        return urlencode({name: value for name, value in msgspec.to_builtins(self).items() if value})


class SongTextQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(max_length=1000)] = ""


def declare_pages(music: Music) -> None:
    add_templates(music.app, Path(__file__).with_name("templates"))
    _declare_view_pages(music)
    _declare_result_pages(music)
    _declare_actions(music)


def _declare_view_pages(music: Music) -> None:
    web = music.app.web

    @web.page("/music", title={"en": "Music", "zh": "音乐"})
    async def overview(request: RouteRequest) -> PageResponse:
        await music.prepare()
        status, missing = await load_status(music), await load_missing_count(music.library)
        context = {
            "status": status,
            "problems": [one for one in status.problems if one not in format_missing_problem(missing)],
            "live_settings": (await music.live_settings.read()).live,
            "command": RETRY_COMMAND,
            "missing": missing,
            "errors": await _load_last_errors(request),
        }
        return MESSAGES.page(request, "music.html", context, live=("state", "actions", "missing", "errors"))

    @web.page("/music/songs", title="Songs", query=SongListQuery, listed=False)
    async def listing(request: RouteRequest) -> PageResponse:
        await music.prepare()
        context = {
            "query": request.query,
            "page": await load_song_list(music.library, request.query),
            "counts": await music.library.count_by_status(),
            "simulated": music.simulated,
        }
        return MESSAGES.page(request, "music_songs.html", context)

    @web.page("/music/songs/{song}", title="Song")
    async def song(request: RouteRequest) -> PageResponse:
        await music.prepare()
        id_ = request.path["song"]
        stored = await music.library.load_rows([id_])
        if not stored:
            raise HTTPError(
                HTTPStatus.NOT_FOUND, f"song: there is none with the id {id_!r}; find it on the page of songs"
            )
        matches = await music.similar.to_song(id_, MAX_SIMILAR_SONGS)
        context = {"song": stored[0], "matches": matches, "simulated": music.simulated}
        return MESSAGES.page(request, "music_song.html", context)


def _declare_result_pages(music: Music) -> None:
    """Declares the pages for the dry run and the text search. They do not refresh by themselves, because each
    load costs a provider call or a new plan."""
    web = music.app.web

    @web.page("/music/plan", title="Dry run", role=Role.OPERATOR, query=StartForm, listed=False)
    async def plan(request: RouteRequest) -> PageResponse:
        await music.prepare()
        preview = await music.pipeline.preview(request.query.start())
        missing = await load_missing_count(music.library)
        context = {
            "query": request.query,
            "preview": preview,
            "missing": missing,
            "simulated": music.simulated,
        }
        return MESSAGES.page(request, "music_preview.html", context)

    @web.page("/music/search", title="Search", query=SongTextQuery, listed=False)
    async def search(request: RouteRequest) -> PageResponse:
        await music.prepare()
        text = request.query.text.strip()
        matches = await music.search.find(text, MAX_SIMILAR_SONGS) if text else []
        context = {"text": text, "matches": matches, "simulated": music.simulated}
        return MESSAGES.page(request, "music_search.html", context)


def _declare_actions(music: Music) -> None:
    web, pipeline = music.app.web, music.pipeline

    @web.route("POST", "/music/start", role=Role.OPERATOR, summary="Start from the page.", body=StartForm)
    async def start(request: RouteRequest) -> Redirect:
        await music.prepare()
        started = await pipeline.start(request.body.start())
        return _redirect_with_notice(request, "under_way" if started.existing else "started")

    @web.route(
        "POST",
        "/music/plan",
        role=Role.OPERATOR,
        summary="Dry run from the page.",
        body=StartForm,
        audited=False,
    )
    async def plan(request: RouteRequest) -> Redirect:
        return Redirect(f"/music/plan?{request.body.query()}")

    @web.route("POST", "/music/pause", role=Role.OPERATOR, summary="Pause from the page.")
    async def pause(request: RouteRequest) -> Redirect:
        await pipeline.pause(request.user.name)
        return _redirect_with_notice(request, "paused")

    @web.route("POST", "/music/resume", role=Role.OPERATOR, summary="Resume from the page.")
    async def resume(request: RouteRequest) -> Redirect:
        await pipeline.resume()
        return _redirect_with_notice(request, "resumed")

    @web.route("POST", "/music/retry", role=Role.OPERATOR, summary="Retry failed songs from the page.")
    async def retry(request: RouteRequest) -> Redirect:
        await music.prepare()
        retried = await pipeline.retry()
        return _redirect_with_notice(
            request, "retried", jobs=retried.jobs, songs=retried.songs, waiting=retried.waiting
        )

    @web.route("POST", "/music/stop", role=Role.OPERATOR, summary="Stop from the page.")
    async def stop(request: RouteRequest) -> Redirect:
        await music.prepare()
        stopped = await pipeline.stop(request.user.name)
        return _redirect_with_notice(request, "stopped", jobs=stopped.cancelled, songs=stopped.released)


def _redirect_with_notice(request: RouteRequest, notice: str, **values: int) -> Redirect:
    return MESSAGES.redirect(request, "/music", f"notice.{notice}", **values)


async def _load_last_errors(request: RouteRequest) -> list[Job]:
    """Returns the newest failed jobs of all queues."""
    failed: list[Job] = []
    for queue in (PIPELINE_QUEUE, *WORK_QUEUES):
        wanted = Filter(queue=queue, states=(State.FAILED,))
        failed += (await request.inspect.find(wanted, limit=MAX_ERRORS_SHOWN)).jobs
    return sorted(failed, key=lambda job: job.finished or 0.0, reverse=True)[:MAX_ERRORS_SHOWN]
