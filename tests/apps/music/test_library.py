"""Songs and how far they are: a song is in one job at a time, and nobody writes what is not his."""

from __future__ import annotations

import msgspec

from tests.apps.music.entries import entry
from tests.apps.music.libraries import column, put, stocked, track
from tidemill_apps.music.answers import Analysis
from tidemill_apps.music.describing import Description, described
from tidemill_apps.music.library import Library
from tidemill_apps.music.outcomes import MOST_TRIES, Outcome
from tidemill_apps.music.rows import AT_ONCE
from tidemill_apps.music.songs import Failure, Song, Status
from tidemill_apps.music.vectors import unpacked


def description(id_: str) -> Description:
    return described(msgspec.convert(entry(id_), Analysis))


def ids(songs: list[Song]) -> list[str]:
    return [song.navidrome_id for song in songs]


async def test_songs_wait_in_the_order_they_came(either: Library) -> None:
    songs = await stocked(either, 5)
    assert ids(songs) == ["s0", "s1", "s2", "s3", "s4"]
    assert songs[1] == Song("s1", "潮汐之歌 第1首", "林晚")
    assert ids(await either.pending(2)) == ["s0", "s1"]


async def test_what_is_listed_again_is_written_only_where_it_differs(either: Library) -> None:
    await stocked(either, 3)
    assert await either.upsert([track(0), track(1), track(2, album="另一张")]) == (0, 1)
    assert (await column(either, "album"))["s2"] == "另一张"


async def test_a_song_with_another_name_waits_again_and_is_nobodys(either: Library) -> None:
    songs = await stocked(either, 3)
    await either.mark_processing(songs, "job")
    assert await either.upsert([track(0), track(1, title="新名字"), track(2)]) == (0, 1)
    assert await either.pending() == [Song("s1", "新名字", "林晚")]
    await either.save("job", [Outcome(navidrome_id=id_, vector=[1.0]) for id_ in ids(songs)])
    assert await column(either, "status") == {"s0": "COMPLETED", "s1": "PENDING", "s2": "COMPLETED"}


async def test_a_page_that_lists_a_song_twice_has_it_once(either: Library) -> None:
    assert await either.upsert([track(0), track(0, title="later")]) == (1, 0)
    assert [song.title for song in await either.pending()] == ["later"]


async def test_a_song_that_a_job_has_is_not_sent_again(either: Library) -> None:
    songs = await stocked(either, 4)
    await either.mark_queued({"j1": ["s0", "s1"], "j2": ["s1", "s2"]})
    assert ids(await either.pending()) == ["s3"]
    assert await either.left_processing() == {"j1": ["s0", "s1"], "j2": ["s2"]}
    assert ids(await either.mark_processing(songs, "j2")) == ["s2", "s3"]


async def test_a_job_that_runs_again_gets_its_own_songs_back(either: Library) -> None:
    songs = await stocked(either, 2)
    assert await either.mark_processing(songs, "job") == songs
    assert await either.mark_processing(songs, "another") == []
    await either.wait("job")
    assert (await either.counts())[Status.PROCESSING] == 0
    assert await either.pending() == []
    assert await either.mark_processing(songs, "job") == songs


async def test_a_song_that_is_called_otherwise_in_the_job_is_not_taken(either: Library) -> None:
    await stocked(either, 2)
    renamed = [
        Song("s0", "Tide Song 0", "Another"),
        Song("s1", "潮汐之歌 第1首", "林晚"),
        Song("s9", "?", "?"),
    ]
    assert ids(await either.mark_processing(renamed, "job")) == ["s1"]


async def test_analyses_are_saved_together(either: Library) -> None:
    songs = await stocked(either, 3)
    await either.mark_processing(songs, "job")
    await either.save(
        "job",
        [
            Outcome(navidrome_id="s0", description=description("s0"), vector=[0.25, -1.5]),
            Outcome(navidrome_id="s1", description=description("s1"), problem="no vector"),
            Outcome(navidrome_id="s2", problem="left out"),
        ],
    )
    assert await column(either, "status") == {"s0": "COMPLETED", "s1": "DESCRIBED", "s2": "PENDING"}
    assert await column(either, "tries") == {"s0": 0, "s1": 1, "s2": 1}
    assert await either.left_processing() == {}
    vectors = await column(either, "vector")
    assert list(unpacked(vectors["s0"])) == [0.25, -1.5]
    assert (vectors["s1"], vectors["s2"]) == (None, None)
    stored = await either.song("s0")
    assert stored is not None
    assert stored.description == "钢琴与弦乐 s0\n\n[Imagery] the sea at night, s0"
    assert stored.tags[0] == "宁静"
    assert (stored.mood, stored.energy_level, stored.is_instrumental) == ("宁静", 3, True)
    assert ids(await either.described_without_vector()) == ["s1"]
    assert ids(await either.pending()) == ["s2"]
    assert await either.have(songs, Status.COMPLETED) == 1
    assert await either.have(songs, Status.COMPLETED, Status.DESCRIBED) == 2


async def test_a_vector_completes_a_song_that_was_described(either: Library) -> None:
    (song,) = await stocked(either, 1)
    await either.mark_processing([song], "first")
    await either.save("first", [Outcome(navidrome_id="s0", description=description("s0"))])
    assert await either.mark_processing([song], "second", of=(Status.DESCRIBED,)) == [song]
    await either.save("second", [Outcome(navidrome_id="s0", vector=[1.0])])
    stored = await either.song("s0")
    assert stored is not None
    assert (stored.status, stored.mood, stored.job_id) == (Status.COMPLETED, "宁静", "second")


async def test_a_job_for_vectors_leaves_songs_alone_that_have_no_description(either: Library) -> None:
    songs = await stocked(either, 2)
    assert await either.mark_processing(songs, "job", of=(Status.DESCRIBED,)) == []
    assert (await either.counts())[Status.PENDING] == 2


async def test_a_song_left_out_three_times_is_failed(either: Library) -> None:
    (song,) = await stocked(either, 1)
    for number in range(MOST_TRIES):
        assert await either.pending() == [song]
        await either.mark_processing([song], f"j{number}")
        await either.save(f"j{number}", [Outcome(navidrome_id="s0", problem="the answer leaves it out")])
    stored = await either.song("s0")
    assert stored is not None
    assert (stored.status, stored.tries) == (Status.FAILED, MOST_TRIES)
    assert stored.last_error == "the answer leaves it out"
    assert await either.pending() == []


async def test_a_success_forgets_the_tries_before_it(either: Library) -> None:
    (song,) = await stocked(either, 1)
    await put(either, ["s0"], tries=2, last_error="left out", kept_answer="…")
    await either.mark_processing([song], "job")
    await either.save("job", [Outcome(navidrome_id="s0", vector=[1.0])])
    stored = await either.song("s0")
    assert stored is not None
    assert (stored.tries, stored.last_error, stored.kept_answer) == (0, None, None)


async def test_songs_of_a_job_that_is_over_are_as_before(either: Library) -> None:
    songs = await stocked(either, 4)
    await put(either, ["s2", "s3"], status="DESCRIBED")
    await either.mark_processing(songs, "job")
    assert (await either.counts())[Status.PROCESSING] == 4
    assert await either.release("job") == 4
    assert await column(either, "status") == {
        "s0": "PENDING",
        "s1": "PENDING",
        "s2": "DESCRIBED",
        "s3": "DESCRIBED",
    }
    assert set((await column(either, "job_id")).values()) == {None}


async def test_songs_of_a_job_that_failed_are_failed_with_the_answer_kept(either: Library) -> None:
    songs = await stocked(either, 3)
    await put(either, ["s1"], status="DESCRIBED")
    await either.mark_queued({"job": ["s0", "s1"]})
    await either.mark_processing(songs[:1], "job")
    assert await either.fail("job", "it is not JSON", "抱歉") == 2
    stored = await either.song("s0")
    assert stored is not None
    assert (stored.status, stored.last_error, stored.kept_answer) == ("FAILED", "it is not JSON", "抱歉")
    assert await either.retry_failed() == 2
    assert await column(either, "status") == {"s0": "PENDING", "s1": "DESCRIBED", "s2": "PENDING"}
    assert len(await either.pending()) == 2


async def test_a_failed_job_that_a_person_retries_has_its_songs_again(either: Library) -> None:
    songs = await stocked(either, 2)
    await either.mark_processing(songs, "job")
    await either.fail("job", "the provider was away")
    assert await either.mark_processing(songs, "job") == songs
    await either.release("job")
    assert await either.pending() == songs


async def test_whoever_lost_his_songs_writes_nothing(either: Library) -> None:
    songs = await stocked(either, 2)
    await either.mark_processing(songs, "stale")
    await either.release("stale")
    await either.mark_processing(songs, "newer")
    await either.save("newer", [Outcome(navidrome_id="s0", description=description("s0"), vector=[1.0])])
    before = await column(either, "changed_at")
    await either.save("stale", [Outcome(navidrome_id=id_, vector=[9.0]) for id_ in ("s0", "s1")])
    assert await either.fail("stale", "too late") == 0
    assert await either.release("stale") == 0
    await either.wait("stale")
    assert await column(either, "status") == {"s0": "COMPLETED", "s1": "PROCESSING"}
    assert await column(either, "changed_at") == before


async def test_a_song_that_is_done_is_not_done_again_by_its_job(either: Library) -> None:
    songs = await stocked(either, 2)
    await either.mark_processing(songs, "job")
    await either.save("job", [Outcome(navidrome_id="s0", vector=[1.0])])
    assert ids(await either.mark_processing(songs, "job")) == ["s1"]


async def test_an_attempt_that_was_given_up_does_not_take_the_outcome_from_the_next(either: Library) -> None:
    """The lease was lost: the new attempt of the same job runs while the old one is told to stop."""
    songs = await stocked(either, 1)
    await either.mark_processing(songs, "job")
    await either.mark_processing(songs, "job")
    await either.wait("job")
    await either.save("job", [Outcome(navidrome_id="s0", vector=[1.0])])
    assert (await either.counts())[Status.COMPLETED] == 1


async def test_a_job_that_a_person_retried_while_its_songs_were_being_failed_writes_their_outcome(
    either: Library,
) -> None:
    songs = await stocked(either, 1)
    await either.mark_processing(songs, "job")
    await either.fail("job", "seen before the retry")
    await either.save("job", [Outcome(navidrome_id="s0", vector=[1.0])])
    stored = await either.song("s0")
    assert stored is not None
    assert (stored.status, stored.last_error) == (Status.COMPLETED, None)


async def test_many_songs_at_once(either: Library) -> None:
    count = AT_ONCE * 2 + 1
    songs = await stocked(either, count)
    assert len(songs) == count
    await either.mark_queued({"job": ids(songs)})
    assert len(await either.mark_processing(songs, "job")) == count
    assert await either.release("job") == count


async def test_the_character_0_is_left_out_of_every_text(either: Library) -> None:
    await either.upsert([track(0, title="潮\0汐", artist="林\0晚", album="\0")])
    (song,) = await either.pending()
    assert song == Song("s0", "潮汐", "林晚")
    said = description("s\0")
    await either.mark_processing([song], "job")
    await either.save("job", [Outcome(navidrome_id="s0", description=said, problem="\0")])
    await either.mark_processing([song], "job")
    await either.fail("job", "a\0b", "c\0d")
    stored = await either.song("s0")
    assert stored is not None
    assert (stored.last_error, stored.kept_answer) == ("ab", "cd")
    assert "\0" not in str(stored.description)
    assert await either.upsert([track(0, title="潮\0汐", artist="林\0晚", album="\0")]) == (0, 0)


async def test_why_songs_failed_is_counted(either: Library) -> None:
    await stocked(either, 4)
    await either.mark_queued({"j1": ["s0", "s1"], "j2": ["s2"]})
    await either.fail("j1", "服务商不在")
    await either.fail("j2", "it is not JSON")
    await put(either, ["s3"], status="FAILED")
    assert await either.failures() == [
        Failure("服务商不在", 2),
        Failure("", 1),
        Failure("it is not JSON", 1),
    ]


async def test_songs_that_failed_wait_for_jobs_that_come_again(either: Library) -> None:
    songs = await stocked(either, 3)
    await put(either, ["s1"], status="DESCRIBED")
    await either.mark_queued({"comes": ["s0", "s1"], "gone": ["s2"]})
    await either.fail("comes", "away")
    await either.fail("gone", "away")
    assert sorted(await either.failed_jobs()) == ["comes", "gone"]
    assert await either.await_jobs(["comes"]) == 2
    assert await column(either, "status") == {"s0": "PENDING", "s1": "DESCRIBED", "s2": "FAILED"}
    assert await either.pending() == []
    assert await either.mark_processing(songs[:2], "comes") == songs[:2]


async def test_songs_left_out_once_and_more_often_are_told_apart(either: Library) -> None:
    await stocked(either, 5)
    await put(either, ["s1", "s2"], tries=1)
    await put(either, ["s2"], status="DESCRIBED")
    await put(either, ["s3"], tries=2)
    await put(either, ["s4"], tries=1, job_id="job")
    assert (await either.left_out(0), await either.left_out()) == (2, 3)
    assert ids(await either.pending(out_since=0)) == ["s1"]
    assert ids(await either.described_without_vector(out_since=0)) == ["s2"]
    later = either.now() + 60_000
    await put(either, ["s1"], changed_at=later)
    assert (await either.left_out(later), await either.left_out(later + 1)) == (1, 0)
    assert ids(await either.pending(out_since=later + 1)) == []
