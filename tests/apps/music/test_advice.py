"""What the status and the page say there is to do: while jobs are tried again, and while it is idle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tests.apps.music.world import World, world
from tidemill.testing.providers import Options, Reason, Trouble

AWAY = Options(lost_rate=1.0)


async def status_of(its: World) -> dict[str, Any]:
    return dict((await its.call("GET", "/api/queue/status", who="viewer")).json)


async def page_of(its: World) -> str:
    return (await (await its.visitors.browser()).get("/music")).text


async def test_while_jobs_are_tried_again_their_number_and_error_are_told(tmp_path: Path) -> None:
    async with world(tmp_path, 2000, options=AWAY) as its:
        await its.start()
        status = await status_of(its)
        (one,) = status["retrying"]
        assert one["jobs"] == 2
        assert one["error"].startswith("the simulator of gemini (127.0.0.1:")
        assert status["failures"] == []
        assert f"2 jobs being tried again: {one['error']}" in status["advice"]
        assert "Jobs that are tried again, 2: the simulator of gemini" in await page_of(its)


async def test_also_while_they_wait_for_their_start(tmp_path: Path) -> None:
    """Two start in a minute: after their wait they are ready, and stay so for most of it."""
    async with world(tmp_path, 2000, options=AWAY) as its:
        await its.start()
        await its.kit.run_for(30, check=False)
        assert (await status_of(its))["delayedJobs"] == 0
        assert [one["jobs"] for one in (await status_of(its))["retrying"]] == [2]


async def test_when_the_provider_is_back_nothing_is_told_any_more(tmp_path: Path) -> None:
    async with world(tmp_path, 20, options=AWAY) as its:
        await its.start()
        its.provider.options = replace(its.provider.options, lost_rate=0.0)
        await its.run_until_idle()
        assert await its.counts() == {"COMPLETED": 20}
        status = await status_of(its)
        assert (status["retrying"], status["advice"]) == ([], [])


async def test_what_waits_because_of_a_refusal_is_not_taken_for_an_error(tmp_path: Path) -> None:
    async with world(tmp_path, 20, options=Options(troubles=(Trouble(Reason.RATE, 0.0, 30.0),))) as its:
        await its.start()
        status = await status_of(its)
        assert (status["state"], status["retrying"]) == ("breaker", [])


async def test_songs_that_wait_for_a_start_are_told_while_it_is_idle(tmp_path: Path) -> None:
    async with world(tmp_path, 30) as its:
        assert (await status_of(its))["advice"] == [
            "30 songs waiting to be described: start to have them done"
        ]
        assert "Songs waiting, 30: start" in await page_of(its)
        await its.start(work="metadata")
        assert (await status_of(its))["advice"] == []
        await its.run_until_idle()
        (told,) = (await status_of(its))["advice"]
        assert told.startswith(
            '30 songs described and without a vector: start, in full or with work "embedding"'
        )
        assert "Songs without a vector, 30: start" in await page_of(its)
        await its.start(work="embedding")
        await its.run_until_idle()
        assert ((await status_of(its))["advice"], await its.counts()) == ([], {"COMPLETED": 30})


async def test_a_start_that_finds_nothing_says_so(tmp_path: Path) -> None:
    async with world(tmp_path, 10) as its:
        await its.start()
        await its.run_until_idle()
        assert (await status_of(its))["idle"]["nothing"] is False
        await its.start()
        status = await status_of(its)
        assert status["idle"] == {"pending": 0, "described": 0, "nothing": True}
        assert status["advice"] == ["the last start found nothing to do: no song waited for it"]
        assert "There was nothing to do" in await page_of(its)


async def test_also_when_songs_wait_for_the_other_half(tmp_path: Path) -> None:
    async with world(tmp_path, 10) as its:
        await its.start(work="metadata")
        await its.run_until_idle()
        await its.start(work="metadata")
        assert (await status_of(its))["idle"] == {"pending": 0, "described": 10, "nothing": True}
