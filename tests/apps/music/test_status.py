"""The remaining work on the status and the page: while jobs are retried, and while it is idle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tests.apps.music.virtual_kit import MusicEnvironment, music_environment
from tidemill.testing.simulator import Disruption, RefusalCause, SimulatorOptions

AWAY = SimulatorOptions(lost_rate=1.0)


async def status_of(env: MusicEnvironment) -> dict[str, Any]:
    return dict((await env.call("GET", "/api/queue/status", who="viewer")).json)


async def page_of(env: MusicEnvironment) -> str:
    return (await (await env.visitors.browser()).get("/music")).text


async def test_the_status_shows_retrying_jobs_with_their_error(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 2000, options=AWAY) as env:
        await env.start()
        status = await status_of(env)
        (one,) = status["retrying"]
        assert one["jobs"] == 2
        assert one["error"].startswith("the simulator of gemini (127.0.0.1:")
        assert status["failures"] == []
        assert f"2 jobs being retried: {one['error']}" in status["advice"]
        assert "Retrying jobs: 2: the simulator of gemini" in await page_of(env)


async def test_also_while_they_wait_for_their_start(tmp_path: Path) -> None:
    """Two jobs start per minute: after their wait they are ready, and stay so for most of it."""
    async with music_environment(tmp_path, 2000, options=AWAY) as env:
        await env.start()
        await env.kit.run_for(30, check=False)
        assert (await status_of(env))["delayedJobs"] == 0
        assert [one["jobs"] for one in (await status_of(env))["retrying"]] == [2]


async def test_the_status_is_clear_after_the_provider_recovers(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 20, options=AWAY) as env:
        await env.start()
        env.provider.options = replace(env.provider.options, lost_rate=0.0)
        await env.run_until_idle()
        assert await env.counts() == {"COMPLETED": 20}
        status = await status_of(env)
        assert (status["retrying"], status["advice"]) == ([], [])


async def test_jobs_waiting_after_a_refusal_are_not_shown_as_retrying(tmp_path: Path) -> None:
    async with music_environment(
        tmp_path, 20, options=SimulatorOptions(disruptions=(Disruption(RefusalCause.RATE, 0.0, 30.0),))
    ) as env:
        await env.start()
        status = await status_of(env)
        assert (status["state"], status["retrying"]) == ("breaker", [])


async def test_an_idle_status_advises_to_start_for_waiting_songs(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 30) as env:
        assert (await status_of(env))["advice"] == ["30 songs waiting to be described: start the pipeline"]
        assert "Songs waiting to be described: 30" in await page_of(env)
        await env.start(work="metadata")
        assert (await status_of(env))["advice"] == []
        await env.run_until_idle()
        (advice,) = (await status_of(env))["advice"]
        assert advice.startswith('30 songs without a vector: start, in full or with work "embedding"')
        assert "Songs without a vector: 30. Start" in await page_of(env)
        await env.start(work="embedding")
        await env.run_until_idle()
        assert ((await status_of(env))["advice"], await env.counts()) == ([], {"COMPLETED": 30})


async def test_a_start_that_finds_nothing_says_so(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 10) as env:
        await env.start()
        await env.run_until_idle()
        assert (await status_of(env))["idle"]["nothingFound"] is False
        await env.start()
        status = await status_of(env)
        assert status["idle"] == {"pending": 0, "described": 0, "nothingFound": True}
        assert status["advice"] == ["the last start found no waiting songs"]
        assert "The last start found no waiting songs" in await page_of(env)


async def test_also_when_songs_wait_for_the_other_half(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 10) as env:
        await env.start(work="metadata")
        await env.run_until_idle()
        await env.start(work="metadata")
        assert (await status_of(env))["idle"] == {"pending": 0, "described": 10, "nothingFound": True}
