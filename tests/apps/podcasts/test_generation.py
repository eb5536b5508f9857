"""Texts become episodes in a folder and in a bucket: complete, equally loud, and paid for once (Q11, Q16)."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pytest
from mutagen.id3 import ID3

from tests.apps.podcasts.audio_meters import meter
from tests.apps.podcasts.podcast_texts import MILLS, MILLS_ZH, QUEUES, TEXTS
from tests.apps.podcasts.service_kit import Studio, simulated_speech, speech_simulator, studio_in
from tidemill import ConfigurationError, Filter
from tidemill.testing.simulator import Quota
from tidemill_apps.common.audio import count_seconds, decode
from tidemill_apps.common.object_storage import StorageSettings
from tidemill_apps.podcasts.plan import part_key, write_script

pytestmark = pytest.mark.timeout(300)


async def part_seconds(studio: Studio, podcast_id: int) -> float:
    """Returns the length of the stored parts of a podcast, one after another."""
    row, speech = await studio.podcast(podcast_id), studio.podcasts.speech
    script = write_script(speech, row)
    stored = [await studio.podcasts.storage.get(part_key(digest)) for digest in script.digests]
    assert all(stored)
    return sum([count_seconds(await decode(audio)) for audio in stored if audio])


async def test_every_episode_is_complete_and_equally_loud(storage: StorageSettings, tmp_path: Path) -> None:
    async with studio_in(tmp_path, storage=storage) as studio:
        plans = [await studio.podcasts.plan(text.new()) for text in TEXTS]
        ids = [(await studio.podcasts.create(text.new())).id for text in TEXTS]
        await studio.work()
        for number, plan in zip(ids, plans, strict=True):
            row = await studio.podcast(number)
            assert (row.status, row.error) == ("done", None)
            assert row.audio_key is not None
            audio = await studio.podcasts.storage.get(row.audio_key)
            assert audio is not None
            assert len(audio) == row.size
            part = await studio.call("GET", f"/api/podcasts/{number}/audio", range="bytes=100-199")
            assert (part.status, part.body) == (206, audio[100:200])
            found = meter(audio)
            assert found.seconds == pytest.approx(await part_seconds(studio, number), abs=0.5)
            assert row.duration == pytest.approx(found.seconds, abs=0.5)
            assert found.lufs == pytest.approx(-16, abs=1)
            assert found.peak <= -1
            assert plan.characters == row.characters
            assert plan.seconds == pytest.approx(row.duration, rel=0.25)


async def test_tags_chapters_and_transcript_of_an_episode(tmp_path: Path) -> None:
    async with studio_in(tmp_path) as studio:
        number = (await studio.podcasts.create(MILLS_ZH.new())).id
        await studio.work()
        row = await studio.podcast(number)
        tags = ID3(BytesIO(await studio.podcasts.storage.get(row.audio_key or "") or b""))
        assert str(tags["TIT2"]) == "潮汐磨坊"
        assert "espeak-ng cmn" in str(tags["TENC"])
        assert tags.getall("APIC")[0].data.startswith(b"\x89PNG")
        chapters = sorted(tags.getall("CHAP"), key=lambda chapter: chapter.start_time)
        assert [str(chapter.sub_frames["TIT2"]) for chapter in chapters] == ["工作原理", "在哪里"]
        assert chapters[0].end_time == chapters[1].start_time
        assert chapters[1].end_time == pytest.approx(1000 * (row.duration or 0), abs=2)
        assert tags.getall("CTOC")[0].child_element_ids == [chapter.element_id for chapter in chapters]
        transcript = (await studio.podcasts.storage.get(row.transcript_key or "") or b"").decode()
        assert transcript.startswith("WEBVTT\n\n00:00:00.000 --> ")
        assert transcript.count(" --> ") == 8


async def test_nothing_is_paid_for_twice(storage: StorageSettings, tmp_path: Path) -> None:
    async with speech_simulator() as server:
        speech = simulated_speech(server.url, limit=120)
        async with studio_in(tmp_path, storage=storage, speech=speech) as studio:
            bills = server.provider.request_log.bills
            plan = await studio.podcasts.plan(MILLS.new())
            number = (await studio.podcasts.create(MILLS.new())).id
            await studio.work()
            row = await studio.podcast(number)
            assert len(bills) == plan.calls == plan.parts > 3
            assert row.cost == plan.cost_usd == pytest.approx(plan.characters * 15 / 1e6, abs=1e-6)
            assert plan.characters == row.characters

            assert (await studio.podcasts.plan(MILLS.new())).cost_usd == 0
            await studio.podcasts.regenerate(number)
            twin = (await studio.podcasts.create(MILLS.new())).id
            await studio.work()
            assert len(server.provider.request_log.bills) == plan.calls
            assert (await studio.podcast(number)).cost == row.cost
            assert ((await studio.podcast(twin)).status, (await studio.podcast(twin)).cost) == ("done", 0)


async def test_a_podcast_that_is_done_is_not_generated_again_q11(tmp_path: Path) -> None:
    async with studio_in(tmp_path) as studio:
        number = (await studio.podcasts.create(QUEUES.new())).id
        await studio.work()
        published = (await studio.podcast(number)).published_at
        again = await studio.podcasts.generate.enqueue(number)
        await studio.work()
        assert await again.result(5) == {"status": "nothing to do", "calls": 0}
        assert (await studio.podcast(number)).published_at == published


async def test_the_payload_is_the_id_only_and_the_queue_has_its_options_q6_q16(tmp_path: Path) -> None:
    async with studio_in(tmp_path) as studio:
        number = (await studio.podcasts.create(QUEUES.new())).id
        [job] = (await studio.app.inspect.find(Filter(queue="podcast"))).jobs
        assert (job.task, job.payload) == ("podcast:generation", f'{{"podcast_id":{number}}}'.encode())
        task = studio.app.tasks["podcast:generation"]
        assert (task.timeout, task.retry.attempts, job.unique_key) == (1800.0, 4, f"podcast-{number}")
        assert job.unique_until == pytest.approx(job.created + 300, abs=1)
        queue = (await studio.app.inspect.queue("podcast")).settings
        assert (queue.weight, queue.concurrency, queue.key_concurrency) == (10, 2, 1)
        for _ in range(5):
            await studio.podcasts.generate.enqueue(number)
        assert len((await studio.app.inspect.find(Filter(queue="podcast"))).jobs) == 1


async def test_a_refusal_waits_and_spends_no_attempt(tmp_path: Path) -> None:
    async with (
        speech_simulator(Quota.rolling("requests", 2, per=3.0)) as server,
        studio_in(tmp_path, speech=simulated_speech(server.url, limit=120)) as studio,
    ):
        number = (await studio.podcasts.create(QUEUES.new())).id
        async with studio.run_worker():
            row = await studio.until(number, "done", "failed")
        assert row.status == "done"
        [job] = (await studio.app.inspect.find(Filter(queue="podcast"))).jobs
        assert job.attempts == 1
        assert server.provider.request_log.refused


async def test_the_pool_counts_characters(tmp_path: Path) -> None:
    async with speech_simulator() as server:
        speech = simulated_speech(server.url, limit=120)
        async with studio_in(tmp_path, speech=speech, characters_per_minute=10_000) as studio:
            number = (await studio.podcasts.create(QUEUES.new())).id
            await studio.work()
            [pool] = await studio.app.inspect.pools()
            [used] = [limit.used for limit in pool.limits if limit.name == "characters per minute"]
            assert used == (await studio.podcast(number)).characters > 0


def test_a_part_must_fit_the_characters_of_a_minute(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^PODCASTS_CHARACTERS_PER_MINUTE: must be 2000 or more"):
        Studio(tmp_path, characters_per_minute=1999)


async def test_deleting_removes_files_and_keeps_shared_parts(tmp_path: Path) -> None:
    async with studio_in(tmp_path) as studio:
        first = (await studio.podcasts.create(QUEUES.new())).id
        twin = (await studio.podcasts.create(QUEUES.new())).id
        await studio.work()
        files = tmp_path / "files"
        assert await studio.podcasts.delete(first)
        assert [file for file in files.rglob("episodes/*/*") if file.parent.name == str(first)] == []
        assert len([file for file in files.rglob("parts/*/*") if file.is_file()]) == 1
        assert await studio.podcasts.delete(twin)
        assert not await studio.podcasts.delete(twin)
        assert [file for file in files.rglob("*") if file.is_file()] == []


async def test_a_podcast_deleted_during_its_generation_leaves_nothing(tmp_path: Path) -> None:
    async with studio_in(tmp_path) as studio:
        number = (await studio.podcasts.create(QUEUES.new())).id
        put = studio.podcasts.storage.put

        async def put_and_delete(key: str, content: bytes | Path) -> None:
            await put(key, content)
            if key.endswith(".mp3"):
                assert await studio.podcasts.delete(number)

        studio.podcasts.storage.put = put_and_delete  # type: ignore[method-assign]
        await studio.work()
        assert await studio.podcasts.episodes.get(number) is None
        assert [file for file in (tmp_path / "files").rglob("*") if file.is_file()] == []


async def test_podcasts_in_postgresql(postgres_url: str, tmp_path: Path) -> None:
    async with studio_in(tmp_path, database_url=postgres_url) as studio:
        number = (await studio.podcasts.create(MILLS_ZH.new())).id
        await studio.work()
        row = await studio.podcast(number)
        assert (row.status, row.title, row.cost) == ("done", "潮汐磨坊", 0.0)
        assert [one.id for one in await studio.podcasts.episodes.load_published()] == [number]
        feed, token = await studio.podcasts.episodes.create_feed("phone", "token"), "token"
        assert await studio.podcasts.episodes.find_feed(token) == feed
        assert await studio.podcasts.episodes.revoke_feed(feed.id)
        assert await studio.podcasts.episodes.find_feed(token) is None
        assert await studio.podcasts.delete(number)
        assert await studio.podcasts.episodes.load_recent() == []
