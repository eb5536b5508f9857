"""What `GET /api/queue/status` answers, by the names its clients know."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from tidemill import State
from tidemill_apps.music.advice import advice
from tidemill_apps.music.halves import HALVES, Half
from tidemill_apps.music.limits import WORK_QUEUES
from tidemill_apps.music.missing import gone, noted
from tidemill_apps.music.planning import moment
from tidemill_apps.music.retrying import Retrying
from tidemill_apps.music.songs import Failure
from tidemill_apps.music.songs import Status as SongStatus
from tidemill_apps.music.standing import Stage, Standing

if TYPE_CHECKING:
    from tidemill_apps.music.music import Music


class LeftOut(Struct, frozen=True, kw_only=True):
    """Songs that answers left out: they come again by themselves, or wait for a start."""

    coming: int
    waiting: int


class Idle(Struct, frozen=True, kw_only=True):
    """While it is idle: songs that a start would take, and whether the last one found none."""

    pending: int
    described: int
    nothing: bool


class Status(Struct, frozen=True, kw_only=True, rename="camel"):
    """`completed_jobs` counts all there ever were: their records are removed at once. `paused_queues` are
    those a person paused, also while they have nothing to do. `pipeline_state` is what the source knew,
    `state` all of it. `gone_songs` are no longer on the music server and in no other number. `simulated` are
    the halves a simulator stands in for, `simulator`: both. `problems` are rows of system_settings that
    cannot hold, why a sync failed, and that songs are missing. `retrying` are the commonest errors for which
    jobs are tried again, `failures` the commonest reasons why songs failed, and `advice` says what a person
    can do for songs that wait or failed."""

    is_paused: bool
    paused_queues: list[str]
    is_worker_running: bool
    active_jobs: int
    waiting_jobs: int
    completed_jobs: int
    failed_jobs: int
    delayed_jobs: int
    pending_songs: int
    total_songs: int
    gone_songs: int
    pipeline_state: Literal["idle", "syncing", "enqueuing"]
    state: Stage
    resume_at: datetime | None
    pause_reason: str | None
    songs: dict[str, int]
    simulator: bool
    simulated: list[Half]
    problems: list[str]
    left_out: LeftOut
    idle: Idle
    retrying: list[Retrying]
    failures: list[Failure]
    advice: list[str]


async def status_of(music: Music) -> Status:
    stands = await music.pipeline.standing()
    songs = await music.library.counts()
    found = await music.system_settings.read()
    totals = await music.app.inspect.totals()
    trouble = await music.pipeline.trouble()
    held = stands.held
    advised = await advice(music, stands, songs[SongStatus.FAILED])
    return Status(
        is_paused=stands.paused is not None,
        paused_queues=list(stands.paused_queues),
        is_worker_running=stands.served,
        active_jobs=stands.counts[State.RUNNING],
        waiting_jobs=stands.counts[State.READY] + stands.counts[State.WAITING],
        completed_jobs=sum(totals[queue].done for queue in WORK_QUEUES if queue in totals),
        failed_jobs=stands.counts[State.FAILED],
        delayed_jobs=stands.counts[State.SCHEDULED],
        pending_songs=songs[SongStatus.PENDING],
        total_songs=sum(songs.values()),
        gone_songs=await gone(music.library),
        pipeline_state=_known_to_the_source(stands),
        state=stands.stage,
        resume_at=None if held is None else moment(held.until),
        pause_reason=None if held is None else held.reason,
        songs={status.value: number for status, number in songs.items()},
        simulator=music.simulated == HALVES,
        simulated=list(music.simulated),
        problems=[
            *found.problems,
            *([trouble] if trouble else []),
            *told_missing(await noted(music.library)),
        ],
        left_out=LeftOut(coming=advised.coming, waiting=advised.waiting),
        idle=Idle(pending=advised.pending, described=advised.described, nothing=advised.nothing),
        retrying=list(advised.retrying),
        failures=list(advised.failures),
        advice=advised.told(),
    )


def told_missing(songs: int) -> list[str]:
    if not songs:
        return []
    told = f"the music server does not list {songs} songs that it had: so many at once are left as they are"
    return [f"{told}; see whether it is well and start again, or start with hideMissing if they are gone"]


def _known_to_the_source(stands: Standing) -> Literal["idle", "syncing", "enqueuing"]:
    match stands.beginning:
        case Stage.SYNCING:
            return "syncing"
        case Stage.ENQUEUING:
            return "enqueuing"
        case _:
            return "idle"
