"""A failed podcast is generated once more by itself, never again after that; people may try again (Q14)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apps.podcasts.podcast_texts import QUEUES
from tests.apps.podcasts.service_kit import Studio, simulated_speech, speech_simulator, studio_in
from tidemill import Filter, State
from tidemill_apps.common.audio import AudioError
from tidemill_apps.common.object_storage import StorageSettings, StorageUnavailable
from tidemill_apps.common.speech import SpeechReply


def break_speech(studio: Studio) -> list[str]:
    """Makes every call fail. Returns the list of the calls."""
    calls: list[str] = []

    async def speak(text: str, language: str, *, call_id: str) -> SpeechReply:
        calls.append(text)
        raise AudioError("the voice is hoarse")

    studio.podcasts.speech.speak = speak  # type: ignore[method-assign]
    return calls


async def count_jobs(studio: Studio, *states: State) -> int:
    return len((await studio.app.inspect.find(Filter(queue="podcast", states=states))).jobs)


async def test_one_regeneration_after_an_hour_q14(tmp_path: Path) -> None:
    async with studio_in(tmp_path) as studio:
        calls = break_speech(studio)
        number = (await studio.podcasts.create(QUEUES.new())).id
        async with studio.run_worker():
            row = await studio.until(number, "failed")
        assert len(calls) == 4
        assert row.error is not None
        assert "hoarse" in row.error
        assert row.regenerate_at == pytest.approx(studio.app.clock.wall() + 3600, abs=30)
        [job] = (await studio.app.inspect.find(Filter(queue="podcast", states=(State.SCHEDULED,)))).jobs
        assert (job.id, job.payload) == (row.job_id, f'{{"podcast_id":{number}}}'.encode())
        assert job.due == pytest.approx(row.regenerate_at, abs=1)


async def test_a_regeneration_is_never_chained_q14(tmp_path: Path) -> None:
    async with studio_in(tmp_path, regenerate_seconds=0.2) as studio:
        calls = break_speech(studio)
        number = (await studio.podcasts.create(QUEUES.new())).id
        async with studio.run_worker():
            while (row := await studio.until(number, "failed")).regenerations == 0 or row.regenerate_at:
                pass
            await studio.until(number, "failed")
        await studio.podcasts.reconcile()
        assert len(calls) == 8
        assert await count_jobs(studio, State.SCHEDULED, State.READY) == 0


async def test_a_person_tries_again_and_the_regeneration_finds_it_done(tmp_path: Path) -> None:
    async with studio_in(tmp_path) as studio:
        speak = studio.podcasts.speech.speak
        break_speech(studio)
        number = (await studio.podcasts.create(QUEUES.new())).id
        async with studio.run_worker():
            await studio.until(number, "failed")
            studio.podcasts.speech.speak = speak  # type: ignore[method-assign]
            assert (await studio.call("POST", f"/api/podcasts/{number}/generate")).json["status"] == "pending"
            row = await studio.until(number, "done")
        assert (row.error, row.regenerate_at) == (None, None)
        [delayed] = (await studio.app.inspect.find(Filter(queue="podcast", states=(State.SCHEDULED,)))).jobs
        await studio.app.inspect.run(Filter(ids=(delayed.id,), states=(State.SCHEDULED,)))
        await studio.work()
        assert (await studio.app.job(delayed.id).result(5))["calls"] == 0
        assert (await studio.podcast(number)).published_at == row.published_at


async def test_a_podcast_whose_job_was_never_enqueued_is_enqueued(tmp_path: Path) -> None:
    """A process that dies between its row and its job leaves a pending row."""
    async with studio_in(tmp_path) as studio:
        row = await studio.podcasts.episodes.create(QUEUES.new())
        async with studio.run_worker():
            done = await studio.until(row.id, "done")
        assert done.job_id == row.job_id


async def test_a_cancelled_podcast_fails_without_a_regeneration(tmp_path: Path) -> None:
    async with studio_in(tmp_path) as studio:
        row = await studio.podcasts.create(QUEUES.new())
        await studio.app.inspect.cancel(row.job_id or "")
        await studio.podcasts.reconcile()
        found = await studio.podcast(row.id)
        assert (found.status, found.error, found.regenerate_at) == ("failed", "it was cancelled", None)


async def test_while_the_storage_is_away_the_job_waits_and_pays_nothing(tmp_path: Path) -> None:
    async with speech_simulator() as server:
        keys = {"access_key": "any", "secret_key": "any"}
        gone = StorageSettings(url="s3://none/here", endpoint="http://127.0.0.1:9", **keys)
        async with studio_in(tmp_path, storage=gone, speech=simulated_speech(server.url)) as studio:
            number = (await studio.podcasts.create(QUEUES.new())).id
            await studio.work()
            [job] = (await studio.app.inspect.find(Filter(queue="podcast"))).jobs
            assert (job.state, job.attempts) == (State.SCHEDULED, 0)
            assert "PODCASTS_STORAGE_URL: s3://none/here cannot be used" in (job.note or "")
            assert (await studio.podcast(number)).status == "processing"
            assert server.provider.request_log.bills == []
            with pytest.raises(StorageUnavailable, match="is it there, and may it be written"):
                await studio.podcasts.storage.size("any")


async def test_without_a_speech_program_nothing_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with studio_in(tmp_path) as studio:
        monkeypatch.setenv("PATH", "")
        answer = await studio.call("POST", "/api/podcasts", {"title": "A", "text": "Some text."})
        assert answer.status == 409
        assert "apt install espeak-ng" in answer.json["detail"]
        assert answer.json["field"] == "speech"
        assert await studio.podcasts.episodes.load_recent() == []
