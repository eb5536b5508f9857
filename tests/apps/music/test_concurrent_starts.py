"""Simultaneous starts from independent processes: each start does what its answer says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.apps.music.virtual_kit import music_environment
from tidemill import Filter, Job, State, Tidemill
from tidemill_apps.common.status import LIVE_STATES
from tidemill_apps.music.limits import PIPELINE_QUEUE
from tidemill_apps.music.pipeline_control import (
    ENQUEUE_TASK,
    Pipeline,
    PipelineStartRequest,
    PipelineStartResult,
)
from tidemill_apps.music.pipeline_state import PipelineStage
from tidemill_apps.music.service import Music
from tidemill_apps.music.settings import MusicSettings

SYNCED, AT_ONCE = PipelineStartRequest(), PipelineStartRequest(skip_sync=True, limit=5)


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def jobs_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    return str(request.getfixturevalue(f"{request.param}_url"))


@asynccontextmanager
async def process(jobs_url: str, folder: Path) -> AsyncIterator[Music]:
    """Creates everything that belongs to one process: all but the store and the database."""
    app = Tidemill(jobs_url)
    music = Music(app, MusicSettings(database_url=f"sqlite:///{folder}/music.db"))
    async with app:
        yield music
        await music.close()


def after(read: Callable[[], Awaitable[Job | None]], wait: Callable[[], Awaitable[object]]) -> object:
    async def looked() -> Job | None:
        found = await read()
        await wait()
        return found

    return looked


def hold_back(
    monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline, wait: Callable[[], Awaitable[object]]
) -> None:
    """Delays a start between its check for a running job and its enqueue."""
    monkeypatch.setattr(pipeline, "_own_job", after(pipeline._own_job, wait))


@pytest.mark.parametrize("order", [(SYNCED, AT_ONCE), (AT_ONCE, SYNCED), (SYNCED, SYNCED)])
async def test_of_two_concurrent_starts_the_second_gets_the_job_of_the_first(
    jobs_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    order: tuple[PipelineStartRequest, PipelineStartRequest],
) -> None:
    async with process(jobs_url, tmp_path) as first, process(jobs_url, tmp_path) as second:
        both = asyncio.Barrier(2)
        for music in (first, second):
            hold_back(monkeypatch, music.pipeline, both.wait)
        answers = await asyncio.gather(first.pipeline.start(order[0]), second.pipeline.start(order[1]))
        (begun,) = [answer for answer in answers if not answer.existing]
        (second_answer,) = [answer for answer in answers if answer.existing]
        assert second_answer == PipelineStartResult(job=begun.job, stage=begun.stage, existing=True)
        wanted = order[answers.index(begun)]
        assert begun.stage is (PipelineStage.ENQUEUING if wanted.skip_sync else PipelineStage.SYNCING)
        (job,) = (await first.app.inspect.find(Filter(queue=PIPELINE_QUEUE))).jobs
        assert job.id == begun.job


async def test_a_start_that_was_held_back_until_the_first_enqueues_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first start's sync has ended by then, and its enqueue is retried later: both are done."""
    async with music_environment(tmp_path) as env:
        go_on = asyncio.Event()
        with monkeypatch.context() as late:
            hold_back(late, env.pipeline, go_on.wait)
            second = asyncio.create_task(env.pipeline.start(PipelineStartRequest(limit=40)))
            await asyncio.sleep(0)
        with monkeypatch.context() as away:
            away.setattr(env.music.app, "enqueue_many", refuses)
            first = await env.pipeline.start(PipelineStartRequest(limit=5))
            await env.kit.run_until_idle(check=False)
        (waits,) = (await env.music.app.inspect.find(Filter(queue=PIPELINE_QUEUE, states=LIVE_STATES))).jobs
        assert (waits.task, waits.state) == (ENQUEUE_TASK, State.SCHEDULED)
        go_on.set()
        assert (first.existing, (await second).existing) == (False, False)
        await env.run_until_idle()
        assert await env.counts() == {"COMPLETED": 45, "PENDING": 15}


async def refuses(_: object) -> object:
    raise ConnectionError("the store is away")
