"""Compares the forecast with the actual run, in windows of real length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.apps.music.library_fixtures import track
from tests.apps.music.virtual_kit import music_environment
from tests.servers.program import HOST, free_port
from tidemill_apps.common.model_clients import ProviderAccount
from tidemill_apps.music.pipeline_control import PipelineStartRequest
from tidemill_apps.music.settings import CallSettings, PriceSettings, SubsonicSettings

SESAME = "sesame"
REAL = ProviderAccount(provider="openai", base_url="http://127.0.0.1:1/v1", key="k")


@pytest.mark.parametrize(
    ("before", "more", "settings", "bottleneck"),
    [
        (0, 120, {}, "2 jobs per minute of metadata-generation-starts"),
        (100, 100, {}, "2 jobs per minute of metadata-generation-starts"),
        (0, 200, {"metadata_starts": 20}, "5 requests per minute of music-calls"),
        (200, 100, {"metadata_starts": 20}, "5 requests per minute of music-calls"),
    ],
    ids=["starts", "starts with a backlog", "calls", "calls with a backlog"],
)
async def test_the_preview_is_within_ten_percent_of_the_run(
    tmp_path: Path, before: int, more: int, settings: dict[str, Any], bottleneck: str
) -> None:
    async with music_environment(tmp_path, before, **settings) as env:
        if before:
            await env.start()
            await env.kit.run_for(120)
        await env.music.library.upsert([track(number) for number in range(before, before + more)])
        preview = await env.pipeline.preview(PipelineStartRequest(skip_sync=True))
        began, paid = env.kit.now, len(env.provider.request_log.bills)
        await env.start()
        await env.run_until_idle(step=20.0)
        assert preview.seconds == pytest.approx(env.kit.now - began, rel=0.1)
        assert (preview.songs, preview.jobs, preview.calls) == (more, more // 10, more // 5)
        assert preview.bottleneck == bottleneck
        assert len(env.provider.request_log.bills) - paid >= preview.calls


async def test_a_day_s_quota_makes_days_of_it(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 200, calls=CallSettings(per_minute=5, per_day=10)) as env:
        preview = await env.pipeline.preview(PipelineStartRequest(skip_sync=True))
        assert preview.bottleneck == "10 requests per day of music-calls"
        assert preview.seconds is not None
        assert preview.seconds == pytest.approx(3 * 86_400, rel=0.3)


async def test_it_says_what_it_costs(tmp_path: Path) -> None:
    price = PriceSettings(per_call=0.01, per_1k_tokens=0.1, tokens_per_song=200.0, currency="CNY")
    async with music_environment(tmp_path, 45, price=price, chat=REAL, embeddings=REAL) as env:
        preview = await env.pipeline.preview(PipelineStartRequest(skip_sync=True))
        assert (preview.calls, preview.cost, preview.currency) == (10, 1.0, "CNY")
        assert (preview.priced, preview.simulated) == (True, [])


async def test_the_preview_names_a_pause_and_a_missing_worker(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 100) as env:
        await env.start(limit=50)
        await env.pipeline.pause("ann")
        preview = await env.pipeline.preview(PipelineStartRequest(skip_sync=True))
        assert preview.seconds is None
        assert any("paused by ann" in wait for wait in preview.waits)
        assert any("no worker serves queue metadata-generation" in wait for wait in preview.waits)


async def test_the_preview_counts_new_songs_of_a_sync_and_writes_nothing(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 16) as env:
        preview = await env.pipeline.preview(PipelineStartRequest())
        assert (preview.new, preview.songs, preview.jobs, preview.calls) == (60, 76, 8, 16)
        described = await env.pipeline.preview(PipelineStartRequest(limit=20, work="metadata"))
        assert (described.new, described.songs, described.calls) == (60, 20, 2)
        assert (await env.pipeline.preview(PipelineStartRequest(work="embedding"))).songs == 0
        assert await env.counts() == {"PENDING": 16}
        await env.pipeline.start(PipelineStartRequest())
        await env.run_until_idle()
        assert len(env.provider.request_log.bills) == preview.calls
        assert (await env.pipeline.preview(PipelineStartRequest())).new == 0


async def test_a_preview_with_an_unreachable_music_server_is_503(tmp_path: Path) -> None:
    unreachable = SubsonicSettings(url=f"http://{HOST}:{free_port()}", user="ann", password=SESAME)
    async with music_environment(tmp_path, 10, subsonic=unreachable) as env:
        answer = await env.call("POST", "/api/queue/start", {"dryRun": True})
        assert answer.status == 503
        assert "cannot be reached" in answer.json["detail"]
        assert SESAME not in answer.text
        answer = await env.call("POST", "/api/queue/start", {"dryRun": True, "skipSync": True})
        assert answer.json["preview"]["songs"] == 10


async def test_nothing_to_do_costs_nothing(tmp_path: Path) -> None:
    async with music_environment(tmp_path) as env:
        preview = await env.pipeline.preview(PipelineStartRequest(skip_sync=True))
        assert replace(preview, currency="") == replace(preview, currency="", jobs=0, calls=0, cost=0.0)
        assert (preview.starts_at, preview.ends_at) == (None, None)
