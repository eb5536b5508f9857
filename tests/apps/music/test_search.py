"""Search of songs by a text: its call counts against the same limits as all others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.apps.music.library_fixtures import track
from tests.apps.music.virtual_kit import Visitors, declare_web, music_environment
from tidemill import Filter, State, Tidemill
from tidemill.clock import SystemClock
from tidemill.testing.simulator import (
    GeminiDialect,
    Quota,
    SimulatedProvider,
    SimulatorOptions,
    SimulatorServer,
)
from tidemill.web import HTTPError
from tidemill_apps.common.model_clients import ProviderAccount
from tidemill_apps.music import search
from tidemill_apps.music.connections import simulate_descriptions
from tidemill_apps.music.limits import CALLS_POOL
from tidemill_apps.music.pipeline_control import PipelineStartRequest
from tidemill_apps.music.service import Music
from tidemill_apps.music.settings import CallSettings, MusicSettings
from tidemill_apps.music.tables import SongStatus, Track

SONGS = (
    Track(id="rain", title="Raindrop at Midnight", artist="Mara Quill"),
    Track(id="雨", title="雨夜的钢琴", artist="林晚"),
    Track(id="march", title="Marching Home", artist="The Lanterns"),
)


@pytest.fixture
def provider() -> SimulatedProvider:
    quotas = [Quota.rolling("requests", 100)]
    return SimulatedProvider(
        GeminiDialect(), quotas, SimulatorOptions(), clock=SystemClock(), replies=simulate_descriptions
    )


@pytest.fixture
async def music(tmp_path: Path, provider: SimulatedProvider) -> AsyncIterator[Music]:
    async with SimulatorServer(provider) as server:
        account = ProviderAccount(base_url=server.url, simulator=True, dimensions=256)
        settings = MusicSettings(
            database_url=f"sqlite:///{tmp_path}/music.db",
            chat=account,
            embeddings=account,
            calls=CallSettings(per_minute=50, per_day=0),
        )
        app = Tidemill(f"sqlite:///{tmp_path}/jobs.db")
        music = Music(app, settings)
        declare_web(music)
        async with app:
            await music.prepare()
            await music.library.upsert([*SONGS, *[track(number) for number in range(7)]])
            yield music
            await music.close()


async def test_a_text_finds_what_it_speaks_of_in_either_language(
    music: Music, provider: SimulatedProvider
) -> None:
    worker = music.app.worker()
    running = asyncio.create_task(worker.run())
    await (music.app.job((await music.pipeline.start(PipelineStartRequest(skip_sync=True))).job)).result(
        timeout=20
    )
    while (await music.library.count_by_status())[SongStatus.COMPLETED] < 10:  # noqa: ASYNC110 - until a worker continues
        await asyncio.sleep(0.05)
    ask = Visitors(music.app).call
    for text, found in (("raindrop midnight", "rain"), ("雨夜 钢琴", "雨")):
        answer = await ask("GET", f"/api/songs/search?text={quote(text)}&count=3", who="viewer")
        assert answer.json["songs"][0]["navidrome_id"] == found
        assert len(answer.json["songs"]) == 3
    assert len(provider.request_log.bills) == 4
    worker.stop()
    await running


async def test_a_search_without_a_worker_is_503_and_its_job_is_cancelled(
    music: Music, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SEARCH_DEADLINE_SECONDS", 0.05)
    answer = await Visitors(music.app).call("GET", "/api/songs/search?text=rain", who="viewer")
    assert (answer.status, answer.headers["retry-after"]) == (503, "60")
    assert answer.json["detail"].startswith("the text's vector was not there within 0.05 s. ")
    assert "no living worker serves the queue" in answer.json["detail"].lower(), answer.json["detail"]
    counts = (await music.app.inspect.counts())[search.SEARCH_QUEUE]
    assert {state.value: number for state, number in counts.items() if number} == {"cancelled": 1}


async def test_a_search_with_a_closed_pool_fails_at_once_with_the_reason(music: Music) -> None:
    await music.app.inspect.counts()
    for until, how in ((None, "fix the cause and resume"), (music.app.clock.wall() + 3600, "try later")):
        await music.app.inspect.close_pool(CALLS_POOL, by="ann", reason="密钥无效", until=until)
        with pytest.raises(HTTPError, match=f"^provider calls are paused: 密钥无效; {how}$"):
            await music.search.find("rain", 3)
        assert not (await music.app.inspect.counts()).get(search.SEARCH_QUEUE, {}).get(State.READY, 0)


async def test_a_search_with_a_used_up_day_is_503_at_once_with_retry_after(tmp_path: Path) -> None:
    """The daily calls are used up. The time of the next call is known, so the user does not wait."""
    async with music_environment(tmp_path, 20, calls=CallSettings(per_minute=100, per_day=4)) as env:
        await env.start()
        await env.run_until_idle()
        worker = env.music.app.worker()
        running = asyncio.create_task(worker.run())
        await until_served(env.music)
        try:
            async with asyncio.timeout(search.SEARCH_DEADLINE_SECONDS / 2):
                answer = await env.call("GET", "/api/songs/search?text=rain")
        finally:
            worker.stop()
            await running
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) > 60
        assert answer.json["detail"].startswith("no call is free within 20 s. ")
        counts = (await env.music.app.inspect.counts())[search.SEARCH_QUEUE]
        assert {state.value: number for state, number in counts.items() if number} == {"cancelled": 1}


async def until_served(music: Music) -> None:
    while not await music.app.inspect.workers():  # noqa: ASYNC110 - it is in the store
        await asyncio.sleep(0.01)


async def test_two_long_texts_that_begin_alike_are_two(music: Music) -> None:
    beginning = "the rain that falls " * 20
    first, second = (
        await music.search.task.enqueue(beginning),
        await music.search.task.enqueue(f"{beginning}雨"),
    )
    assert first.id != second.id
    assert (await music.search.task.enqueue(beginning)).id == first.id


async def test_a_search_whose_job_is_cancelled_says_so(music: Music) -> None:
    asking = asyncio.create_task(music.search.find("rain", 3))
    while not (jobs := (await music.app.inspect.find(Filter(queue=search.SEARCH_QUEUE))).jobs):  # noqa: ASYNC110 - it is in the store
        await asyncio.sleep(0.01)
    await music.app.inspect.cancel(jobs[0].id)
    with pytest.raises(HTTPError, match=r"was not there within 20 s\. The job was cancelled"):
        await asking


async def test_a_process_without_a_worker_serves_everything_on_a_fresh_store(music: Music) -> None:
    """Like `tidemill web music` before anything else was started."""
    visitors = Visitors(music.app)
    status = await visitors.call("GET", "/api/queue/status")
    assert (status.status, status.json["isWorkerRunning"]) == (200, False)
    for verb in ("resume", "stop"):
        assert (await visitors.call("POST", f"/api/queue/{verb}")).json["state"] == "idle"
    browser = await visitors.browser()
    for path in ("/music", "/music/plan", "/music/search", "/music/songs/rain"):
        assert (await browser.get(path)).status == 200
    assert (await visitors.call("POST", "/api/queue/start", {})).json["started"]["stage"] == "syncing"
