"""The status report of `GET /api/queue/status`: counts, problems, errors and what an operator can do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from msgspec import Struct

from tidemill import State, Tidemill
from tidemill_apps.common.status import LIVE_STATES, MAX_JOBS_PER_QUERY, load_jobs
from tidemill_apps.music.connections import PROVIDER_KINDS, ProviderKind
from tidemill_apps.music.library import Library
from tidemill_apps.music.limits import WORK_QUEUES
from tidemill_apps.music.pipeline_state import PipelineStage, PipelineState, load_run_start
from tidemill_apps.music.preview import to_datetime
from tidemill_apps.music.service import Music
from tidemill_apps.music.sync import count_unlisted, load_missing_count
from tidemill_apps.music.tables import WAITING_STATUSES, SongFailureCount, SongStatus

MAX_RETRY_REASONS = 3


class RetryErrorCount(Struct, frozen=True):
    """An error and the number of jobs that are retried because of it."""

    error: str
    jobs: int


async def count_retries(app: Tidemill, library: Library) -> list[RetryErrorCount]:
    """Returns the 3 most common errors of jobs that are being retried, each with its number of jobs. It reads
    at most 200 jobs."""
    ids = (await library.load_jobs_with_errors())[:MAX_JOBS_PER_QUERY]
    jobs = await load_jobs(app, ids, LIVE_STATES)
    errors = Counter(job.error.message for job in jobs.values() if job.attempts and job.error is not None)
    return [RetryErrorCount(error, jobs) for error, jobs in errors.most_common(MAX_RETRY_REASONS)]


RETRY_COMMAND = "tidemill jobs retry --state failed --app music"


class PipelineAdvice(Struct, frozen=True, kw_only=True):
    """The numbers from which the advice for operators is made. A left-out song was missing in an answer of
    the model.

    - `retried`: left-out songs that will be retried automatically.
    - `waiting`: left-out songs that wait for the next start.
    - `failed`, `failures`: the number of failed songs, and their most common errors.
    - `retrying`: the most common errors of jobs that are being retried.
    - `pending`, `described`: songs that wait for a description or a vector; 0 unless the pipeline is idle.
    - `nothing_found`: True if the pipeline is idle and the last start found no songs.
    """

    retried: int
    waiting: int
    failed: int
    failures: Sequence[SongFailureCount]
    retrying: Sequence[RetryErrorCount]
    pending: int = 0
    described: int = 0
    nothing_found: bool = False

    def sentences(self) -> list[str]:
        out = "left out of the model's answers"
        sentences = [f"{_format_count(one.jobs, 'job')} being retried: {one.error}" for one in self.retrying]
        if self.nothing_found:
            sentences.append("the last start found no waiting songs")
        if self.pending:
            sentences.append(f"{_format_songs(self.pending)} waiting to be described: start the pipeline")
        if self.described:
            sentences.append(
                f'{_format_songs(self.described)} without a vector: start, in full or with work "embedding"'
            )
        if self.retried:
            sentences.append(f"{_format_songs(self.retried)} {out}: retried when all other work is done")
        if self.waiting:
            sentences.append(f"{_format_songs(self.waiting)} {out}: start again to retry them")
        if self.failed:
            sentences.append(
                f"{_format_songs(self.failed)} failed (see failures): fix the cause, then "
                f"POST /api/queue/retry, or for jobs in the dead letters: {RETRY_COMMAND}"
            )
        return sentences


async def build_advice(music: Music, state: PipelineState, failed: int) -> PipelineAdvice:
    library = music.library
    since = await load_run_start(library) if state.retries_left_out else None
    retried = 0 if since is None else await library.count_left_out(since)
    waiting = max(
        0, await library.count_left_out() - retried
    )  # the retry may have been enqueued between the two queries
    failures = await library.count_failures() if failed else []
    idle = state.stage is PipelineStage.IDLE
    pending, described = [
        await library.count_waiting(of, untried=True) if idle else 0 for of in WAITING_STATUSES
    ]
    return PipelineAdvice(
        retried=retried,
        waiting=waiting,
        failed=failed,
        failures=failures,
        retrying=await count_retries(music.app, library),
        pending=pending,
        described=described,
        nothing_found=idle and await music.pipeline.found_nothing(),
    )


def _format_songs(number: int) -> str:
    return _format_count(number, "song")


def _format_count(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number} {what}s"


class LeftOutCounts(Struct, frozen=True, kw_only=True):
    """The number of songs that were missing in an answer of the model. `retried` counts songs that will be
    retried automatically, `waiting` songs that wait for the next start."""

    retried: int
    waiting: int


class IdleCounts(Struct, frozen=True, kw_only=True, rename="camel"):
    """The songs that a start would process, while the pipeline is idle.

    - `pending`, `described`: songs that wait for a description, and for a vector.
    - `nothing_found`: True if the last start found no songs.
    """

    pending: int
    described: int
    nothing_found: bool


class PipelineStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    """The status of the pipeline.

    - `is_paused`, `paused_queues`: an operator's pause; the queues include those without jobs.
    - `completed_jobs`: the number of all jobs ever completed.
    - `pipeline_state`: `idle`, `syncing` or `enqueuing`, as in the API that this one replaces.
    - `state`: the exact `PipelineStage`, which has more values.
    - `resume_at`, `pause_reason`: when and why the pipeline waits; None if it does not wait.
    - `songs`: the number of songs per status.
    - `unlisted_songs`: songs that the music server no longer lists; no other number includes them.
    - `simulated`: the simulated providers; `simulator` is True if all providers are simulated.
    - `problems`: sentences about invalid settings, a failed start, or missing songs.
    - `retrying`, `failures`: the most common errors of retried jobs, and of failed songs.
    - `advice`: sentences that say what an operator can do.
    """

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
    unlisted_songs: int
    pipeline_state: Literal["idle", "syncing", "enqueuing"]
    state: PipelineStage
    resume_at: datetime | None
    pause_reason: str | None
    songs: dict[str, int]
    simulator: bool
    simulated: list[ProviderKind]
    problems: list[str]
    left_out: LeftOutCounts
    idle: IdleCounts
    retrying: list[RetryErrorCount]
    failures: list[SongFailureCount]
    advice: list[str]


async def load_status(music: Music) -> PipelineStatus:
    state = await music.pipeline.load_state()
    songs = await music.library.count_by_status()
    found = await music.live_settings.read()
    totals = await music.app.inspect.totals()
    last_error = await music.pipeline.last_error()
    block = state.block
    advice = await build_advice(music, state, songs[SongStatus.FAILED])
    return PipelineStatus(
        is_paused=state.paused is not None,
        paused_queues=list(state.paused_queues),
        is_worker_running=state.has_worker,
        active_jobs=state.counts[State.RUNNING],
        waiting_jobs=state.counts[State.READY] + state.counts[State.WAITING],
        completed_jobs=sum(totals[queue].done for queue in WORK_QUEUES if queue in totals),
        failed_jobs=state.counts[State.FAILED],
        delayed_jobs=state.counts[State.SCHEDULED],
        pending_songs=songs[SongStatus.PENDING],
        total_songs=sum(songs.values()),
        unlisted_songs=await count_unlisted(music.library),
        pipeline_state=_legacy_state(state),
        state=state.stage,
        resume_at=None if block is None else to_datetime(block.until),
        pause_reason=None if block is None else block.reason,
        songs={status.value: number for status, number in songs.items()},
        simulator=music.simulated == PROVIDER_KINDS,
        simulated=list(music.simulated),
        problems=[
            *found.problems,
            *([last_error] if last_error else []),
            *format_missing_problem(await load_missing_count(music.library)),
        ],
        left_out=LeftOutCounts(retried=advice.retried, waiting=advice.waiting),
        idle=IdleCounts(
            pending=advice.pending, described=advice.described, nothing_found=advice.nothing_found
        ),
        retrying=list(advice.retrying),
        failures=list(advice.failures),
        advice=advice.sentences(),
    )


def format_missing_problem(songs: int) -> list[str]:
    if not songs:
        return []
    told = f"the music server no longer lists {songs} songs; that is unusually many, so they are kept"
    return [f"{told}; check the server and start again, or start with hideMissing"]


def _legacy_state(state: PipelineState) -> Literal["idle", "syncing", "enqueuing"]:
    match state.start_stage:
        case PipelineStage.SYNCING:
            return "syncing"
        case PipelineStage.ENQUEUING:
            return "enqueuing"
        case _:
            return "idle"
