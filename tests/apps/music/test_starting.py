"""Starts that come at the same instant, from processes that know nothing of each other: what each is told is
what happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.apps.music.world import world
from tidemill import Filter, Job, State, Tidemill
from tidemill_apps.music.limits import PIPELINE_QUEUE
from tidemill_apps.music.music import Music
from tidemill_apps.music.pipeline import ENQUEUE, Pipeline, Start, Started
from tidemill_apps.music.settings import MusicSettings
from tidemill_apps.music.standing import LIVE, Stage

SYNCED, AT_ONCE = Start(), Start(skip_sync=True, limit=5)


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def jobs_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    return str(request.getfixturevalue(f"{request.param}_url"))


@asynccontextmanager
async def process(jobs_url: str, folder: Path) -> AsyncIterator[Music]:
    """What a process has of its own: all but the store and the database."""
    app = Tidemill(jobs_url)
    music = Music(app, MusicSettings(database_url=f"sqlite:///{folder}/music.db"))
    async with app:
        yield music
        await music.close()


def after(look: Callable[[], Awaitable[Job | None]], wait: Callable[[], Awaitable[object]]) -> object:
    async def looked() -> Job | None:
        found = await look()
        await wait()
        return found

    return looked


def hold_back(
    monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline, wait: Callable[[], Awaitable[object]]
) -> None:
    """Between its look whether something is under way and what it sends."""
    monkeypatch.setattr(pipeline, "_own_job", after(pipeline._own_job, wait))


@pytest.mark.parametrize("order", [(SYNCED, AT_ONCE), (AT_ONCE, SYNCED), (SYNCED, SYNCED)])
async def test_of_two_starts_at_one_instant_one_begins_and_the_other_is_told_so(
    jobs_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: tuple[Start, Start]
) -> None:
    async with process(jobs_url, tmp_path) as first, process(jobs_url, tmp_path) as second:
        both = asyncio.Barrier(2)
        for music in (first, second):
            hold_back(monkeypatch, music.pipeline, both.wait)
        answers = await asyncio.gather(first.pipeline.start(order[0]), second.pipeline.start(order[1]))
        (begun,) = [answer for answer in answers if not answer.existing]
        (told,) = [answer for answer in answers if answer.existing]
        assert told == Started(job=begun.job, stage=begun.stage, existing=True)
        wanted = order[answers.index(begun)]
        assert begun.stage is (Stage.ENQUEUING if wanted.skip_sync else Stage.SYNCING)
        (job,) = (await first.app.inspect.find(Filter(queue=PIPELINE_QUEUE))).jobs
        assert job.id == begun.job


async def test_a_start_that_was_held_back_until_the_first_enqueues_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one's sync is over by then, and its enqueuing waits to be tried again: both are done."""
    async with world(tmp_path) as its:
        go_on = asyncio.Event()
        with monkeypatch.context() as late:
            hold_back(late, its.pipeline, go_on.wait)
            second = asyncio.create_task(its.pipeline.start(Start(limit=40)))
            await asyncio.sleep(0)
        with monkeypatch.context() as away:
            away.setattr(its.music.app, "enqueue_many", refuses)
            first = await its.pipeline.start(Start(limit=5))
            await its.kit.run_until_idle(check=False)
        (waits,) = (await its.music.app.inspect.find(Filter(queue=PIPELINE_QUEUE, states=LIVE))).jobs
        assert (waits.task, waits.state) == (ENQUEUE, State.SCHEDULED)
        go_on.set()
        assert (first.existing, (await second).existing) == (False, False)
        await its.run_until_idle()
        assert await its.counts() == {"COMPLETED": 45, "PENDING": 15}


async def refuses(_: object) -> object:
    raise ConnectionError("the store is away")
