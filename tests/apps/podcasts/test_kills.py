"""A worker that is killed at any point: the podcast is finished once, and nothing half-made is visible.

`make chaos` kills at ten points."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.apps.podcasts.audio_meters import meter
from tests.apps.podcasts.podcast_texts import MILLS, MILLS_ZH, SampleText
from tests.apps.podcasts.service_kit import simulated_speech, speech_simulator, studio_in
from tests.quotas.worker_processes import WorkerProcesses
from tidemill import Filter, State
from tidemill_apps.common.object_storage import StorageSettings

pytestmark = [pytest.mark.timeout(300)]
POINTS = ("call answered", "audio stored", "part stored", "file stored", "loudness")
EVERY_CASE = [(point, text) for text in (MILLS, MILLS_ZH) for point in POINTS]
CASES = EVERY_CASE if "TIDEMILL_PODCASTS_FULL" in os.environ else [EVERY_CASE[0], EVERY_CASE[6]]


@pytest.mark.parametrize(("point", "text"), CASES, ids=[f"{point}, {text.language}" for point, text in CASES])
async def test_a_killed_worker_leaves_no_half_episode(
    point: str, text: SampleText, tmp_path: Path, bucket: StorageSettings
) -> None:
    async with speech_simulator() as server:
        speech = simulated_speech(server.url, limit=120)
        async with studio_in(tmp_path, storage=bucket, speech=speech) as studio:
            plan = await studio.podcasts.plan(text.new())
            number = (await studio.podcasts.create(text.new())).id
            mark = tmp_path / "mark"
            mark.write_text(point)
            fleet = {
                "TIDEMILL_URL": f"sqlite:///{tmp_path / 'jobs.db'}",
                "PODCASTS_DATABASE_URL": f"sqlite:///{tmp_path / 'podcasts.db'}",
                "PODCASTS_STORAGE_URL": bucket.url,
                "PODCASTS_STORAGE_ENDPOINT": bucket.endpoint,
                "PODCASTS_STORAGE_ACCESS_KEY": bucket.access_key,
                "PODCASTS_STORAGE_SECRET_KEY": bucket.secret_key,
                "PODCASTS_SPEECH_URL": speech.url,
                "PODCASTS_SPEECH_LIMIT": "120",
                "PODCASTS_SPEECH_SIMULATOR": "true",
                "KILL_MARK": str(mark),
            }
            processes = WorkerProcesses("tests.apps.podcasts.worker_process", fleet, tmp_path / "output")
            await processes.start(2)
            try:
                async with asyncio.timeout(120):
                    while (row := await studio.podcast(number)).status != "done":
                        assert row.audio_key is None
                        assert await studio.podcasts.episodes.load_published() == []
                        await asyncio.sleep(0.05)
                    await studio.app.job(row.job_id or "").result()
            finally:
                await processes.stop()
            assert not mark.exists(), "no worker reached the point"
            audio = await studio.podcasts.storage.get(row.audio_key or "")
            assert audio is not None
            assert len(audio) == row.size
            assert meter(audio).seconds == pytest.approx(row.duration, abs=0.5)
            bills = server.provider.request_log.bills
            assert plan.parts <= len(bills) <= plan.parts + (point == "call answered")
            assert row.cost == plan.cost_usd
            done = await studio.app.inspect.find(Filter(queue="podcast", states=(State.DONE,)))
            assert len(done.jobs) == 1
