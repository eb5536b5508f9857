"""Failed songs: the page shows how many, why, and how to retry them; nothing is paid twice."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.apps.music.virtual_kit import MusicEnvironment, music_environment
from tidemill import Filter, State, Tidemill
from tidemill.testing.simulator import ReplyFaults, SimulatorOptions
from tidemill_apps.music import tasks
from tidemill_apps.music.limits import FULL_QUEUE
from tidemill_apps.music.pipeline_control import PipelineRetryResult
from tidemill_apps.music.service import Music
from tidemill_apps.music.settings import MusicSettings
from tidemill_apps.music.status import RETRY_COMMAND

AWAY = SimulatorOptions(lost_rate=1.0)


async def until_failed(env: MusicEnvironment, **options: object) -> None:
    await env.start(**options)
    await env.run_until_idle()
    await env.music.reconciler.reconcile()


def back(env: MusicEnvironment) -> None:
    env.provider.options = replace(env.provider.options, lost_rate=0.0)


async def test_a_long_provider_outage_is_shown_with_advice(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 20, options=AWAY) as env:
        await until_failed(env)
        status = (await env.call("GET", "/api/queue/status", who="viewer")).json
        (failure,) = status["failures"]
        assert failure["songs"] == 20
        assert failure["reason"].startswith("tried 3 times: the simulator of gemini")
        (advice,) = status["advice"]
        assert advice.startswith("20 songs failed (see failures): fix the cause, then POST /api/queue/retry")
        assert advice.endswith(RETRY_COMMAND)
        page = (await (await env.visitors.browser()).get("/music")).text
        assert "Failed songs: 20: tried 3 times: the simulator of gemini" in page.replace("</span>", "")
        assert RETRY_COMMAND in page
        assert "/music/retry" in page
        viewer_page = (await (await env.visitors.browser("viewer")).get("/music")).text
        assert ("/music/retry" in viewer_page, "Failed songs: 20" in viewer_page) == (False, True)


async def test_retried_they_are_done_with_their_own_jobs(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 20, options=AWAY) as env:
        await until_failed(env)
        back(env)
        retried = (await env.call("POST", "/api/queue/retry")).json
        assert retried == {"jobs": 2, "songs": 20, "waiting": 0}
        assert await env.counts() == {"PENDING": 20}
        assert await env.music.library.load_pending() == []
        await env.run_until_idle()
        assert await env.counts() == {"COMPLETED": 20}
        status = (await env.call("GET", "/api/queue/status")).json
        assert (status["failures"], status["advice"], status["failedJobs"]) == ([], [], 0)


async def test_songs_whose_job_is_no_more_wait_for_the_next_start(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 20, options=AWAY) as env:
        await until_failed(env)
        back(env)
        (first, _) = (await env.music.app.inspect.find(Filter(queue=FULL_QUEUE, states=(State.FAILED,)))).jobs
        await env.music.app.inspect.delete(first.id)
        assert (await env.call("POST", "/api/queue/retry")).json == {"jobs": 1, "songs": 10, "waiting": 10}
        await env.run_until_idle()
        assert await env.counts() == {"COMPLETED": 10, "PENDING": 10}
        await env.start()
        await env.run_until_idle()
        assert await env.counts() == {"COMPLETED": 20}


async def test_a_job_that_fails_again_meanwhile_keeps_its_songs_and_what_it_has_paid_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with music_environment(tmp_path, 10) as env:
        ask, away = tasks.request_vectors, [True]

        async def ask_or_not(*given: Any) -> Any:
            if away:
                raise ConnectionError("away")
            return await ask(*given)

        monkeypatch.setattr(tasks, "request_vectors", ask_or_not)
        await until_failed(env)
        found = env.music.library.load_failed_jobs

        async def fails_again_first() -> list[str]:
            await env.run_until_idle()
            await env.music.reconciler.reconcile()
            return await found()

        monkeypatch.setattr(env.music.library, "load_failed_jobs", fails_again_first)
        assert await env.pipeline.retry() == PipelineRetryResult(jobs=1, songs=0, waiting=0)
        assert await env.counts() == {"FAILED": 10}
        monkeypatch.setattr(env.music.library, "load_failed_jobs", found)
        away.clear()
        assert await env.pipeline.retry() == PipelineRetryResult(jobs=1, songs=10, waiting=0)
        await env.run_until_idle()
        assert await env.counts() == {"COMPLETED": 10}
        assert [bill.kind for bill in env.provider.request_log.bills] == ["chat", "embed"]


async def test_an_answer_that_could_not_be_read_is_asked_for_again_and_nothing_else(tmp_path: Path) -> None:
    async with music_environment(
        tmp_path, 20, options=SimulatorOptions(faults=ReplyFaults(blocked=frozenset({1})))
    ) as env:
        await until_failed(env)
        assert await env.counts() == {"COMPLETED": 10, "FAILED": 10}
        browser = await env.visitors.browser()
        assert (await browser.post("/music/retry", {"csrf": await browser.csrf()})).status == 303
        await env.run_until_idle()
        assert await env.counts() == {"COMPLETED": 20}
        assert len(env.provider.request_log.bills) == 5


async def test_reasons_are_counted_and_the_commonest_come_first(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 12) as env:
        library = env.music.library
        await library.mark_queued({f"j{n}": [f"s{n}"] for n in range(12)})
        for n in range(12):
            await library.mark_failed(f"j{n}", "away" if n < 5 else f"reason {n}")
        failures = (await env.call("GET", "/api/queue/status")).json["failures"]
        assert failures[0] == {"reason": "away", "songs": 5}
        assert len(failures) == 5


async def test_the_suggested_command_retries_failed_jobs(tmp_path: Path) -> None:
    app = Tidemill(f"sqlite:///{tmp_path}/music-jobs.db")
    music = Music(app, MusicSettings(database_url=f"sqlite:///{tmp_path}/music.db"))
    async with app:
        job = await music.tasks[FULL_QUEUE].enqueue(correlationId="x", songs=[])
        await app.inspect.archive(job.id)
        command = [sys.executable, "-m", *shlex.split(RETRY_COMMAND), "--yes"]
        environment = {**os.environ, "MUSIC_DATABASE_URL": f"sqlite:///{tmp_path}/music.db"}
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=60)
        assert (await job.status()).state is State.READY
        await music.close()


async def test_only_an_operator_may_retry(tmp_path: Path) -> None:
    async with music_environment(tmp_path) as env:
        assert (await env.call("POST", "/api/queue/retry", who="viewer")).status == 403
        assert (await env.call("POST", "/api/queue/retry")).json == {"jobs": 0, "songs": 0, "waiting": 0}
