"""Jobs on songs: each gets what is its own, nothing is paid for twice, and no song is left behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import numpy as np
import pytest

from tests.apps.music.analysing import Setting, setting
from tests.apps.music.libraries import column, stocked, track
from tidemill import Job, State
from tidemill.testing.providers import Faults, vector
from tidemill_apps.common.providers.embeddings import Embeddings
from tidemill_apps.music.describing import vector_text
from tidemill_apps.music.library import Library
from tidemill_apps.music.songs import Song, Status
from tidemill_apps.music.vectors import unpacked

FIRST = frozenset({1})


async def have_their_own_vectors(library: Library) -> int:
    """How many. Fails where the vector of a song is not made of its own title, artist and description."""
    vectors = await column(library, "vector")
    right = 0
    for row in await library.stored(list(vectors)):
        if vectors[row.navidrome_id] is None:
            assert row.status != Status.COMPLETED
            continue
        text = vector_text(row.song, row.description or "", row.tags)
        assert row.title in text
        assert row.artist in str(row.description)
        assert np.allclose(unpacked(vectors[row.navidrome_id]), vector(text, 64), atol=1e-5)
        right += 1
    return right


async def nothing_is_processing(library: Library) -> None:
    assert (await library.counts())[Status.PROCESSING] == 0
    assert await library.left_processing() == {}


async def test_a_batch_is_described_and_embedded_with_two_calls(either: Library) -> None:
    songs = await stocked(either, 6)
    async with setting(either) as at:
        job = await at.run(at.full, songs)
        assert at.count(job) == 6
        assert at.billed == ["chat", "embed"]
    assert (await either.counts())[Status.COMPLETED] == 6
    assert await have_their_own_vectors(either) == 6
    chinese = await either.song("s1")
    assert chinese is not None
    assert "潮汐之歌 第1首" in str(chinese.description)
    assert chinese.mood in chinese.tags


async def test_descriptions_and_vectors_may_be_made_apart(library: Library) -> None:
    songs = await stocked(library, 4)
    async with setting(library) as at:
        job = await at.run(at.metadata, songs)
        assert at.count(job) == 4
        assert await library.pending() == []
        assert await library.described_without_vector() == songs
        job = await at.run(at.vectors, songs)
        assert at.count(job) == 4
        assert at.billed == ["chat", "embed"]
    assert await have_their_own_vectors(library) == 4


async def test_a_vector_made_later_is_the_same_as_one_made_at_once(library: Library) -> None:
    songs = await stocked(library, 2)
    async with setting(library) as at:
        await at.run(at.full, songs)
        at_once = await column(library, "vector")
        await library.upsert([track(0, title="x"), track(1, title="x")])
        await library.upsert([track(0), track(1)])
        await at.run(at.metadata, songs)
        await at.run(at.vectors, songs)
    assert await column(library, "vector") == at_once


@pytest.mark.parametrize("faults", [Faults(null_vector=FIRST), Faults(missing_vector=FIRST)])
async def test_a_vector_that_is_missing_takes_no_other_with_it(library: Library, faults: Faults) -> None:
    """Where the API numbers nothing, one that is left out takes them all: nobody knows whose is whose."""
    songs = await stocked(library, 5)
    async with setting(library, faults=faults) as at:
        job = await at.run(at.full, songs)
        counted = at.count(job)
        waiting = await library.described_without_vector()
        assert len(waiting) == 5 - counted == (1 if faults.null_vector else 5)
        assert waiting[0] == songs[0]
        assert await have_their_own_vectors(library) == counted
        await at.run(at.vectors, waiting)
        assert at.billed == ["chat", "embed", "embed"]
    assert (await library.counts())[Status.COMPLETED] == 5
    assert await have_their_own_vectors(library) == 5


async def test_a_vector_of_another_length_completes_nothing(library: Library) -> None:
    songs = await stocked(library, 4)
    async with setting(library, dimensions=64) as at:
        await at.run(at.full, songs[:2])
    async with setting(library, dimensions=32) as at:
        at.embeddings = Unnamed(at.embeddings)
        await at.run(at.full, songs[2:])
    assert await library.described_without_vector() == songs[2:]
    told = (await library.stored([songs[2].navidrome_id]))[0].last_error
    assert told is not None
    assert told.startswith("its vector has 32 numbers and those of the library have 64; ")
    assert "MUSIC_EMBEDDINGS_DIMENSIONS=32" in told


class Unnamed:
    """Embeddings of an account that names no length."""

    dimensions = None

    def __init__(self, embeddings: Embeddings) -> None:
        self.embed, self.close = embeddings.embed, embeddings.close


async def test_a_song_left_out_goes_back_and_comes_with_the_next_job(library: Library) -> None:
    songs = await stocked(library, 4)
    async with setting(library, faults=Faults(left_out=FIRST)) as at:
        job = await at.run(at.full, songs)
        assert at.count(job) == 3
        assert at.kit.log(job.id) == ["song s3: the answer leaves it out"]
        await nothing_is_processing(library)
        assert await library.pending() == songs[3:]
        await at.run(at.full, songs[3:])
    assert (await library.counts())[Status.COMPLETED] == 4
    assert await have_their_own_vectors(library) == 4


async def test_ids_that_are_repeated_or_unknown_are_refused(library: Library) -> None:
    songs = await stocked(library, 4)
    async with setting(library, faults=Faults(repeated=FIRST, invented=FIRST)) as at:
        job = await at.run(at.full, songs)
        assert at.count(job) == 3
        assert "refused, because nobody asked about them: invented-1" in at.kit.log(job.id)
        assert await library.pending() == songs[:1]
        await nothing_is_processing(library)
    assert len(await column(library, "title")) == 4


@pytest.mark.parametrize("fault", ["malformed", "cut_off", "blocked"])
async def test_an_answer_nobody_can_read_fails_for_good_and_is_kept(library: Library, fault: str) -> None:
    songs = await stocked(library, 1)
    async with setting(library, faults=Faults(**{fault: FIRST})) as at:
        job = await at.run(at.full, songs, check=False)
        assert (job.state, job.attempts) == (State.FAILED, 1)
        assert at.billed == ["chat"]
        await nothing_is_processing(library)
        [row] = await library.stored(["s0"])
        assert row.status == Status.FAILED
        assert "the model's answer cannot be used" in str(row.last_error)
        assert "candidates" in str(row.kept_answer) or "s0" in str(row.kept_answer)
        assert await library.retry_failed() == 1
        await at.run(at.full, songs)
    assert (await library.counts())[Status.COMPLETED] == 1


async def test_what_an_answer_says_before_it_breaks_off_is_kept(library: Library) -> None:
    songs = await stocked(library, 4)
    async with setting(library, faults=Faults(malformed=FIRST)) as at:
        await at.run(at.full, songs)
        counts = await library.counts()
        assert counts[Status.COMPLETED] >= 1
        assert counts[Status.COMPLETED] + counts[Status.PENDING] == 4
        await at.run(at.full, await library.pending())
    assert (await library.counts())[Status.COMPLETED] == 4
    assert await have_their_own_vectors(library) == 4


async def test_a_job_that_a_person_retries_asks_again_where_the_answer_could_not_be_read(
    library: Library,
) -> None:
    songs = await stocked(library, 1)
    async with setting(library, faults=Faults(malformed=frozenset({1, 2}))) as at:
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
    songs = await stocked(library, 3)
    async with setting(library) as at:
        at.before["embeddings"] = [breaks] * 3
        job = await at.run(at.full, songs, check=False)
        assert (job.state, job.attempts) == (State.FAILED, 3)
        await library.fail(job.id, "the network is down")
        await at.app.inspect.retry(job.id)
        await at.kit.run_for(600)
        assert at.count(job) == 3
        assert at.billed == ["chat", "embed"]
    assert await have_their_own_vectors(library) == 3


async def breaks() -> None:
    raise httpx2.ConnectError("the network is down")


async def test_a_retry_never_pays_for_the_metadata_again(library: Library) -> None:
    songs = await stocked(library, 3)
    async with setting(library) as at:
        at.before["embeddings"] = [breaks, breaks]
        job = await at.run(at.full, songs)
        assert (job.state, job.attempts) == (State.DONE, 3)
        assert at.billed == ["chat", "embed"]
    assert await have_their_own_vectors(library) == 3


async def test_songs_of_a_job_that_waits_for_its_retry_are_its_own_and_wait(library: Library) -> None:
    songs = await stocked(library, 3)
    async with setting(library) as at:
        at.before["chat"] = [breaks]
        handle = await at.full.enqueue(songs)
        await at.kit.run_until_idle()
        assert at.kit.job(handle).state is State.SCHEDULED
        assert (await library.counts())[Status.PROCESSING] == 0
        assert await library.left_processing() == {handle.id: ["s0", "s1", "s2"]}
        assert await library.pending() == []
        await at.kit.run_for(60)
    assert (await library.counts())[Status.COMPLETED] == 3


async def test_a_job_without_units_for_its_second_call_is_given_back_and_pays_once(library: Library) -> None:
    """Three calls a minute: the second job comes to its first call and not to its second."""
    songs = await stocked(library, 4)
    async with setting(library, per_minute=3) as at:
        jobs = [await at.full.enqueue(songs[:2]), await at.full.enqueue(songs[2:])]
        await at.kit.run_until_idle()
        assert sorted(at.billed) == ["chat", "chat", "embed"]
        assert (await library.counts())[Status.PROCESSING] == 0
        assert len(await library.left_processing()) == 1
        assert await library.pending() == []
        await at.kit.run_for(300)
        assert sorted(at.billed) == ["chat", "chat", "embed", "embed"]
        assert {at.kit.job(job).attempts for job in jobs} == {1}
    assert await have_their_own_vectors(library) == 4


async def test_a_job_that_runs_again_after_its_commit_says_the_same_and_pays_nothing(
    library: Library,
) -> None:
    """The worker died between the commit and the word that the job is done."""
    songs = await stocked(library, 3)
    save = library.save
    died: list[bool] = []

    async def saved_and_died(*given: object) -> None:
        await save(*given)  # type: ignore[arg-type]
        if not died:
            died.append(True)
            raise httpx2.ReadError("the worker is gone")

    library.save = saved_and_died  # type: ignore[method-assign,assignment]
    async with setting(library) as at:
        job = await at.run(at.full, songs)
        assert at.count(job) == 3
        assert at.billed == ["chat", "embed"]
    assert job.attempts == 2


async def test_a_job_waits_for_the_database_and_finds_what_it_has_paid_for(
    library: Library, tmp_path: Path
) -> None:
    songs = await stocked(library, 3)
    folder, elsewhere = tmp_path, tmp_path.with_name(f"{tmp_path.name}-away")

    async def away() -> None:
        await library.database.close()
        folder.rename(elsewhere)

    async with setting(library) as at:
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


async def while_called(at: Setting, songs: list[Song]) -> tuple[Job, asyncio.Event]:
    """A job in the middle of its first call, which goes on when the event is set."""
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
    songs = await stocked(library, 3)
    async with setting(library) as at:
        _, going_on = await while_called(at, songs[:2])
        assert await column(library, "status") == {"s0": "PROCESSING", "s1": "PROCESSING", "s2": "PENDING"}
        going_on.set()
        await at.running
    assert (await library.counts())[Status.COMPLETED] == 2


async def test_a_cancelled_job_leaves_no_song_processing(library: Library) -> None:
    songs = await stocked(library, 3)
    async with setting(library) as at:
        job, _ = await while_called(at, songs)
        await at.app.inspect.cancel(job.id)
        await at.running
        assert at.kit.job(job.id).state is State.CANCELLED
        assert (await library.counts())[Status.PROCESSING] == 0
        assert await library.release(job.id) == 3
        assert await library.pending() == songs
        assert at.billed == []


async def test_a_song_that_is_renamed_meanwhile_is_not_given_what_was_said_of_its_old_name(
    library: Library,
) -> None:
    songs = await stocked(library, 2)
    async with setting(library) as at:
        _, going_on = await while_called(at, songs)
        await library.upsert([track(1, title="新名字")])
        going_on.set()
        await at.running
        assert await column(library, "status") == {"s0": "COMPLETED", "s1": "PENDING"}
        assert (await column(library, "description"))["s1"] is None
        await at.run(at.full, await library.pending())
    assert await have_their_own_vectors(library) == 2


async def test_a_job_whose_songs_another_one_has_pays_nothing(library: Library) -> None:
    songs = await stocked(library, 2)
    await library.mark_queued({"another": ["s0", "s1"]})
    async with setting(library) as at:
        job = await at.run(at.full, songs)
        assert at.count(job) == 0
        assert at.billed == []
    assert await library.left_processing() == {"another": ["s0", "s1"]}
