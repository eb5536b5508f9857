"""The pages: how the pipeline stands, what a start would take, songs, a search, and one song with those like
it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

import msgspec
from msgspec import Meta, Struct

from tidemill import Filter, Job, State
from tidemill.web import Asked, Go, Page, Refused, Role
from tidemill_apps.music.advice import COMMAND
from tidemill_apps.music.browsing import Wanted, listed
from tidemill_apps.music.enqueuing import Work
from tidemill_apps.music.limits import PIPELINE_QUEUE, WORK_QUEUES
from tidemill_apps.music.missing import noted
from tidemill_apps.music.pipeline import Start
from tidemill_apps.music.status import status_of, told_missing
from tidemill_apps.music.words import words

if TYPE_CHECKING:
    from tidemill_apps.music.music import Music

NOT_FOUND = 404
ERRORS_SHOWN = 5
LIKE_IT = 10


class Form(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """As a form sends it: a box that is not ticked is not there."""

    limit: Annotated[int, Meta(ge=1)] | None = None
    sync: bool = False
    hide_missing: bool = False
    work: Work = "full"

    def start(self) -> Start:
        return Start(
            skip_sync=not self.sync, hide_missing=self.hide_missing, limit=self.limit, work=self.work
        )

    def query(self) -> str:
        return urlencode({name: value for name, value in msgspec.to_builtins(self).items() if value})


class Searched(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(max_length=1000)] = ""


def declare(music: Music) -> None:
    music.app.web.templates(Path(__file__).parent / "templates")
    _showing(music)
    _answering(music)
    _steering(music)


def _showing(music: Music) -> None:
    web = music.app.web

    @web.page("/music", title={"en": "Music", "zh": "音乐"})
    async def overview(asked: Asked) -> Page:
        await music.prepare()
        status, missing = await status_of(music), await noted(music.library)
        shows = {
            "m": words(asked.language),
            "status": status,
            "problems": [one for one in status.problems if one not in told_missing(missing)],
            "live_settings": (await music.system_settings.read()).live,
            "command": COMMAND,
            "missing": missing,
            "errors": await _last_errors(asked),
        }
        return Page("music.html", shows, live=("standing", "actions", "missing", "errors"))

    @web.page("/music/songs", title="Songs", query=Wanted, listed=False)
    async def listing(asked: Asked) -> Page:
        await music.prepare()
        shows = {
            "wanted": asked.query,
            "found": await listed(music.library, asked.query),
            "counts": await music.library.counts(),
            "simulated": music.simulated,
        }
        return Page("music_songs.html", {"m": words(asked.language), **shows})

    @web.page("/music/songs/{song}", title="Song")
    async def song(asked: Asked) -> Page:
        await music.prepare()
        id_ = asked.path["song"]
        stored = await music.library.stored([id_])
        if not stored:
            raise Refused(NOT_FOUND, f"song: there is none with the id {id_!r}; find it on the page of songs")
        matches = await music.similar.to_song(id_, LIKE_IT)
        shows = {"song": stored[0], "matches": matches, "simulated": music.simulated}
        return Page("song.html", {"m": words(asked.language), **shows})


def _answering(music: Music) -> None:
    """Pages that are not drawn again by themselves: each time they would be paid for, or planned anew."""
    web = music.app.web

    @web.page("/music/plan", title="Dry run", role=Role.OPERATOR, query=Form, listed=False)
    async def plan(asked: Asked) -> Page:
        await music.prepare()
        preview = await music.pipeline.preview(asked.query.start())
        missing = await noted(music.library)
        shows = {
            "wanted": asked.query,
            "preview": preview,
            "missing": missing,
            "simulated": music.simulated,
        }
        return Page("music_plan.html", {"m": words(asked.language), **shows})

    @web.page("/music/search", title="Search", query=Searched, listed=False)
    async def search(asked: Asked) -> Page:
        await music.prepare()
        text = asked.query.text.strip()
        matches = await music.search.find(text, LIKE_IT) if text else []
        shows = {"text": text, "matches": matches, "simulated": music.simulated}
        return Page("music_search.html", {"m": words(asked.language), **shows})


def _steering(music: Music) -> None:
    web, pipeline = music.app.web, music.pipeline

    @web.route("POST", "/music/start", role=Role.OPERATOR, says="Start, from the page.", takes=Form)
    async def start(asked: Asked) -> Go:
        await music.prepare()
        started = await pipeline.start(asked.body.start())
        return _back(asked, "under_way" if started.existing else "started")

    @web.route(
        "POST", "/music/plan", role=Role.OPERATOR, says="Dry run, from the page.", takes=Form, audited=False
    )
    async def plan(asked: Asked) -> Go:
        return Go(f"/music/plan?{asked.body.query()}")

    @web.route("POST", "/music/pause", role=Role.OPERATOR, says="Pause, from the page.")
    async def pause(asked: Asked) -> Go:
        await pipeline.pause(asked.who.name)
        return _back(asked, "paused")

    @web.route("POST", "/music/resume", role=Role.OPERATOR, says="Resume, from the page.")
    async def resume(asked: Asked) -> Go:
        await pipeline.resume()
        return _back(asked, "resumed")

    @web.route("POST", "/music/retry", role=Role.OPERATOR, says="Retry what failed, from the page.")
    async def retry(asked: Asked) -> Go:
        await music.prepare()
        retried = await pipeline.retry()
        return _back(asked, "retried", jobs=retried.jobs, songs=retried.songs, waiting=retried.waiting)

    @web.route("POST", "/music/stop", role=Role.OPERATOR, says="Stop, from the page.")
    async def stop(asked: Asked) -> Go:
        await music.prepare()
        stopped = await pipeline.stop(asked.who.name)
        return _back(asked, "stopped", jobs=stopped.cancelled, songs=stopped.released)


def _back(asked: Asked, notice: str, **values: int) -> Go:
    return Go("/music", notice=words(asked.language)(f"notice.{notice}", **values))


async def _last_errors(asked: Asked) -> list[Job]:
    """The newest failed jobs, whatever queue they were on."""
    failed: list[Job] = []
    for queue in (PIPELINE_QUEUE, *WORK_QUEUES):
        wanted = Filter(queue=queue, states=(State.FAILED,))
        failed += (await asked.inspect.find(wanted, limit=ERRORS_SHOWN)).jobs
    return sorted(failed, key=lambda job: job.finished or 0.0, reverse=True)[:ERRORS_SHOWN]
