"""Jobs on songs: each song gets its result, nothing is paid for twice, and no song is left behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import numpy as np
import pytest

from tests.apps.music.analysis_kit import AnalysisEnvironment, analysis_environment
from tests.apps.music.library_fixtures import add_songs, column, track
from tidemill import Job, State
from tidemill.testing.simulator import ReplyFaults, embed_text
from tidemill_apps.common.model_clients import EmbeddingModel
from tidemill_apps.music.library import Library
from tidemill_apps.music.llm import format_vector_text
from tidemill_apps.music.tables import Song, SongStatus, unpack_vector

FIRST = frozenset({1})


async def have_their_own_vectors(library: Library) -> int:
    """Returns the number of vectors. Fails if a vector is not made of the song's title, artist and
    description."""
    vectors = await column(library, "vector")
    right = 0
    for row in await library.load_rows(list(vectors)):
        if vectors[row.navidrome_id] is None:
            assert row.status != SongStatus.COMPLETED
            continue
        text = format_vector_text(row.song, row.description or "", row.tags)
        assert row.title in text
        assert row.artist in str(row.description)
        assert np.allclose(unpack_vector(vectors[row.navidrome_id]), embed_text(text, 64), atol=1e-5)
        right += 1
    return right


async def nothing_is_processing(library: Library) -> None:
    assert (await library.count_by_status())[SongStatus.PROCESSING] == 0
    assert await library.load_songs_by_job() == {}


async def test_a_batch_is_described_and_embedded_with_two_calls(either: Library) -> None:
    songs = await add_songs(either, 6)
    async with analysis_environment(either) as at:
        job = await at.run(at.full, songs)
        assert at.count(job) == 6
        assert at.billed == ["chat", "embed"]
    assert (await either.count_by_status())[SongStatus.COMPLETED] == 6
    assert await have_their_own_vectors(either) == 6
    chinese = await either.load_row("s1")
    assert chinese is not None
    assert "潮汐之歌 第1首" in str(chinese.description)
    assert chinese.mood in chinese.tags


async def test_descriptions_and_vectors_may_be_made_apart(library: Library) -> None:
    songs = await add_songs(library, 4)
    async with analysis_environment(library) as at:
        job = await at.run(at.metadata, songs)
        assert at.count(job) == 4
        assert await library.load_pending() == []
        assert await library.load_described() == songs
        job = await at.run(at.vectors, songs)
        assert at.count(job) == 4
        assert at.billed == ["chat", "embed"]
    assert await have_their_own_vectors(library) == 4


async def test_a_vector_made_later_is_the_same_as_one_made_at_once(library: Library) -> None:
    songs = await add_songs(library, 2)
    async with analysis_environment(library) as at:
        await at.run(at.full, songs)
        at_once = await column(library, "vector")
        await library.upsert([track(0, title="x"), track(1, title="x")])
        await library.upsert([track(0), track(1)])
        await at.run(at.metadata, songs)
        await at.run(at.vectors, songs)
    assert await column(library, "vector") == at_once


@pytest.mark.parametrize("faults", [ReplyFaults(null_vector=FIRST), ReplyFaults(missing_vector=FIRST)])
async def test_a_vector_that_is_missing_takes_no_other_with_it(library: Library, faults: ReplyFaults) -> None:
    """If the API does not number the vectors, one missing vector invalidates all: they cannot be assigned."""
    songs = await add_songs(library, 5)
    async with analysis_environment(library, faults=faults) as at:
        job = await at.run(at.full, songs)
        counted = at.count(job)
        waiting = await library.load_described()
        assert len(waiting) == 5 - counted == (1 if faults.null_vector else 5)
        assert waiting[0] == songs[0]
        assert await have_their_own_vectors(library) == counted
        await at.run(at.vectors, waiting)
        assert at.billed == ["chat", "embed", "embed"]
    assert (await library.count_by_status())[SongStatus.COMPLETED] == 5
    assert await have_their_own_vectors(library) == 5


async def test_a_vector_of_another_length_completes_nothing(library: Library) -> None:
    songs = await add_songs(library, 4)
    async with analysis_environment(library, dimensions=64) as at:
        await at.run(at.full, songs[:2])
    async with analysis_environment(library, dimensions=32) as at:
        at.embeddings = Unnamed(at.embeddings)
        await at.run(at.full, songs[2:])
    assert await library.load_described() == songs[2:]
    error = (await library.load_rows([songs[2].navidrome_id]))[0].last_error
    assert error is not None
    assert error.startswith("its vector has 32 numbers and those of the library have 64; ")
    assert "MUSIC_EMBEDDINGS_DIMENSIONS=32" in error


class Unnamed:
    """Embeddings of an account without a configured length."""

    dimensions = None

    def __init__(self, embeddings: EmbeddingModel) -> None:
        self.embed, self.close = embeddings.embed, embeddings.close


async def test_a_song_left_out_goes_back_and_comes_with_the_next_job(library: Library) -> None:
    songs = await add_songs(library, 4)
    async with analysis_environment(library, faults=ReplyFaults(left_out=FIRST)) as at:
        job = await at.run(at.full, songs)
        assert at.count(job) == 3
        assert at.kit.log(job.id) == ["song s3: the answer leaves it out"]
        await nothing_is_processing(library)
        assert await library.load_pending() == songs[3:]
        await at.run(at.full, songs[3:])
    assert (await library.count_by_status())[SongStatus.COMPLETED] == 4
    assert await have_their_own_vectors(library) == 4


async def test_ids_that_are_repeated_or_unknown_are_refused(library: Library) -> None:
    songs = await add_songs(library, 4)
    async with analysis_environment(library, faults=ReplyFaults(repeated=FIRST, invented=FIRST)) as at:
        job = await at.run(at.full, songs)
        assert at.count(job) == 3
        assert "ignored, because they were not requested: invented-1" in at.kit.log(job.id)
        assert await library.load_pending() == songs[:1]
        await nothing_is_processing(library)
    assert len(await column(library, "title")) == 4


@pytest.mark.parametrize("fault", ["malformed", "cut_off", "blocked"])
async def test_an_unreadable_answer_fails_the_job_and_is_stored(library: Library, fault: str) -> None:
    songs = await add_songs(library, 1)
    async with analysis_environment(library, faults=ReplyFaults(**{fault: FIRST})) as at:
        job = await at.run(at.full, songs, check=False)
        assert (job.state, job.attempts) == (State.FAILED, 1)
        assert at.billed == ["chat"]
        await nothing_is_processing(library)
        [row] = await library.load_rows(["s0"])
        assert row.status == SongStatus.FAILED
        assert "the model's answer cannot be used" in str(row.last_error)
        assert "candidates" in str(row.unreadable_answer) or "s0" in str(row.unreadable_answer)
        assert await library.retry_failed() == 1
        await at.run(at.full, songs)
    assert (await library.count_by_status())[SongStatus.COMPLETED] == 1


async def test_complete_entries_of_a_truncated_answer_are_kept(library: Library) -> None:
    songs = await add_songs(library, 4)
    async with analysis_environment(library, faults=ReplyFaults(malformed=FIRST)) as at:
        await at.run(at.full, songs)
        counts = await library.count_by_status()
        assert counts[SongStatus.COMPLETED] >= 1
        assert counts[SongStatus.COMPLETED] + counts[SongStatus.PENDING] == 4
        await at.run(at.full, await library.load_pending())
    assert (await library.count_by_status())[SongStatus.COMPLETED] == 4
    assert await have_their_own_vectors(library) == 4


async def test_a_job_that_a_person_retries_asks_again_where_the_answer_could_not_be_read(
    library: Library,
) -> None:
    songs = await add_songs(library, 1)
    async with analysis_environment(library, faults=ReplyFaults(malformed=frozenset({1, 2}))) as at:
        job = await at.run(at.full, songs, check=False)
        await at.app.inspect.retry(job.id)
        await at.kit.run_for(600, check=False)
        assert at.kit.job(job.id).state is State.FAILED
        assert at.billed == ["chat", "chat"]
        await at.app.inspect.retry(job.id)
        at.before["embeddings"] = [breaks]
        await at.kit.run_for(600)
        assert at.billed == ["chat", "chat", "chat", "embed"]
        assert at.count(job) == 1
        await nothing_is_processing(library)
    assert await have_their_own_vectors(library) == 1


async def test_a_job_that_a_person_retries_has_its_failed_songs_again_and_what_it_paid_for(
    library: Library,
) -> None:
    songs = await add_songs(library, 3)
    async with analysis_environment(library) as at:
        at.before["embeddings"] = [breaks] * 3
        job = await at.run(at.full, songs, check=False)
        assert (job.state, job.attempts) == (State.FAILED, 3)
        await library.mark_failed(job.id, "the network is down")
        await at.app.inspect.retry(job.id)
        await at.kit.run_for(600)
        assert at.count(job) == 3
        assert at.billed == ["chat", "embed"]
    assert await have_their_own_vectors(library) == 3


async def breaks() -> None:
    raise httpx2.ConnectError("the network is down")


async def test_a_retry_never_pays_for_the_metadata_again(library: Library) -> None:
    songs = await add_songs(library, 3)
    async with analysis_environment(library) as at:
        at.before["embeddings"] = [breaks, breaks]
        job = await at.run(at.full, songs)
        assert (job.state, job.attempts) == (State.DONE, 3)
        assert at.billed == ["chat", "embed"]
    assert await have_their_own_vectors(library) == 3


async def test_songs_of_a_job_that_waits_for_its_retry_are_its_own_and_wait(library: Library) -> None:
    songs = await add_songs(library, 3)
    async with analysis_environment(library) as at:
        at.before["chat"] = [breaks]
        handle = await at.full.enqueue(songs)
        await at.kit.run_until_idle()
        assert at.kit.job(handle).state is State.SCHEDULED
        assert (await library.count_by_status())[SongStatus.PROCESSING] == 0
        assert await library.load_songs_by_job() == {handle.id: ["s0", "s1", "s2"]}
        assert await library.load_pending() == []
        await at.kit.run_for(60)
    assert (await library.count_by_status())[SongStatus.COMPLETED] == 3


async def test_a_job_without_units_for_its_second_call_is_given_back_and_pays_once(library: Library) -> None:
    """Three calls a minute: the second job can make its first call but not its second."""
    songs = await add_songs(library, 4)
    async with analysis_environment(library, per_minute=3) as at:
        jobs = [await at.full.enqueue(songs[:2]), await at.full.enqueue(songs[2:])]
        await at.kit.run_until_idle()
        assert sorted(at.billed) == ["chat", "chat", "embed"]
        assert (await library.count_by_status())[SongStatus.PROCESSING] == 0
        assert len(await library.load_songs_by_job()) == 1
        assert await library.load_pending() == []
        await at.kit.run_for(300)
        assert sorted(at.billed) == ["chat", "chat", "embed", "embed"]
        assert {at.kit.job(job).attempts for job in jobs} == {1}
    assert await have_their_own_vectors(library) == 4


async def test_a_job_that_runs_again_after_its_commit_says_the_same_and_pays_nothing(
    library: Library,
) -> None:
    """The worker died between the commit and the settlement of the job."""
    songs = await add_songs(library, 3)
    save = library.save
    died: list[bool] = []

    async def saved_and_died(*given: object) -> None:
        await save(*given)  # type: ignore[arg-type]
        if not died:
            died.append(True)
            raise httpx2.ReadError("the worker is gone")

    library.save = saved_and_died  # type: ignore[method-assign,assignment]
    async with analysis_environment(library) as at:
        job = await at.run(at.full, songs)
        assert at.count(job) == 3
        assert at.billed == ["chat", "embed"]
    assert job.attempts == 2


async def test_a_job_waits_for_the_database_and_finds_what_it_has_paid_for(
    library: Library, tmp_path: Path
) -> None:
    songs = await add_songs(library, 3)
    folder, elsewhere = tmp_path, tmp_path.with_name(f"{tmp_path.name}-away")

    async def away() -> None:
        await library.database.close()
        folder.rename(elsewhere)

    async with analysis_environment(library) as at:
        at.before["embeddings"] = [away]
        handle = await at.full.enqueue(songs)
        await at.kit.run_for(100)
        assert at.kit.job(handle).state is State.SCHEDULED
        assert "the file cannot be opened" in str(at.kit.job(handle).note)
        elsewhere.rename(folder)
        await at.kit.run_for(100)
        assert at.kit.job(handle).attempts == 1
        assert at.billed == ["chat", "embed"]
    assert await have_their_own_vectors(library) == 3


async def while_called(at: AnalysisEnvironment, songs: list[Song]) -> tuple[Job, asyncio.Event]:
    """Returns a job in the middle of its first call, and the event that lets it continue."""
    called, going_on = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        called.set()
        await going_on.wait()

    at.before["chat"] = [wait]
    handle = await at.full.enqueue(songs)
    at.running = asyncio.create_task(at.kit.run_until_idle(check=False))
    await asyncio.wait_for(called.wait(), 10)
    return at.kit.job(handle), going_on


async def test_songs_are_processing_while_they_are_worked_on(library: Library) -> None:
    songs = await add_songs(library, 3)
    async with analysis_environment(library) as at:
        _, going_on = await while_called(at, songs[:2])
        assert await column(library, "status") == {"s0": "PROCESSING", "s1": "PROCESSING", "s2": "PENDING"}
        going_on.set()
        await at.running
    assert (await library.count_by_status())[SongStatus.COMPLETED] == 2


async def test_a_cancelled_job_leaves_no_song_processing(library: Library) -> None:
    songs = await add_songs(library, 3)
    async with analysis_environment(library) as at:
        job, _ = await while_called(at, songs)
        await at.app.inspect.cancel(job.id)
        await at.running
        assert at.kit.job(job.id).state is State.CANCELLED
        assert (await library.count_by_status())[SongStatus.PROCESSING] == 0
        assert await library.release(job.id) == 3
        assert await library.load_pending() == songs
        assert at.billed == []


async def test_a_song_renamed_during_its_job_does_not_get_the_old_description(
    library: Library,
) -> None:
    songs = await add_songs(library, 2)
    async with analysis_environment(library) as at:
        _, going_on = await while_called(at, songs)
        await library.upsert([track(1, title="新名字")])
        going_on.set()
        await at.running
        assert await column(library, "status") == {"s0": "COMPLETED", "s1": "PENDING"}
        assert (await column(library, "description"))["s1"] is None
        await at.run(at.full, await library.load_pending())
    assert await have_their_own_vectors(library) == 2


async def test_a_job_whose_songs_another_one_has_pays_nothing(library: Library) -> None:
    songs = await add_songs(library, 2)
    await library.mark_queued({"another": ["s0", "s1"]})
    async with analysis_environment(library) as at:
        job = await at.run(at.full, songs)
        assert at.count(job) == 0
        assert at.billed == []
    assert await library.load_songs_by_job() == {"another": ["s0", "s1"]}
