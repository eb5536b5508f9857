"""States; the effects of start, pause, resume and stop; and songs whose job is gone."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from tests.apps.music.virtual_kit import Bare, MusicEnvironment, music_environment
from tests.servers.program import HOST, free_port
from tidemill import ConfigurationError, Filter, Job, State
from tidemill.testing.simulator import Disruption, RefusalCause, ReplyFaults, SimulatorOptions
from tidemill_apps.music.limits import CALLS_POOL, FULL_QUEUE, METADATA_QUEUE, PIPELINE_QUEUE, WORK_QUEUES
from tidemill_apps.music.pipeline_control import PipelineStartRequest
from tidemill_apps.music.pipeline_state import PipelineStage
from tidemill_apps.music.settings import SubsonicSettings
from tidemill_apps.music.subsonic import SubsonicError


async def test_the_stages_of_a_run(tmp_path: Path) -> None:
    async with music_environment(tmp_path) as env:
        assert await env.stage() is PipelineStage.IDLE
        started = await env.pipeline.start(PipelineStartRequest())
        assert (started.stage, await env.stage()) == (PipelineStage.SYNCING, PipelineStage.SYNCING)
        await env.kit.run_until_idle()
        assert await env.stage() is PipelineStage.RUNNING
        await env.run_until_idle()
        assert await env.counts() == {"COMPLETED": 60}


async def test_enqueuing_is_a_stage_of_its_own(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 10) as env:
        await env.pipeline.start(PipelineStartRequest(skip_sync=True))
        assert await env.stage() is PipelineStage.ENQUEUING


async def test_nothing_to_do_is_idle(tmp_path: Path) -> None:
    async with music_environment(tmp_path) as env:
        await env.start()
        assert await env.stage() is PipelineStage.IDLE


async def test_start_twice_begins_nothing_twice(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 40) as env:
        first = await env.pipeline.start(PipelineStartRequest(skip_sync=True))
        again = await env.pipeline.start(PipelineStartRequest(skip_sync=True))
        assert (again.job, again.existing) == (first.job, True)
        await env.kit.run_until_idle()
        await env.start()
        await env.start()
        await env.run_until_idle()
        assert len(env.provider.request_log.bills) == 8
        assert env.provider.request_log.duplicate_payments() == {}


async def test_a_limit_is_of_songs(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 40) as env:
        await env.start(limit=15)
        await env.run_until_idle()
        assert await env.counts() == {"COMPLETED": 15, "PENDING": 25}
        with pytest.raises(
            ConfigurationError, match="limit: must be a whole number of songs, 1 or more, is 0"
        ):
            await env.pipeline.start(PipelineStartRequest(limit=0))


async def test_an_enqueuing_that_is_interrupted_sends_the_same_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with music_environment(tmp_path, 40) as env:
        env.lose_answers(monkeypatch, True)
        await env.start()
        await env.run_until_idle()
        assert await env.counts() == {"COMPLETED": 40}
        assert len(env.provider.request_log.bills) == 8


async def test_a_pause_is_a_person_s_and_the_breaker_is_its_own(tmp_path: Path) -> None:
    trouble = Disruption(RefusalCause.RATE, 0.0, 30.0)
    async with music_environment(tmp_path, 40, options=SimulatorOptions(disruptions=(trouble,))) as env:
        await env.start()
        assert await env.stage() is PipelineStage.BREAKER
        assert await env.pipeline.pause("ann") is PipelineStage.PAUSED
        await env.kit.run_for(300)
        state = await env.pipeline.load_state()
        assert (state.stage, state.breaker) == (PipelineStage.PAUSED, None)
        assert state.paused is not None
        assert state.paused.reason == "paused by ann"
        assert await env.pipeline.resume() is PipelineStage.RUNNING
        await env.run_until_idle()
        assert await env.counts() == {"COMPLETED": 40}


@pytest.mark.parametrize("end", ["resume", "stop"])
async def test_resume_and_stop_resume_every_paused_queue(tmp_path: Path, end: str) -> None:
    async with music_environment(tmp_path, 40) as env:
        await env.start(limit=30)
        await env.pipeline.pause("ann")
        assert (await env.pipeline.load_state()).paused_queues == WORK_QUEUES
        await env.call("POST", f"/api/queue/{end}")
        assert (await env.pipeline.load_state()).paused_queues == ()
        await env.run_until_idle()
        await env.pipeline.start(PipelineStartRequest(skip_sync=True, work="metadata"))
        await env.run_until_idle()
        assert (await env.counts())["DESCRIBED"] >= 10


async def test_a_paused_queue_is_shown_and_can_be_resumed_while_idle(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 10) as env:
        await env.start()
        await env.run_until_idle()
        await env.music.app.inspect.pause(METADATA_QUEUE, reason="paused by ann")
        status = (await env.call("GET", "/api/queue/status")).json
        assert (status["state"], status["pausedQueues"]) == ("idle", [METADATA_QUEUE])
        browser = await env.visitors.browser()
        page = (await browser.get("/music")).text
        assert "/music/resume" in page
        assert f"Paused queues: {METADATA_QUEUE}" in page
        await browser.post("/music/resume", {"csrf": await browser.csrf()})
        assert (await env.call("GET", "/api/queue/status")).json["pausedQueues"] == []
        assert "/music/resume" not in (await browser.get("/music")).text


async def test_resuming_leaves_the_breaker_closed(tmp_path: Path) -> None:
    async with music_environment(
        tmp_path, 40, options=SimulatorOptions(disruptions=(Disruption(RefusalCause.RATE, 0.0, 30.0),))
    ) as env:
        await env.start()
        await env.pipeline.pause("ann")
        assert await env.pipeline.resume() is PipelineStage.BREAKER


async def test_a_person_resumes_before_the_breaker_s_time(tmp_path: Path) -> None:
    async with music_environment(
        tmp_path, 10, options=SimulatorOptions(disruptions=(Disruption(RefusalCause.RATE, 0.0, 30.0),))
    ) as env:
        env.provider.dialect = Bare()
        await env.start()
        await env.kit.run_for(31, check=False)
        assert await env.stage() is PipelineStage.BREAKER
        assert "/music/resume" in (await (await env.visitors.browser()).get("/music")).text
        assert (await env.call("POST", "/api/queue/resume")).json == {"state": "running"}
        await env.kit.run_for(30, check=False)
        assert await env.counts() == {"COMPLETED": 10}


async def test_after_a_key_that_was_refused_a_person_resumes(tmp_path: Path) -> None:
    wrong = SimulatorOptions(disruptions=(Disruption(RefusalCause.WRONG_KEY, 0.0, 600.0),))
    async with music_environment(tmp_path, 40, options=wrong) as env:
        await env.start()
        state = await env.pipeline.load_state()
        assert state.breaker is not None
        assert state.breaker.until is None
        refusals_before = len(env.provider.request_log.refused)
        await env.kit.run_for(3600)
        assert (await env.stage(), len(env.provider.request_log.refused)) == (
            PipelineStage.BREAKER,
            refusals_before,
        )
        stopped = await env.pipeline.stop("ann")
        assert (stopped.running, len(env.provider.request_log.refused)) == (0, refusals_before)
        await env.pipeline.start(PipelineStartRequest(skip_sync=True))
        await env.kit.run_for(60)
        page = (await (await env.visitors.browser()).get("/music")).text
        assert ("/music/resume" in page, "/music/pause" in page) == (True, False)
        assert page.count("/music/resume") == 1
        assert await env.pipeline.resume() is PipelineStage.RUNNING
        await env.run_until_idle()
        assert await env.counts() == {"COMPLETED": 40}


async def test_resuming_opens_a_pool_that_a_person_closed(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 40) as env:
        await env.start()
        await env.music.app.inspect.close_pool(CALLS_POOL, by="ann")
        assert await env.stage() is PipelineStage.PAUSED
        assert await env.pipeline.resume() is PipelineStage.RUNNING


async def test_an_idle_or_syncing_pipeline_cannot_be_paused(tmp_path: Path) -> None:
    async with music_environment(tmp_path) as env:
        with pytest.raises(ConfigurationError, match=r"pause: the pipeline is idle, .* start it first"):
            await env.pipeline.pause("ann")
        await env.pipeline.start(PipelineStartRequest())
        with pytest.raises(ConfigurationError, match=r"pause: the pipeline is syncing, .* or stop it"):
            await env.pipeline.pause("ann")


async def test_stop_gives_songs_back_and_ends_a_pause(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 100) as env:
        await env.start()
        await env.pipeline.pause("ann")
        stopped = await env.pipeline.stop("ann")
        assert await env.stage() is PipelineStage.IDLE
        assert (stopped.running, stopped.released) == (0, 10 * stopped.cancelled)
        done = (await env.counts())["COMPLETED"]
        assert await env.counts() == {"COMPLETED": done, "PENDING": 100 - done}
        await env.start()
        await env.run_until_idle()
        assert await env.counts() == {"COMPLETED": 100}


async def test_stop_ends_a_sync_too(tmp_path: Path) -> None:
    async with music_environment(tmp_path) as env:
        await env.pipeline.start(PipelineStartRequest())
        await env.pipeline.stop("ann")
        await env.kit.run_for(60)
        assert (await env.stage(), await env.counts()) == (PipelineStage.IDLE, {})


async def test_missing_and_malformed_answers_leave_no_song_in_work(tmp_path: Path) -> None:
    faults = ReplyFaults(
        malformed=frozenset({1}),
        left_out=frozenset({2}),
        repeated=frozenset({3}),
        invented=frozenset({4}),
        cut_off=frozenset({5}),
        missing_vector=frozenset({2}),
        null_vector=frozenset({3}),
    )
    async with music_environment(tmp_path, 80, options=SimulatorOptions(faults=faults)) as env:
        await env.start()
        await env.run_until_idle()
        await env.music.reconciler.reconcile()
        counts = await env.counts()
        assert "PROCESSING" not in counts
        assert sum(counts.values()) == 80
        assert counts["FAILED"] >= 10
        await env.music.library.retry_failed()
        await env.start()
        await env.run_until_idle()
        assert await env.counts() == {"COMPLETED": 80}


async def test_a_provider_that_is_away_is_tried_three_times(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 10, options=SimulatorOptions(lost_rate=1.0)) as env:
        await env.start()
        await env.kit.run_for(3600, check=False)
        job = await failed_job(env)
        assert job.attempts == 3
        await env.music.reconciler.reconcile()
        assert await env.counts() == {"FAILED": 10}


async def failed_job(env: MusicEnvironment) -> Job:
    (job,) = (await env.music.app.inspect.find(Filter(queue=FULL_QUEUE, states=(State.FAILED,)))).jobs
    return job


async def test_an_unreachable_music_server_is_reported_and_changes_nothing(tmp_path: Path) -> None:
    unreachable = SubsonicSettings(url=f"http://{HOST}:{free_port()}", user="ann", password="sesame")  # noqa: S106 - a made-up password
    async with music_environment(tmp_path, 10, subsonic=unreachable) as env:
        await env.pipeline.start(PipelineStartRequest())
        await env.kit.run_for(1, check=False)
        assert await env.stage() is PipelineStage.SYNCING
        assert (await env.call("GET", "/api/queue/status")).json["problems"] == [
            await env.pipeline.last_error()
        ]
        await env.kit.run_for(60, check=False)
        (job,) = (await env.music.app.inspect.find(Filter(states=(State.FAILED,)))).jobs
        assert (job.task, job.attempts) == ("music-sync", 3)
        assert job.error is not None
        assert job.error.message.startswith(f"the music server {unreachable.url} cannot be reached")
        assert "sesame" not in job.error.message
        assert await env.pipeline.last_error() == job.error.message
        assert (await env.stage(), await env.counts()) == (PipelineStage.IDLE, {"PENDING": 10})
        await env.pipeline.start(PipelineStartRequest(skip_sync=True))
        await env.run_until_idle()
        assert await env.pipeline.last_error() is None


async def test_a_sync_that_succeeds_removes_the_dead_letters_of_those_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise SubsonicError("the music server cannot be reached")

    failed = Filter(states=(State.FAILED,))
    async with music_environment(tmp_path) as env:
        with monkeypatch.context() as patched:
            patched.setattr("tidemill_apps.music.service.sync_library", away)
            await env.pipeline.start(PipelineStartRequest())
            await env.kit.run_for(60, check=False)
        assert [job.task for job in (await env.music.app.inspect.find(failed)).jobs] == ["music-sync"]
        await env.pipeline.start(PipelineStartRequest())
        await env.run_until_idle()
        assert (await env.music.app.inspect.find(failed)).jobs == ()


async def test_songs_of_a_job_that_is_gone_wait_again(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 40) as env:
        await env.pipeline.start(PipelineStartRequest(skip_sync=True))
        for queue in WORK_QUEUES:
            await env.music.app.inspect.pause(queue)
        await env.kit.run_until_idle()
        jobs = (await env.music.app.inspect.find(Filter(queue=FULL_QUEUE))).jobs
        await env.music.app.inspect.cancel(jobs[0].id)
        await env.music.app.inspect.delete(jobs[1].id)
        assert await env.music.reconciler.reconcile() == 20
        assert len(await env.music.library.load_pending()) == 20
        assert await env.music.reconciler.reconcile() == 0


async def test_songs_of_jobs_about_to_be_sent_are_left_alone(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 10) as env:
        await env.pipeline.start(PipelineStartRequest(skip_sync=True))
        songs = await env.music.library.load_pending()
        await env.music.library.mark_queued({"to come": [song.navidrome_id for song in songs]})
        assert await env.music.reconciler.reconcile() == 0
        await env.music.app.inspect.cancel(Filter(queue=PIPELINE_QUEUE))
        assert await env.music.reconciler.reconcile() == 10


async def test_songs_of_many_jobs_wait_again_within_one_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one transaction per job, stopping five hundred jobs took minutes."""
    async with music_environment(tmp_path, 60) as env:
        await env.music.live_settings.write("queue_batch_size", 2)
        await env.pipeline.start(PipelineStartRequest(skip_sync=True))
        for queue in WORK_QUEUES:
            await env.music.app.inspect.pause(queue)
        await env.kit.run_until_idle()
        begun: list[None] = []
        transaction = env.music.database.transaction

        def counted() -> AbstractAsyncContextManager[AsyncConnection]:
            begun.append(None)
            return transaction()

        monkeypatch.setattr(env.music.database, "transaction", counted)
        stopped = await env.pipeline.stop("ann")
        assert (stopped.cancelled, stopped.released) == (30, 60)
        assert len(begun) == 2  # one for the stop, one for all songs
        assert len(await env.music.library.load_pending()) == 60
