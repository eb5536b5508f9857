"""What is foretold, held against what then happens, in windows of real length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.apps.music.libraries import track
from tests.apps.music.world import world
from tests.servers.program import HOST, free_port
from tidemill_apps.common.providers.account import Account
from tidemill_apps.music.pipeline import Start
from tidemill_apps.music.settings import CallSettings, PriceSettings, SubsonicSettings

SESAME = "sesame"
REAL = Account(provider="openai", base_url="http://127.0.0.1:1/v1", key="k")


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
async def test_the_end_is_foretold_within_a_tenth(
    tmp_path: Path, before: int, more: int, settings: dict[str, Any], bottleneck: str
) -> None:
    async with world(tmp_path, before, **settings) as its:
        if before:
            await its.start()
            await its.kit.run_for(120)
        await its.music.library.upsert([track(number) for number in range(before, before + more)])
        foretold = await its.pipeline.preview(Start(skip_sync=True))
        began, paid = its.kit.now, len(its.provider.ledger.bills)
        await its.start()
        await its.run_until_idle(step=20.0)
        assert foretold.seconds == pytest.approx(its.kit.now - began, rel=0.1)
        assert (foretold.songs, foretold.jobs, foretold.calls) == (more, more // 10, more // 5)
        assert foretold.bottleneck == bottleneck
        assert len(its.provider.ledger.bills) - paid >= foretold.calls


async def test_a_day_s_quota_makes_days_of_it(tmp_path: Path) -> None:
    async with world(tmp_path, 200, calls=CallSettings(per_minute=5, per_day=10)) as its:
        foretold = await its.pipeline.preview(Start(skip_sync=True))
        assert foretold.bottleneck == "10 requests per day of music-calls"
        assert foretold.seconds is not None
        assert foretold.seconds == pytest.approx(3 * 86_400, rel=0.3)


async def test_it_says_what_it_costs(tmp_path: Path) -> None:
    price = PriceSettings(per_call=0.01, per_1k_tokens=0.1, tokens_per_song=200.0, currency="CNY")
    async with world(tmp_path, 45, price=price, chat=REAL, embeddings=REAL) as its:
        foretold = await its.pipeline.preview(Start(skip_sync=True))
        assert (foretold.calls, foretold.cost, foretold.currency) == (10, 1.0, "CNY")
        assert (foretold.priced, foretold.simulated) == (True, [])


async def test_a_pause_and_a_missing_worker_are_told(tmp_path: Path) -> None:
    async with world(tmp_path, 100) as its:
        await its.start(limit=50)
        await its.pipeline.pause("ann")
        foretold = await its.pipeline.preview(Start(skip_sync=True))
        assert foretold.seconds is None
        assert any("paused by ann" in wait for wait in foretold.waits)
        assert any("no worker serves queue metadata-generation" in wait for wait in foretold.waits)


async def test_what_a_sync_would_bring_first_is_counted_and_nothing_is_written(tmp_path: Path) -> None:
    async with world(tmp_path, 16) as its:
        foretold = await its.pipeline.preview(Start())
        assert (foretold.new, foretold.songs, foretold.jobs, foretold.calls) == (60, 76, 8, 16)
        described = await its.pipeline.preview(Start(limit=20, work="metadata"))
        assert (described.new, described.songs, described.calls) == (60, 20, 2)
        assert (await its.pipeline.preview(Start(work="embedding"))).songs == 0
        assert await its.counts() == {"PENDING": 16}
        await its.pipeline.start(Start())
        await its.run_until_idle()
        assert len(its.provider.ledger.bills) == foretold.calls
        assert (await its.pipeline.preview(Start())).new == 0


async def test_a_music_server_that_is_away_is_told_in_a_sentence(tmp_path: Path) -> None:
    gone = SubsonicSettings(url=f"http://{HOST}:{free_port()}", user="ann", password=SESAME)
    async with world(tmp_path, 10, subsonic=gone) as its:
        answer = await its.call("POST", "/api/queue/start", {"dryRun": True})
        assert answer.status == 503
        assert "cannot be reached" in answer.json["detail"]
        assert SESAME not in answer.text
        answer = await its.call("POST", "/api/queue/start", {"dryRun": True, "skipSync": True})
        assert answer.json["preview"]["songs"] == 10


async def test_nothing_to_do_costs_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as its:
        foretold = await its.pipeline.preview(Start(skip_sync=True))
        assert replace(foretold, currency="") == replace(foretold, currency="", jobs=0, calls=0, cost=0.0)
        assert (foretold.starts_at, foretold.ends_at) == (None, None)
