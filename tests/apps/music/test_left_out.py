"""Songs that an answer omits are requested once more in the same run, together and after all others.

Answered songs are never requested again. A song that is omitted twice waits, and the page says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apps.music.library_fixtures import column
from tests.apps.music.virtual_kit import music_environment
from tests.servers.program import HOST, free_port
from tidemill import Filter
from tidemill.testing.simulator import ReplyFaults, SimulatorOptions, SimulatorRequest
from tidemill.testing.simulator.provider import SimulatorExchange
from tidemill_apps.common.status import LIVE_STATES
from tidemill_apps.music.limits import PIPELINE_QUEUE
from tidemill_apps.music.pipeline_control import PipelineStartRequest
from tidemill_apps.music.pipeline_state import PipelineStage
from tidemill_apps.music.settings import SubsonicSettings

SESAME = "sesame"


def leaving_out(*answers: int, **more: frozenset[int]) -> SimulatorOptions:
    return SimulatorOptions(faults=ReplyFaults(left_out=frozenset(answers), **more))


async def test_songs_left_out_of_several_answers_go_once_more_in_one_job(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 40, options=leaving_out(1, 3)) as env:
        await env.start()
        await env.run_until_idle()
        assert await env.counts() == {"COMPLETED": 40}
        kinds = [bill.kind for bill in env.provider.request_log.bills]
        assert (kinds.count("chat"), kinds.count("embed")) == (5, 5)
        assert env.provider.request_log.duplicate_payments() == {}
        assert env.provider.request_log.refused == []


async def test_a_song_that_lacks_its_vector_alone_is_not_described_again(tmp_path: Path) -> None:
    async with music_environment(
        tmp_path, 20, options=SimulatorOptions(faults=ReplyFaults(null_vector=frozenset({1})))
    ) as env:
        await env.start()
        await env.run_until_idle()
        assert await env.counts() == {"COMPLETED": 20}
        kinds = [bill.kind for bill in env.provider.request_log.bills]
        assert (kinds.count("chat"), kinds.count("embed")) == (2, 3)


async def test_with_descriptions_only_they_are_asked_for_descriptions_only(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 20, options=leaving_out(1)) as env:
        await env.start(work="metadata")
        await env.run_until_idle()
        assert await env.counts() == {"DESCRIBED": 20}
        assert [bill.kind for bill in env.provider.request_log.bills] == ["chat"] * 3


async def test_a_song_left_out_again_waits_for_the_next_start_and_fails_at_the_third(
    tmp_path: Path,
) -> None:
    async with music_environment(tmp_path, 10, options=leaving_out(1, 2, 3)) as env:
        await env.start()
        await env.run_until_idle()
        assert await env.counts() == {"COMPLETED": 9, "PENDING": 1}
        status = (await env.call("GET", "/api/queue/status")).json
        assert status["leftOut"] == {"retried": 0, "waiting": 1}
        (advice,) = status["advice"]
        assert advice == "1 song left out of the model's answers: start again to retry them"
        page = (await (await env.visitors.browser()).get("/music")).text
        assert "Songs that the model left out: 1. Start again" in page
        await env.start()
        await env.run_until_idle()
        assert await env.counts() == {"COMPLETED": 9, "FAILED": 1}
        assert len(env.provider.request_log.bills) == 4


async def test_the_status_says_that_left_out_songs_are_retried(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 60, options=leaving_out(1)) as env:
        await env.start()
        status = (await env.call("GET", "/api/queue/status")).json
        assert (status["state"], status["leftOut"]) == ("running", {"retried": 1, "waiting": 0})
        assert status["problems"] == []
        (advice,) = status["advice"]
        assert advice == "1 song left out of the model's answers: retried when all other work is done"
        page = (await (await env.visitors.browser()).get("/music")).text
        assert "Songs that the model left out: 1. They are retried" in page
        begun = await env.pipeline.start(PipelineStartRequest(skip_sync=True))
        assert (begun.existing, begun.stage) == (False, PipelineStage.ENQUEUING)


async def test_after_a_stop_nothing_comes_again(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 60, options=leaving_out(1)) as env:
        await env.start()
        await env.pipeline.stop("ann")
        bills = len(env.provider.request_log.bills)
        await env.kit.run_for(3600)
        assert await env.stage() is PipelineStage.IDLE
        assert len(env.provider.request_log.bills) == bills
        assert (await env.music.app.inspect.find(Filter(queue=PIPELINE_QUEUE, states=LIVE_STATES))).jobs == ()
        assert max((await column(env.music.library, "tries")).values()) == 1


async def test_a_job_that_a_stop_lets_run_to_its_end_has_nothing_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with music_environment(tmp_path, 10, options=leaving_out(1)) as env:
        serve, calls = env.provider.serve, iter([True])

        async def stopped_first(request: SimulatorRequest) -> SimulatorExchange:
            if next(calls, False):
                await env.pipeline.stop("ann")
            return await serve(request)

        monkeypatch.setattr(env.provider, "serve", stopped_first)
        await env.start()
        await env.kit.run_for(3600)
        assert await env.stage() is PipelineStage.IDLE
        assert len(env.provider.request_log.bills) == 2
        status = (await env.call("GET", "/api/queue/status")).json
        assert status["leftOut"] == {"retried": 0, "waiting": 1}
        await env.start()
        await env.run_until_idle()
        assert await env.counts() == {"COMPLETED": 10}


async def test_songs_left_out_earlier_count_towards_the_limit_of_a_start(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 60, options=leaving_out(1, 2, 3)) as env:
        await env.kit.run_for(60)  # untouched songs come first
        await env.start(limit=40)
        await env.pipeline.stop("ann")
        assert await env.music.library.count_left_out() == 2
        await env.kit.run_for(60)
        await env.start(limit=10)
        await env.run_until_idle()
        assert await env.counts() == {"COMPLETED": 28, "PENDING": 32}
        assert await env.music.library.count_left_out() == 2


async def test_the_status_shows_a_failed_sync_beside_left_out_songs(tmp_path: Path) -> None:
    unreachable = SubsonicSettings(url=f"http://{HOST}:{free_port()}", user="ann", password=SESAME)
    async with music_environment(tmp_path, 60, options=leaving_out(3), subsonic=unreachable) as env:
        await env.start()
        await env.pipeline.start(PipelineStartRequest())
        await env.kit.run_for(90, check=False)
        status = (await env.call("GET", "/api/queue/status")).json
        assert status["leftOut"] == {"retried": 1, "waiting": 0}
        (problem,) = status["problems"]
        assert problem.startswith(f"the music server {unreachable.url} cannot be reached")


async def test_a_worker_that_dies_while_it_sends_them_sends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with music_environment(tmp_path, 10, options=leaving_out(1)) as env:
        env.lose_answers(monkeypatch, False, True)
        await env.start()
        await env.run_until_idle()
        assert await env.counts() == {"COMPLETED": 10}
        assert len(env.provider.request_log.bills) == 4


async def test_songs_about_to_be_sent_again_are_left_alone_by_who_sets_songs_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with music_environment(tmp_path, 10, options=leaving_out(1)) as env:
        sent, swept = env.music.app.enqueue_many, list[int]()

        async def swept_first(requests: object) -> object:
            swept.append(await env.music.reconciler.reconcile())
            return await sent(requests)  # type: ignore[arg-type]

        monkeypatch.setattr(env.music.app, "enqueue_many", swept_first)
        await env.start()
        await env.run_until_idle()
        assert (swept, await env.counts()) == ([0, 0], {"COMPLETED": 10})
