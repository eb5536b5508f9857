"""Whole requirements, tested through the application; the ids are those of docs/reference/requirements.md."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.client.support import RecordingStore
from tidemill import Context, Filter, JobFailed, Retention, Retry, State, Tidemill
from tidemill.stores.memory import MemoryStore
from tidemill.testing.clocks import VirtualClock
from tidemill.testing.virtual_loop import run_virtual


def virtually(scenario: Callable[[Tidemill], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = VirtualClock()
        async with Tidemill(store=MemoryStore(clock=clock), clock=clock) as app:
            await scenario(app)

    run_virtual(main())


@asynccontextmanager
async def working(app: Tidemill, **options: Any) -> AsyncIterator[None]:
    worker = app.worker(**options)
    running = asyncio.create_task(worker.run())
    yield
    worker.stop()
    await running


VIRTUAL = {"heartbeat_thread": False, "isolation": False}


async def starts(app: Tidemill, retry: Retry, error: Exception) -> list[tuple[float, int]]:
    """Returns when each attempt of a job that always fails started, and its priority."""
    seen: list[tuple[float, int]] = []
    loop = asyncio.get_running_loop()

    @app.task(name="failing", retry=retry)
    async def failing(ctx: Context) -> None:
        job = await app.job(ctx.job_id).status()
        seen.append((round(loop.time() - began, 3), job.priority))
        raise error

    async with working(app, **VIRTUAL):
        began = loop.time()
        with pytest.raises(JobFailed):
            await (await failing.enqueue()).result()
    return seen


def test_three_attempts_with_waits_doubling_from_5_s_n8() -> None:
    async def scenario(app: Tidemill) -> None:
        assert await starts(app, Retry(jitter=0), ValueError()) == [(0, 5), (5, 5), (15, 5)]

    virtually(scenario)


def test_done_jobs_go_at_once_and_the_last_1000_failed_stay_n8() -> None:
    async def scenario(app: Tidemill) -> None:
        app.queue("default", keep_done=Retention(count=0), keep_failed=Retention(count=1000))

        @app.task(name="work", retry=Retry(attempts=1))
        async def work(number: int) -> None:
            if number:
                raise ValueError(number)

        await app.enqueue_many(work.job(number) for number in [0, *range(1, 1003)])
        async with working(app, **VIRTUAL, prune_every=1.0):
            await asyncio.sleep(10)
        counts = (await app.store.counts())["default"]
        assert {state: count for state, count in counts.items() if count} == {State.FAILED: 1000}

    virtually(scenario)


def test_two_retries_5_s_apart_each_less_urgent_e4() -> None:
    async def scenario(app: Tidemill) -> None:
        policy = Retry(attempts=3, first=5, shape="fixed", jitter=0, priority_penalty=1)
        assert await starts(app, policy, ValueError()) == [(0, 5), (5, 6), (10, 7)]

    virtually(scenario)


@pytest.mark.parametrize(
    ("error", "times"),
    [(ConnectionError(), [0, 1, 3, 7]), (ValueError(), [0])],
    ids=["transient", "for good"],
)
def test_three_retries_after_1_2_and_4_s_for_transient_errors_only_v6(
    error: Exception, times: list[float]
) -> None:
    async def scenario(app: Tidemill) -> None:
        policy = Retry(attempts=4, first=1, jitter=0, on=(ConnectionError,))
        assert [time for time, _ in await starts(app, policy, error)] == times

    virtually(scenario)


@pytest.mark.parametrize(
    ("error", "times"),
    [(ConnectionError(), [0, 2, 6]), (ValueError(), [0])],
    ids=["unreachable", "unparseable"],
)
def test_three_attempts_with_waits_of_2_and_4_s_unless_it_cannot_succeed_s2(
    error: Exception, times: list[float]
) -> None:
    async def scenario(app: Tidemill) -> None:
        policy = Retry(attempts=3, first=2, jitter=0, give_up_on=(ValueError,))
        assert [time for time, _ in await starts(app, policy, error)] == times

    virtually(scenario)


async def test_tasks_and_queues_are_named_by_module_and_action_q1(app: Tidemill) -> None:
    @app.task(name="feeds:refresh", queue="feeds")
    async def refresh(feed: int) -> int:
        return feed

    job = await refresh.enqueue(7)
    record = await job.status()
    assert (record.task, record.queue) == ("feeds:refresh", "feeds")
    await app.worker(queues=["feeds"], until_idle=True).run()
    found = await app.store.find(Filter(task="feeds:refresh", queue="feeds"))
    assert [(its.id, its.state) for its in found.jobs] == [(job.id, State.DONE)]


@pytest.mark.parametrize(("size", "warned"), [(1024, False), (1025, True)])
async def test_a_payload_over_1_kb_warns_unless_configured_q9(
    app: Tidemill, capsys: pytest.CaptureFixture[str], size: int, warned: bool
) -> None:
    @app.task(name="plain")
    def plain(text: str) -> None: ...

    text = "x" * (size - len('{"text":""}'))
    assert len(plain.job(text).job.payload) == size
    assert ("large payload" in capsys.readouterr().err) is warned


@pytest.mark.usefixtures("wakeups_only")
async def test_an_idle_worker_is_woken_and_does_not_poll_e7(recording_store: RecordingStore) -> None:
    app = Tidemill(store=recording_store.as_store())

    @app.task(name="work")
    async def work() -> int:
        return 7

    async with app, working(app, poll=600.0):
        await asyncio.to_thread(recording_store.wait_for, 1)
        async with asyncio.timeout(30):
            assert await (await work.enqueue()).result() == 7


COUNTED = """
import asyncio, os, pathlib
from tidemill import Tidemill

app = Tidemill("sqlite:///jobs.db")
app.queue("articles", concurrency=2)
here = pathlib.Path("running")

@app.task(name="articles:embed", queue="articles", timeout=60)
async def embed() -> int:
    mine = here / f"{os.getpid()}-{id(asyncio.current_task())}"
    mine.touch()
    seen = len(list(here.iterdir()))
    await asyncio.sleep(0.02)
    mine.unlink()
    return seen
"""


def test_two_at_a_time_over_all_processes_e3(tmp_path: Path) -> None:
    (tmp_path / "articles.py").write_text(COUNTED)
    (tmp_path / "running").mkdir()
    send = "import articles; articles.app.enqueue_many_sync(articles.embed.job() for _ in range(40))"
    work = ["-m", "tidemill", "worker", "articles:app", "--processes", "2", "--until-idle"]
    for arguments in (["-c", send], work):
        subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, check=True, timeout=60, capture_output=True
        )

    async def results() -> list[int]:
        async with Tidemill(f"sqlite:///{tmp_path}/jobs.db") as app:
            jobs = (await app.store.find(Filter(states=(State.DONE,)))).jobs
            return [await app.job(job.id).result() for job in jobs]

    seen = asyncio.run(results())
    assert len(seen) == 40
    assert max(seen) == 2
