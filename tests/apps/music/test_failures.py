"""Songs that failed: a person sees how many, why, and how to have them run again; nothing is paid twice."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.apps.music.world import World, world
from tidemill import Filter, State, Tidemill
from tidemill.testing.providers import Faults, Options
from tidemill_apps.music import analysis, asking
from tidemill_apps.music.advice import COMMAND
from tidemill_apps.music.limits import FULL
from tidemill_apps.music.music import Music
from tidemill_apps.music.pipeline import Retried
from tidemill_apps.music.settings import MusicSettings

AWAY = Options(lost_rate=1.0)


async def until_failed(its: World, **options: object) -> None:
    await its.start(**options)
    await its.run_until_idle()
    await its.music.sweeper.sweep()


def back(its: World) -> None:
    its.provider.options = replace(its.provider.options, lost_rate=0.0)


async def test_a_provider_that_is_away_for_too_long_is_told_with_what_to_do(tmp_path: Path) -> None:
    async with world(tmp_path, 20, options=AWAY) as its:
        await until_failed(its)
        status = (await its.call("GET", "/api/queue/status", who="viewer")).json
        (failure,) = status["failures"]
        assert failure["songs"] == 20
        assert failure["reason"].startswith("tried 3 times: the simulator of gemini")
        (told,) = status["advice"]
        assert told.startswith("20 songs failed (see failures): when that is mended, POST /api/queue/retry")
        assert told.endswith(COMMAND)
        page = (await (await its.visitors.browser()).get("/music")).text
        assert "Songs that failed, 20: tried 3 times: the simulator of gemini" in page.replace("</span>", "")
        assert COMMAND in page
        assert "/music/retry" in page
        looks = (await (await its.visitors.browser("viewer")).get("/music")).text
        assert ("/music/retry" in looks, "Songs that failed, 20" in looks) == (False, True)


async def test_retried_they_are_done_with_their_own_jobs(tmp_path: Path) -> None:
    async with world(tmp_path, 20, options=AWAY) as its:
        await until_failed(its)
        back(its)
        retried = (await its.call("POST", "/api/queue/retry")).json
        assert retried == {"jobs": 2, "songs": 20, "waiting": 0}
        assert await its.counts() == {"PENDING": 20}
        assert await its.music.library.pending() == []
        await its.run_until_idle()
        assert await its.counts() == {"COMPLETED": 20}
        status = (await its.call("GET", "/api/queue/status")).json
        assert (status["failures"], status["advice"], status["failedJobs"]) == ([], [], 0)


async def test_songs_whose_job_is_no_more_wait_for_the_next_start(tmp_path: Path) -> None:
    async with world(tmp_path, 20, options=AWAY) as its:
        await until_failed(its)
        back(its)
        (first, _) = (await its.music.app.inspect.find(Filter(queue=FULL, states=(State.FAILED,)))).jobs
        await its.music.app.inspect.delete(first.id)
        assert (await its.call("POST", "/api/queue/retry")).json == {"jobs": 1, "songs": 10, "waiting": 10}
        await its.run_until_idle()
        assert await its.counts() == {"COMPLETED": 10, "PENDING": 10}
        await its.start()
        await its.run_until_idle()
        assert await its.counts() == {"COMPLETED": 20}


async def test_a_job_that_fails_again_meanwhile_keeps_its_songs_and_what_it_has_paid_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, 10) as its:
        ask, away = asking.ask_vectors, [True]

        async def ask_or_not(*given: Any) -> Any:
            if away:
                raise ConnectionError("away")
            return await ask(*given)

        monkeypatch.setattr(analysis, "ask_vectors", ask_or_not)
        await until_failed(its)
        found = its.music.library.failed_jobs

        async def fails_again_first() -> list[str]:
            await its.run_until_idle()
            await its.music.sweeper.sweep()
            return await found()

        monkeypatch.setattr(its.music.library, "failed_jobs", fails_again_first)
        assert await its.pipeline.retry() == Retried(jobs=1, songs=0, waiting=0)
        assert await its.counts() == {"FAILED": 10}
        monkeypatch.setattr(its.music.library, "failed_jobs", found)
        away.clear()
        assert await its.pipeline.retry() == Retried(jobs=1, songs=10, waiting=0)
        await its.run_until_idle()
        assert await its.counts() == {"COMPLETED": 10}
        assert [bill.kind for bill in its.provider.ledger.bills] == ["chat", "embed"]


async def test_an_answer_that_could_not_be_read_is_asked_for_again_and_nothing_else(tmp_path: Path) -> None:
    async with world(tmp_path, 20, options=Options(faults=Faults(blocked=frozenset({1})))) as its:
        await until_failed(its)
        assert await its.counts() == {"COMPLETED": 10, "FAILED": 10}
        browser = await its.visitors.browser()
        assert (await browser.post("/music/retry", {"csrf": await browser.csrf()})).status == 303
        await its.run_until_idle()
        assert await its.counts() == {"COMPLETED": 20}
        assert len(its.provider.ledger.bills) == 5


async def test_reasons_are_counted_and_the_commonest_come_first(tmp_path: Path) -> None:
    async with world(tmp_path, 12) as its:
        library = its.music.library
        await library.mark_queued({f"j{n}": [f"s{n}"] for n in range(12)})
        for n in range(12):
            await library.fail(f"j{n}", "away" if n < 5 else f"reason {n}")
        failures = (await its.call("GET", "/api/queue/status")).json["failures"]
        assert failures[0] == {"reason": "away", "songs": 5}
        assert len(failures) == 5


async def test_the_command_that_is_told_runs_failed_jobs_again(tmp_path: Path) -> None:
    app = Tidemill(f"sqlite:///{tmp_path}/music-jobs.db")
    music = Music(app, MusicSettings(database_url=f"sqlite:///{tmp_path}/music.db"))
    async with app:
        job = await music.tasks[FULL].enqueue(correlationId="x", songs=[])
        await app.inspect.archive(job.id)
        told = [sys.executable, "-m", *shlex.split(COMMAND), "--yes"]
        given = {**os.environ, "MUSIC_DATABASE_URL": f"sqlite:///{tmp_path}/music.db"}
        subprocess.run(told, cwd=tmp_path, env=given, check=True, timeout=60)
        assert (await job.status()).state is State.READY
        await music.close()


async def test_nobody_but_an_operator_retries(tmp_path: Path) -> None:
    async with world(tmp_path) as its:
        assert (await its.call("POST", "/api/queue/retry", who="viewer")).status == 403
        assert (await its.call("POST", "/api/queue/retry")).json == {"jobs": 0, "songs": 0, "waiting": 0}
