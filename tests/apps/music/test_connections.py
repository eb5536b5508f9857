"""The pages label a simulator and name what it replaces: both connections, or one of them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.apps.music.virtual_kit import music_environment
from tidemill import Tidemill
from tidemill_apps.common.model_clients import ProviderAccount
from tidemill_apps.music.connections import MusicConnections
from tidemill_apps.music.llm import ANSWER_SCHEMA, SYSTEM_PROMPT, format_songs
from tidemill_apps.music.pipeline_control import PipelineStartRequest
from tidemill_apps.music.settings import PriceSettings, load_settings
from tidemill_apps.music.tables import Song

REAL = ProviderAccount(provider="openai", base_url="http://127.0.0.1:1/v1", key="k")
BY_VARIABLES = {
    "MUSIC_CHAT_PROVIDER": "openai",
    "MUSIC_CHAT_BASE_URL": "http://127.0.0.1:1/v1",
    "MUSIC_CHAT_KEY": "k",
}
PRICE = PriceSettings(per_call=0.01, per_1k_tokens=0.1, tokens_per_song=100.0)


@pytest.mark.parametrize(
    ("real", "simulated", "sentence"),
    [
        ({}, ["chat", "embeddings"], "This runs on a simulator."),
        ({"chat": REAL}, ["embeddings"], "The vectors come from a simulator."),
        ({"embeddings": REAL}, ["chat"], "The descriptions come from a simulator."),
        ({"chat": REAL, "embeddings": REAL}, [], None),
    ],
    ids=["both", "vectors", "descriptions", "none"],
)
async def test_every_page_and_the_status_say_which_half_is_simulated(
    tmp_path: Path, real: dict[str, Any], simulated: list[str], sentence: str | None
) -> None:
    async with music_environment(tmp_path, 20, **real) as env:
        status = (await env.call("GET", "/api/queue/status")).json
        assert (status["simulated"], status["simulator"]) == (simulated, len(simulated) == 2)
        browser = await env.visitors.browser()
        for path in ("/music", "/music/plan", "/music/search", "/music/songs/s1"):
            page = (await browser.get(path)).text
            assert "simulator" in page if sentence else "simulator" not in page
            assert sentence is None or f"<strong>{sentence}</strong>" in page
            assert ("cost nothing. Set" in page) == (len(simulated) == 2)


@pytest.mark.parametrize(
    ("real", "work", "cost"),
    [
        ({}, "full", 0.0),
        ({"chat": REAL}, "full", 2 * 0.01 + 0.2),
        ({"chat": REAL, "embeddings": REAL}, "full", 4 * 0.01 + 0.2),
        ({"embeddings": REAL}, "metadata", 0.0),
    ],
)
async def test_the_preview_has_the_cost_of_real_calls_only(
    tmp_path: Path, real: dict[str, Any], work: Any, cost: float
) -> None:
    async with music_environment(tmp_path, 20, price=PRICE, **real) as env:
        assert (
            await env.pipeline.preview(PipelineStartRequest(skip_sync=True, work=work))
        ).cost == pytest.approx(cost)


async def test_without_a_price_the_plan_shows_no_cost_of_real_calls(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 20, chat=REAL) as env:
        page = (await (await env.visitors.browser()).get("/music/plan")).text
        assert "0.0000" not in page
        assert "MUSIC_PRICE_PER_CALL" in page


async def test_the_log_says_what_the_simulator_stands_in_for(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tidemill_apps"):
        connections = MusicConnections(Tidemill("memory://"), load_settings(BY_VARIABLES))
        await connections.open()
        await connections.close()
    assert (
        "the simulator stands in for embeddings (the vectors); chat (the descriptions) is not simulated: "
        "openai (127.0.0.1:1) is called, and paid"
    ) in caplog.messages


async def test_one_simulator_answers_for_two_providers() -> None:
    connections = MusicConnections(Tidemill("memory://"), load_settings({"MUSIC_CHAT_PROVIDER": "openai"}))
    to = await connections.open()
    try:
        prompt = format_songs([Song("a", "Rain", "Mara Quill")])
        assert "Rain" in (await to.chat.complete(SYSTEM_PROMPT, prompt, ANSWER_SCHEMA, call_id="x")).text
        assert (await to.embeddings.embed(["rain"], call_id="x")).vectors[0]
    finally:
        await connections.close()
