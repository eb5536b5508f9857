"""States, and what start, pause, resume and stop do; what becomes of songs whose job is gone."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from tests.apps.music.world import Bare, World, world
from tests.servers.program import HOST, free_port
from tidemill import ConfigurationError, Filter, Job, State
from tidemill.testing.providers import Faults, Options, Reason, Trouble
from tidemill_apps.music.limits import CALLS, FULL, METADATA, PIPELINE_QUEUE, WORK_QUEUES
from tidemill_apps.music.pipeline import Start
from tidemill_apps.music.settings import SubsonicSettings
from tidemill_apps.music.standing import Stage
from tidemill_apps.music.subsonic import SubsonicError


async def test_the_stages_of_a_run(tmp_path: Path) -> None:
    async with world(tmp_path) as its:
        assert await its.stage() is Stage.IDLE
        started = await its.pipeline.start(Start())
        assert (started.stage, await its.stage()) == (Stage.SYNCING, Stage.SYNCING)
        await its.kit.run_until_idle()
        assert await its.stage() is Stage.RUNNING
        await its.run_until_idle()
        assert await its.counts() == {"COMPLETED": 60}


async def test_enqueuing_is_a_stage_of_its_own(tmp_path: Path) -> None:
    async with world(tmp_path, 10) as its:
        await its.pipeline.start(Start(skip_sync=True))
        assert await its.stage() is Stage.ENQUEUING


async def test_nothing_to_do_is_idle(tmp_path: Path) -> None:
    async with world(tmp_path) as its:
        await its.start()
        assert await its.stage() is Stage.IDLE


async def test_start_twice_begins_nothing_twice(tmp_path: Path) -> None:
    async with world(tmp_path, 40) as its:
        first = await its.pipeline.start(Start(skip_sync=True))
        again = await its.pipeline.start(Start(skip_sync=True))
        assert (again.job, again.existing) == (first.job, True)
        await its.kit.run_until_idle()
        await its.start()
        await its.start()
        await its.run_until_idle()
        assert len(its.provider.ledger.bills) == 8
        assert its.provider.ledger.paid_again() == {}


async def test_a_limit_is_of_songs(tmp_path: Path) -> None:
    async with world(tmp_path, 40) as its:
        await its.start(limit=15)
        await its.run_until_idle()
        assert await its.counts() == {"COMPLETED": 15, "PENDING": 25}
        with pytest.raises(
            ConfigurationError, match="limit: must be a whole number of songs, 1 or more, is 0"
        ):
            await its.pipeline.start(Start(limit=0))


async def test_an_enqueuing_that_is_interrupted_sends_the_same_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, 40) as its:
        its.lose_answers(monkeypatch, True)
        await its.start()
        await its.run_until_idle()
        assert await its.counts() == {"COMPLETED": 40}
        assert len(its.provider.ledger.bills) == 8


async def test_a_pause_is_a_person_s_and_the_breaker_is_its_own(tmp_path: Path) -> None:
    trouble = Trouble(Reason.RATE, 0.0, 30.0)
    async with world(tmp_path, 40, options=Options(troubles=(trouble,))) as its:
        await its.start()
        assert await its.stage() is Stage.BREAKER
        assert await its.pipeline.pause("ann") is Stage.PAUSED
        await its.kit.run_for(300)
        stands = await its.pipeline.standing()
        assert (stands.stage, stands.breaker) == (Stage.PAUSED, None)
        assert stands.paused is not None
        assert stands.paused.reason == "paused by ann"
        assert await its.pipeline.resume() is Stage.RUNNING
        await its.run_until_idle()
        assert await its.counts() == {"COMPLETED": 40}


@pytest.mark.parametrize("end", ["resume", "stop"])
async def test_what_pause_paused_is_resumed_also_on_queues_without_jobs(tmp_path: Path, end: str) -> None:
    async with world(tmp_path, 40) as its:
        await its.start(limit=30)
        await its.pipeline.pause("ann")
        assert (await its.pipeline.standing()).paused_queues == WORK_QUEUES
        await its.call("POST", f"/api/queue/{end}")
        assert (await its.pipeline.standing()).paused_queues == ()
        await its.run_until_idle()
        await its.pipeline.start(Start(skip_sync=True, work="metadata"))
        await its.run_until_idle()
        assert (await its.counts())["DESCRIBED"] >= 10


async def test_a_pause_of_one_queue_is_told_and_can_be_ended_while_it_is_idle(tmp_path: Path) -> None:
    async with world(tmp_path, 10) as its:
        await its.start()
        await its.run_until_idle()
        await its.music.app.inspect.pause(METADATA, reason="paused by ann")
        status = (await its.call("GET", "/api/queue/status")).json
        assert (status["state"], status["pausedQueues"]) == ("idle", [METADATA])
        browser = await its.visitors.browser()
        page = (await browser.get("/music")).text
        assert "/music/resume" in page
        assert f"Paused queues: {METADATA}" in page
        await browser.post("/music/resume", {"csrf": await browser.csrf()})
        assert (await its.call("GET", "/api/queue/status")).json["pausedQueues"] == []
        assert "/music/resume" not in (await browser.get("/music")).text


async def test_resuming_leaves_the_breaker_closed(tmp_path: Path) -> None:
    async with world(tmp_path, 40, options=Options(troubles=(Trouble(Reason.RATE, 0.0, 30.0),))) as its:
        await its.start()
        await its.pipeline.pause("ann")
        assert await its.pipeline.resume() is Stage.BREAKER


async def test_a_person_resumes_before_the_breaker_s_time(tmp_path: Path) -> None:
    async with world(tmp_path, 10, options=Options(troubles=(Trouble(Reason.RATE, 0.0, 30.0),))) as its:
        its.provider.dialect = Bare()
        await its.start()
        await its.kit.run_for(31, check=False)
        assert await its.stage() is Stage.BREAKER
        assert "/music/resume" in (await (await its.visitors.browser()).get("/music")).text
        assert (await its.call("POST", "/api/queue/resume")).json == {"state": "running"}
        await its.kit.run_for(30, check=False)
        assert await its.counts() == {"COMPLETED": 10}


async def test_after_a_key_that_was_refused_a_person_resumes(tmp_path: Path) -> None:
    wrong = Options(troubles=(Trouble(Reason.WRONG_KEY, 0.0, 600.0),))
    async with world(tmp_path, 40, options=wrong) as its:
        await its.start()
        stands = await its.pipeline.standing()
        assert stands.breaker is not None
        assert stands.breaker.until is None
        asked = len(its.provider.ledger.refused)
        await its.kit.run_for(3600)
        assert (await its.stage(), len(its.provider.ledger.refused)) == (Stage.BREAKER, asked)
        stopped = await its.pipeline.stop("ann")
        assert (stopped.running, len(its.provider.ledger.refused)) == (0, asked)
        await its.pipeline.start(Start(skip_sync=True))
        await its.kit.run_for(60)
        page = (await (await its.visitors.browser()).get("/music")).text
        assert ("/music/resume" in page, "/music/pause" in page) == (True, False)
        assert page.count("/music/resume") == 1
        assert await its.pipeline.resume() is Stage.RUNNING
        await its.run_until_idle()
        assert await its.counts() == {"COMPLETED": 40}


async def test_resuming_opens_a_pool_that_a_person_closed(tmp_path: Path) -> None:
    async with world(tmp_path, 40) as its:
        await its.start()
        await its.music.app.inspect.close_pool(CALLS, by="ann")
        assert await its.stage() is Stage.PAUSED
        assert await its.pipeline.resume() is Stage.RUNNING


async def test_what_is_not_enqueued_cannot_be_paused(tmp_path: Path) -> None:
    async with world(tmp_path) as its:
        with pytest.raises(ConfigurationError, match=r"pause: the pipeline is idle, .* start it first"):
            await its.pipeline.pause("ann")
        await its.pipeline.start(Start())
        with pytest.raises(ConfigurationError, match=r"pause: the pipeline is syncing, .* or stop it"):
            await its.pipeline.pause("ann")


async def test_stop_gives_songs_back_and_ends_a_pause(tmp_path: Path) -> None:
    async with world(tmp_path, 100) as its:
        await its.start()
        await its.pipeline.pause("ann")
        stopped = await its.pipeline.stop("ann")
        assert await its.stage() is Stage.IDLE
        assert (stopped.running, stopped.released) == (0, 10 * stopped.cancelled)
        done = (await its.counts())["COMPLETED"]
        assert await its.counts() == {"COMPLETED": done, "PENDING": 100 - done}
        await its.start()
        await its.run_until_idle()
        assert await its.counts() == {"COMPLETED": 100}


async def test_stop_ends_a_sync_too(tmp_path: Path) -> None:
    async with world(tmp_path) as its:
        await its.pipeline.start(Start())
        await its.pipeline.stop("ann")
        await its.kit.run_for(60)
        assert (await its.stage(), await its.counts()) == (Stage.IDLE, {})


async def test_missing_and_malformed_answers_leave_no_song_in_work(tmp_path: Path) -> None:
    faults = Faults(
        malformed=frozenset({1}),
        left_out=frozenset({2}),
        repeated=frozenset({3}),
        invented=frozenset({4}),
        cut_off=frozenset({5}),
        missing_vector=frozenset({2}),
        null_vector=frozenset({3}),
    )
    async with world(tmp_path, 80, options=Options(faults=faults)) as its:
        await its.start()
        await its.run_until_idle()
        await its.music.sweeper.sweep()
        counts = await its.counts()
        assert "PROCESSING" not in counts
        assert sum(counts.values()) == 80
        assert counts["FAILED"] >= 10
        await its.music.library.retry_failed()
        await its.start()
        await its.run_until_idle()
        assert await its.counts() == {"COMPLETED": 80}


async def test_a_provider_that_is_away_is_tried_three_times(tmp_path: Path) -> None:
    async with world(tmp_path, 10, options=Options(lost_rate=1.0)) as its:
        await its.start()
        await its.kit.run_for(3600, check=False)
        job = await failed_job(its)
        assert job.attempts == 3
        await its.music.sweeper.sweep()
        assert await its.counts() == {"FAILED": 10}


async def failed_job(its: World) -> Job:
    (job,) = (await its.music.app.inspect.find(Filter(queue=FULL, states=(State.FAILED,)))).jobs
    return job


async def test_a_music_server_that_is_away_is_told_and_leaves_everything_as_it_was(tmp_path: Path) -> None:
    nobody = SubsonicSettings(url=f"http://{HOST}:{free_port()}", user="ann", password="sesame")  # noqa: S106 - nobody's
    async with world(tmp_path, 10, subsonic=nobody) as its:
        await its.pipeline.start(Start())
        await its.kit.run_for(1, check=False)
        assert await its.stage() is Stage.SYNCING
        assert (await its.call("GET", "/api/queue/status")).json["problems"] == [await its.pipeline.trouble()]
        await its.kit.run_for(60, check=False)
        (job,) = (await its.music.app.inspect.find(Filter(states=(State.FAILED,)))).jobs
        assert (job.task, job.attempts) == ("music-sync", 3)
        assert job.error is not None
        assert job.error.message.startswith(f"the music server {nobody.url} cannot be reached")
        assert "sesame" not in job.error.message
        assert await its.pipeline.trouble() == job.error.message
        assert (await its.stage(), await its.counts()) == (Stage.IDLE, {"PENDING": 10})
        await its.pipeline.start(Start(skip_sync=True))
        await its.run_until_idle()
        assert await its.pipeline.trouble() is None


async def test_a_sync_that_succeeds_removes_the_dead_letters_of_those_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise SubsonicError("the music server cannot be reached")

    failed = Filter(states=(State.FAILED,))
    async with world(tmp_path) as its:
        with monkeypatch.context() as patched:
            patched.setattr("tidemill_apps.music.music.sync", away)
            await its.pipeline.start(Start())
            await its.kit.run_for(60, check=False)
        assert [job.task for job in (await its.music.app.inspect.find(failed)).jobs] == ["music-sync"]
        await its.pipeline.start(Start())
        await its.run_until_idle()
        assert (await its.music.app.inspect.find(failed)).jobs == ()


async def test_songs_of_a_job_that_is_gone_wait_again(tmp_path: Path) -> None:
    async with world(tmp_path, 40) as its:
        await its.pipeline.start(Start(skip_sync=True))
        for queue in WORK_QUEUES:
            await its.music.app.inspect.pause(queue)
        await its.kit.run_until_idle()
        jobs = (await its.music.app.inspect.find(Filter(queue=FULL))).jobs
        await its.music.app.inspect.cancel(jobs[0].id)
        await its.music.app.inspect.delete(jobs[1].id)
        assert await its.music.sweeper.sweep() == 20
        assert len(await its.music.library.pending()) == 20
        assert await its.music.sweeper.sweep() == 0


async def test_songs_of_jobs_about_to_be_sent_are_left_alone(tmp_path: Path) -> None:
    async with world(tmp_path, 10) as its:
        await its.pipeline.start(Start(skip_sync=True))
        songs = await its.music.library.pending()
        await its.music.library.mark_queued({"to come": [song.navidrome_id for song in songs]})
        assert await its.music.sweeper.sweep() == 0
        await its.music.app.inspect.cancel(Filter(queue=PIPELINE_QUEUE))
        assert await its.music.sweeper.sweep() == 10


async def test_songs_of_many_jobs_wait_again_within_one_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for each job kept somebody who stopped five hundred jobs waiting for minutes."""
    async with world(tmp_path, 60) as its:
        await its.music.system_settings.write("queue_batch_size", 2)
        await its.pipeline.start(Start(skip_sync=True))
        for queue in WORK_QUEUES:
            await its.music.app.inspect.pause(queue)
        await its.kit.run_until_idle()
        begun: list[None] = []
        transaction = its.music.database.transaction

        def counted() -> AbstractAsyncContextManager[AsyncConnection]:
            begun.append(None)
            return transaction()

        monkeypatch.setattr(its.music.database, "transaction", counted)
        stopped = await its.pipeline.stop("ann")
        assert (stopped.cancelled, stopped.released) == (30, 60)
        assert len(begun) == 2  # that it was stopped, and all songs
        assert len(await its.music.library.pending()) == 60
