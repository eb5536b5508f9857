"""The pages and their buttons."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.apps.music.virtual_kit import music_environment
from tidemill.testing.simulator import Disruption, RefusalCause, SimulatorOptions
from tidemill_apps.music.limits import FULL_QUEUE
from tidemill_apps.music.pages import MESSAGES
from tidemill_apps.music.pipeline_state import PipelineStage
from tidemill_apps.music.tables import songs


async def test_the_page_shows_how_it_stands(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 40) as env:
        browser = await env.visitors.browser()
        await env.start()
        await env.run_until_idle()
        page = (await browser.get("/music")).text
        assert "40 of 40 songs are done" in page
        assert "This runs on a simulator." in page
        assert ">Idle<" in page.replace("\n", "")
        assert "No job has failed." in page


async def test_a_viewer_sees_no_buttons(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 40) as env:
        await env.start()
        page = (await (await env.visitors.browser("viewer")).get("/music")).text
        assert "/music/stop" not in page
        assert "/music/start" not in page
        assert (await (await env.visitors.browser("viewer")).post("/music/stop")).status == 403


async def test_the_buttons_do_what_they_say(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 100) as env:
        browser = await env.visitors.browser()
        csrf = {"csrf": await browser.csrf()}
        began = await browser.post("/music/start", {**csrf, "limit": "50", "work": "full"})
        assert began.status == 303
        await env.kit.run_until_idle()
        for press, stage in (
            ("pause", PipelineStage.PAUSED),
            ("resume", PipelineStage.RUNNING),
            ("stop", PipelineStage.IDLE),
        ):
            assert f"/music/{press}" in (await browser.get("/music")).text
            assert (await browser.post(f"/music/{press}", csrf)).status == 303
            assert await env.stage() is stage


async def test_progress_says_how_many_failed(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 40) as env:
        await env.start()
        await env.run_until_idle()
        async with env.music.database.transaction() as connection:
            await connection.execute(songs.update().values(status="FAILED"))
        assert (
            "0 of 40 songs are done, 40 failed" in (await (await env.visitors.browser()).get("/music")).text
        )


async def test_a_breaker_and_its_time_are_shown(tmp_path: Path) -> None:
    async with music_environment(
        tmp_path, 10, options=SimulatorOptions(disruptions=(Disruption(RefusalCause.RATE, 0.0, 30.0),))
    ) as env:
        await env.start()
        page = (await (await env.visitors.browser()).get("/music")).text
        assert "Waiting for the provider" in page
        assert "resumes in" in page
        assert "data-until" in page


async def test_a_dry_run_is_shown_and_sends_nothing(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 100) as env:
        browser = await env.visitors.browser()
        form = {"csrf": await browser.csrf(), "limit": "50", "work": "full", "sync": "true"}
        there = (await browser.post("/music/plan", form)).headers["location"]
        assert there == "/music/plan?limit=50&sync=True&work=full"
        page = (await browser.get(there)).text
        figures = dict(re.findall(r"<dt>(\w+)</dt><dd>([\d.]+)", page))
        assert (figures["Songs"], figures["Jobs"], figures["Calls"]) == ("50", "5", "10")
        assert "A sync would add 60 songs first" in page
        assert "2 jobs per minute of metadata-generation-starts" in page
        assert await env.stage() is PipelineStage.IDLE
        nothing = (await (await env.visitors.browser()).get("/music/plan?work=embedding")).text
        assert "Nothing to do" in nothing


async def test_a_song_and_those_like_it(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 20) as env:
        browser = await env.visitors.browser()
        assert "No vector to compare yet" in (await browser.get("/music/songs/s1")).text
        await env.start()
        await env.run_until_idle()
        page = (await browser.get("/music/songs/s1")).text
        assert "潮汐之歌 第1首" in page
        assert page.count('href="/music/songs/') == 10
        assert (await browser.get("/music/songs/nobody")).status == 404


async def test_errors_are_escaped_on_the_page(tmp_path: Path) -> None:
    async with music_environment(tmp_path, options=SimulatorOptions()) as env:
        job = await env.music.tasks[FULL_QUEUE].enqueue(correlationId="x", songs=[])
        await env.music.app.inspect.archive(job.id, reason="<i>bad</i>")
        page = (await (await env.visitors.browser()).get("/music")).text
        assert "batch-analyze" in page
        assert "<i>bad</i>" not in page


@pytest.mark.parametrize(
    "path", ["/music", "/music/plan", "/music/search", "/music/songs", "/music/songs/s0"]
)
async def test_every_page_speaks_chinese(tmp_path: Path, path: str) -> None:
    async with music_environment(tmp_path, 1) as env:
        browser = await env.visitors.browser()
        page = (await browser.get(path, **{"accept-language": "zh"})).text
        assert "音乐" in page


def test_both_languages_have_the_same_words() -> None:
    english, chinese = (
        tomllib.loads((MESSAGES.folder / f"{language}.toml").read_text(encoding="utf-8"))
        for language in ("en", "zh")
    )
    assert {part: sorted(labels) for part, labels in english.items()} == {
        part: sorted(labels) for part, labels in chinese.items()
    }
    for part, labels in english.items():
        for name, sentence in labels.items():
            assert {*re.findall(r"{\w+}", sentence)} == {*re.findall(r"{\w+}", chinese[part][name])}
