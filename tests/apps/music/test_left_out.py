"""Songs that an answer leaves out are asked about once more in the same run, together and when all else is
done; what was answered is never asked again. Who is left out again waits, and a person is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apps.music.libraries import column
from tests.apps.music.world import world
from tests.servers.program import HOST, free_port
from tidemill import Filter
from tidemill.testing.providers import Faults, Options, Request
from tidemill.testing.providers.provider import Served
from tidemill_apps.music.limits import PIPELINE_QUEUE
from tidemill_apps.music.pipeline import Start
from tidemill_apps.music.settings import SubsonicSettings
from tidemill_apps.music.standing import LIVE, Stage

SESAME = "sesame"


def leaving_out(*answers: int, **more: frozenset[int]) -> Options:
    return Options(faults=Faults(left_out=frozenset(answers), **more))


async def test_songs_left_out_of_several_answers_go_once_more_in_one_job(tmp_path: Path) -> None:
    async with world(tmp_path, 40, options=leaving_out(1, 3)) as its:
        await its.start()
        await its.run_until_idle()
        assert await its.counts() == {"COMPLETED": 40}
        kinds = [bill.kind for bill in its.provider.ledger.bills]
        assert (kinds.count("chat"), kinds.count("embed")) == (5, 5)
        assert its.provider.ledger.paid_again() == {}
        assert its.provider.ledger.refused == []


async def test_a_song_that_lacks_its_vector_alone_is_not_described_again(tmp_path: Path) -> None:
    async with world(tmp_path, 20, options=Options(faults=Faults(null_vector=frozenset({1})))) as its:
        await its.start()
        await its.run_until_idle()
        assert await its.counts() == {"COMPLETED": 20}
        kinds = [bill.kind for bill in its.provider.ledger.bills]
        assert (kinds.count("chat"), kinds.count("embed")) == (2, 3)


async def test_with_descriptions_only_they_are_asked_for_descriptions_only(tmp_path: Path) -> None:
    async with world(tmp_path, 20, options=leaving_out(1)) as its:
        await its.start(work="metadata")
        await its.run_until_idle()
        assert await its.counts() == {"DESCRIBED": 20}
        assert [bill.kind for bill in its.provider.ledger.bills] == ["chat"] * 3


async def test_who_is_left_out_again_waits_for_the_next_start_and_is_failed_by_the_third(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, 10, options=leaving_out(1, 2, 3)) as its:
        await its.start()
        await its.run_until_idle()
        assert await its.counts() == {"COMPLETED": 9, "PENDING": 1}
        status = (await its.call("GET", "/api/queue/status")).json
        assert status["leftOut"] == {"coming": 0, "waiting": 1}
        (told,) = status["advice"]
        assert told == "1 song left out of the model's answers: waiting; start again to have them asked about"
        page = (await (await its.visitors.browser()).get("/music")).text
        assert "Songs that answers left out, 1: they wait. Start again" in page
        await its.start()
        await its.run_until_idle()
        assert await its.counts() == {"COMPLETED": 9, "FAILED": 1}
        assert len(its.provider.ledger.bills) == 4


async def test_while_it_runs_a_person_is_told_that_they_come_again(tmp_path: Path) -> None:
    async with world(tmp_path, 60, options=leaving_out(1)) as its:
        await its.start()
        status = (await its.call("GET", "/api/queue/status")).json
        assert (status["state"], status["leftOut"]) == ("running", {"coming": 1, "waiting": 0})
        assert status["problems"] == []
        (told,) = status["advice"]
        assert told == "1 song left out of the model's answers: asked about once more when all else is done"
        page = (await (await its.visitors.browser()).get("/music")).text
        assert "Songs that answers left out, 1: they are asked about once more" in page
        begun = await its.pipeline.start(Start(skip_sync=True))
        assert (begun.existing, begun.stage) == (False, Stage.ENQUEUING)


async def test_after_a_stop_nothing_comes_again(tmp_path: Path) -> None:
    async with world(tmp_path, 60, options=leaving_out(1)) as its:
        await its.start()
        await its.pipeline.stop("ann")
        bills = len(its.provider.ledger.bills)
        await its.kit.run_for(3600)
        assert await its.stage() is Stage.IDLE
        assert len(its.provider.ledger.bills) == bills
        assert (await its.music.app.inspect.find(Filter(queue=PIPELINE_QUEUE, states=LIVE))).jobs == ()
        assert max((await column(its.music.library, "tries")).values()) == 1


async def test_a_job_that_a_stop_lets_run_to_its_end_has_nothing_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, 10, options=leaving_out(1)) as its:
        serve, calls = its.provider.serve, iter([True])

        async def stopped_first(request: Request) -> Served:
            if next(calls, False):
                await its.pipeline.stop("ann")
            return await serve(request)

        monkeypatch.setattr(its.provider, "serve", stopped_first)
        await its.start()
        await its.kit.run_for(3600)
        assert await its.stage() is Stage.IDLE
        assert len(its.provider.ledger.bills) == 2
        status = (await its.call("GET", "/api/queue/status")).json
        assert status["leftOut"] == {"coming": 0, "waiting": 1}
        await its.start()
        await its.run_until_idle()
        assert await its.counts() == {"COMPLETED": 10}


async def test_what_an_earlier_run_left_out_is_not_sent_beyond_the_limit_of_another(tmp_path: Path) -> None:
    async with world(tmp_path, 60, options=leaving_out(1, 2, 3)) as its:
        await its.kit.run_for(60)  # what was never touched goes first
        await its.start(limit=40)
        await its.pipeline.stop("ann")
        assert await its.music.library.left_out() == 2
        await its.kit.run_for(60)
        await its.start(limit=10)
        await its.run_until_idle()
        assert await its.counts() == {"COMPLETED": 28, "PENDING": 32}
        assert await its.music.library.left_out() == 2


async def test_why_a_sync_failed_is_told_though_songs_come_again(tmp_path: Path) -> None:
    nobody = SubsonicSettings(url=f"http://{HOST}:{free_port()}", user="ann", password=SESAME)
    async with world(tmp_path, 60, options=leaving_out(3), subsonic=nobody) as its:
        await its.start()
        await its.pipeline.start(Start())
        await its.kit.run_for(90, check=False)
        status = (await its.call("GET", "/api/queue/status")).json
        assert status["leftOut"] == {"coming": 1, "waiting": 0}
        (told,) = status["problems"]
        assert told.startswith(f"the music server {nobody.url} cannot be reached")


async def test_a_worker_that_dies_while_it_sends_them_sends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, 10, options=leaving_out(1)) as its:
        its.lose_answers(monkeypatch, False, True)
        await its.start()
        await its.run_until_idle()
        assert await its.counts() == {"COMPLETED": 10}
        assert len(its.provider.ledger.bills) == 4


async def test_songs_about_to_be_sent_again_are_left_alone_by_who_sets_songs_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, 10, options=leaving_out(1)) as its:
        sent, swept = its.music.app.enqueue_many, list[int]()

        async def swept_first(requests: object) -> object:
            swept.append(await its.music.sweeper.sweep())
            return await sent(requests)  # type: ignore[arg-type]

        monkeypatch.setattr(its.music.app, "enqueue_many", swept_first)
        await its.start()
        await its.run_until_idle()
        assert (swept, await its.counts()) == ([0, 0], {"COMPLETED": 10})
