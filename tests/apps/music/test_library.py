"""Songs and their progress: a song is in one job at a time, and each job writes only its songs."""

from __future__ import annotations

import msgspec

from tests.apps.music.library_fixtures import add_songs, column, put, track
from tests.apps.music.model_answers import entry
from tidemill_apps.common.database import MAX_IDS_PER_STATEMENT
from tidemill_apps.music.library import Library
from tidemill_apps.music.llm import SongAnalysis, build_description
from tidemill_apps.music.tables import (
    MAX_TRIES,
    Song,
    SongDescription,
    SongFailureCount,
    SongOutcome,
    SongStatus,
    unpack_vector,
)


def description(id_: str) -> SongDescription:
    return build_description(msgspec.convert(entry(id_), SongAnalysis))


def ids(songs: list[Song]) -> list[str]:
    return [song.navidrome_id for song in songs]


async def test_songs_wait_in_the_order_they_came(either: Library) -> None:
    songs = await add_songs(either, 5)
    assert ids(songs) == ["s0", "s1", "s2", "s3", "s4"]
    assert songs[1] == Song("s1", "潮汐之歌 第1首", "林晚")
    assert ids(await either.load_pending(2)) == ["s0", "s1"]


async def test_an_upsert_writes_only_changed_songs(either: Library) -> None:
    await add_songs(either, 3)
    assert await either.upsert([track(0), track(1), track(2, album="另一张")]) == (0, 1)
    assert (await column(either, "album"))["s2"] == "另一张"


async def test_a_song_with_another_name_waits_again_and_is_nobodys(either: Library) -> None:
    songs = await add_songs(either, 3)
    await either.mark_processing(songs, "job")
    assert await either.upsert([track(0), track(1, title="新名字"), track(2)]) == (0, 1)
    assert await either.load_pending() == [Song("s1", "新名字", "林晚")]
    await either.save("job", [SongOutcome(navidrome_id=id_, vector=[1.0]) for id_ in ids(songs)])
    assert await column(either, "status") == {"s0": "COMPLETED", "s1": "PENDING", "s2": "COMPLETED"}


async def test_a_page_that_lists_a_song_twice_has_it_once(either: Library) -> None:
    assert await either.upsert([track(0), track(0, title="later")]) == (1, 0)
    assert [song.title for song in await either.load_pending()] == ["later"]


async def test_a_song_that_a_job_has_is_not_sent_again(either: Library) -> None:
    songs = await add_songs(either, 4)
    await either.mark_queued({"j1": ["s0", "s1"], "j2": ["s1", "s2"]})
    assert ids(await either.load_pending()) == ["s3"]
    assert await either.load_songs_by_job() == {"j1": ["s0", "s1"], "j2": ["s2"]}
    assert ids(await either.mark_processing(songs, "j2")) == ["s2", "s3"]


async def test_a_job_that_runs_again_gets_its_own_songs_back(either: Library) -> None:
    songs = await add_songs(either, 2)
    assert await either.mark_processing(songs, "job") == songs
    assert await either.mark_processing(songs, "another") == []
    await either.return_to_waiting("job")
    assert (await either.count_by_status())[SongStatus.PROCESSING] == 0
    assert await either.load_pending() == []
    assert await either.mark_processing(songs, "job") == songs


async def test_a_song_that_is_called_otherwise_in_the_job_is_not_taken(either: Library) -> None:
    await add_songs(either, 2)
    renamed = [
        Song("s0", "Tide Song 0", "Another"),
        Song("s1", "潮汐之歌 第1首", "林晚"),
        Song("s9", "?", "?"),
    ]
    assert ids(await either.mark_processing(renamed, "job")) == ["s1"]


async def test_analyses_are_saved_together(either: Library) -> None:
    songs = await add_songs(either, 3)
    await either.mark_processing(songs, "job")
    await either.save(
        "job",
        [
            SongOutcome(navidrome_id="s0", description=description("s0"), vector=[0.25, -1.5]),
            SongOutcome(navidrome_id="s1", description=description("s1"), problem="no vector"),
            SongOutcome(navidrome_id="s2", problem="left out"),
        ],
    )
    assert await column(either, "status") == {"s0": "COMPLETED", "s1": "DESCRIBED", "s2": "PENDING"}
    assert await column(either, "tries") == {"s0": 0, "s1": 1, "s2": 1}
    assert await either.load_songs_by_job() == {}
    vectors = await column(either, "vector")
    assert list(unpack_vector(vectors["s0"])) == [0.25, -1.5]
    assert (vectors["s1"], vectors["s2"]) == (None, None)
    stored = await either.load_row("s0")
    assert stored is not None
    assert stored.description == "钢琴与弦乐 s0\n\n[Imagery] the sea at night, s0"
    assert stored.tags[0] == "宁静"
    assert (stored.mood, stored.energy_level, stored.is_instrumental) == ("宁静", 3, True)
    assert ids(await either.load_described()) == ["s1"]
    assert ids(await either.load_pending()) == ["s2"]
    assert await either.count_with_status(songs, SongStatus.COMPLETED) == 1
    assert await either.count_with_status(songs, SongStatus.COMPLETED, SongStatus.DESCRIBED) == 2


async def test_a_vector_completes_a_song_that_was_described(either: Library) -> None:
    (song,) = await add_songs(either, 1)
    await either.mark_processing([song], "first")
    await either.save("first", [SongOutcome(navidrome_id="s0", description=description("s0"))])
    assert await either.mark_processing([song], "second", of=(SongStatus.DESCRIBED,)) == [song]
    await either.save("second", [SongOutcome(navidrome_id="s0", vector=[1.0])])
    stored = await either.load_row("s0")
    assert stored is not None
    assert (stored.status, stored.mood, stored.job_id) == (SongStatus.COMPLETED, "宁静", "second")


async def test_a_job_for_vectors_leaves_songs_alone_that_have_no_description(either: Library) -> None:
    songs = await add_songs(either, 2)
    assert await either.mark_processing(songs, "job", of=(SongStatus.DESCRIBED,)) == []
    assert (await either.count_by_status())[SongStatus.PENDING] == 2


async def test_a_song_left_out_three_times_is_failed(either: Library) -> None:
    (song,) = await add_songs(either, 1)
    for number in range(MAX_TRIES):
        assert await either.load_pending() == [song]
        await either.mark_processing([song], f"j{number}")
        await either.save(f"j{number}", [SongOutcome(navidrome_id="s0", problem="the answer leaves it out")])
    stored = await either.load_row("s0")
    assert stored is not None
    assert (stored.status, stored.tries) == (SongStatus.FAILED, MAX_TRIES)
    assert stored.last_error == "the answer leaves it out"
    assert await either.load_pending() == []


async def test_a_success_forgets_the_tries_before_it(either: Library) -> None:
    (song,) = await add_songs(either, 1)
    await put(either, ["s0"], tries=2, last_error="left out", unreadable_answer="…")
    await either.mark_processing([song], "job")
    await either.save("job", [SongOutcome(navidrome_id="s0", vector=[1.0])])
    stored = await either.load_row("s0")
    assert stored is not None
    assert (stored.tries, stored.last_error, stored.unreadable_answer) == (0, None, None)


async def test_songs_of_a_job_that_is_over_are_as_before(either: Library) -> None:
    songs = await add_songs(either, 4)
    await put(either, ["s2", "s3"], status="DESCRIBED")
    await either.mark_processing(songs, "job")
    assert (await either.count_by_status())[SongStatus.PROCESSING] == 4
    assert await either.release("job") == 4
    assert await column(either, "status") == {
        "s0": "PENDING",
        "s1": "PENDING",
        "s2": "DESCRIBED",
        "s3": "DESCRIBED",
    }
    assert set((await column(either, "job_id")).values()) == {None}


async def test_songs_of_a_job_that_failed_are_failed_with_the_answer_kept(either: Library) -> None:
    songs = await add_songs(either, 3)
    await put(either, ["s1"], status="DESCRIBED")
    await either.mark_queued({"job": ["s0", "s1"]})
    await either.mark_processing(songs[:1], "job")
    assert await either.mark_failed("job", "it is not JSON", "抱歉") == 2
    stored = await either.load_row("s0")
    assert stored is not None
    assert (stored.status, stored.last_error, stored.unreadable_answer) == (
        "FAILED",
        "it is not JSON",
        "抱歉",
    )
    assert await either.retry_failed() == 2
    assert await column(either, "status") == {"s0": "PENDING", "s1": "DESCRIBED", "s2": "PENDING"}
    assert len(await either.load_pending()) == 2


async def test_a_failed_job_that_a_person_retries_has_its_songs_again(either: Library) -> None:
    songs = await add_songs(either, 2)
    await either.mark_processing(songs, "job")
    await either.mark_failed("job", "the provider was away")
    assert await either.mark_processing(songs, "job") == songs
    await either.release("job")
    assert await either.load_pending() == songs


async def test_a_stale_job_writes_nothing(either: Library) -> None:
    songs = await add_songs(either, 2)
    await either.mark_processing(songs, "stale")
    await either.release("stale")
    await either.mark_processing(songs, "newer")
    await either.save("newer", [SongOutcome(navidrome_id="s0", description=description("s0"), vector=[1.0])])
    before = await column(either, "changed_at")
    await either.save("stale", [SongOutcome(navidrome_id=id_, vector=[9.0]) for id_ in ("s0", "s1")])
    assert await either.mark_failed("stale", "too late") == 0
    assert await either.release("stale") == 0
    await either.return_to_waiting("stale")
    assert await column(either, "status") == {"s0": "COMPLETED", "s1": "PROCESSING"}
    assert await column(either, "changed_at") == before


async def test_a_song_that_is_done_is_not_done_again_by_its_job(either: Library) -> None:
    songs = await add_songs(either, 2)
    await either.mark_processing(songs, "job")
    await either.save("job", [SongOutcome(navidrome_id="s0", vector=[1.0])])
    assert ids(await either.mark_processing(songs, "job")) == ["s1"]


async def test_an_attempt_that_was_given_up_does_not_take_the_outcome_from_the_next(either: Library) -> None:
    """The lease was lost: the next attempt of the same job runs while the old one is being stopped."""
    songs = await add_songs(either, 1)
    await either.mark_processing(songs, "job")
    await either.mark_processing(songs, "job")
    await either.return_to_waiting("job")
    await either.save("job", [SongOutcome(navidrome_id="s0", vector=[1.0])])
    assert (await either.count_by_status())[SongStatus.COMPLETED] == 1


async def test_a_job_that_a_person_retried_while_its_songs_were_being_failed_writes_their_outcome(
    either: Library,
) -> None:
    songs = await add_songs(either, 1)
    await either.mark_processing(songs, "job")
    await either.mark_failed("job", "seen before the retry")
    await either.save("job", [SongOutcome(navidrome_id="s0", vector=[1.0])])
    stored = await either.load_row("s0")
    assert stored is not None
    assert (stored.status, stored.last_error) == (SongStatus.COMPLETED, None)


async def test_many_songs_at_once(either: Library) -> None:
    count = MAX_IDS_PER_STATEMENT * 2 + 1
    songs = await add_songs(either, count)
    assert len(songs) == count
    await either.mark_queued({"job": ids(songs)})
    assert len(await either.mark_processing(songs, "job")) == count
    assert await either.release("job") == count


async def test_the_character_0_is_left_out_of_every_text(either: Library) -> None:
    await either.upsert([track(0, title="潮\0汐", artist="林\0晚", album="\0")])
    (song,) = await either.load_pending()
    assert song == Song("s0", "潮汐", "林晚")
    text = description("s\0")
    await either.mark_processing([song], "job")
    await either.save("job", [SongOutcome(navidrome_id="s0", description=text, problem="\0")])
    await either.mark_processing([song], "job")
    await either.mark_failed("job", "a\0b", "c\0d")
    stored = await either.load_row("s0")
    assert stored is not None
    assert (stored.last_error, stored.unreadable_answer) == ("ab", "cd")
    assert "\0" not in str(stored.description)
    assert await either.upsert([track(0, title="潮\0汐", artist="林\0晚", album="\0")]) == (0, 0)


async def test_why_songs_failed_is_counted(either: Library) -> None:
    await add_songs(either, 4)
    await either.mark_queued({"j1": ["s0", "s1"], "j2": ["s2"]})
    await either.mark_failed("j1", "服务商不在")
    await either.mark_failed("j2", "it is not JSON")
    await put(either, ["s3"], status="FAILED")
    assert await either.count_failures() == [
        SongFailureCount("服务商不在", 2),
        SongFailureCount("", 1),
        SongFailureCount("it is not JSON", 1),
    ]


async def test_songs_that_failed_wait_for_jobs_that_come_again(either: Library) -> None:
    songs = await add_songs(either, 3)
    await put(either, ["s1"], status="DESCRIBED")
    await either.mark_queued({"comes": ["s0", "s1"], "gone": ["s2"]})
    await either.mark_failed("comes", "away")
    await either.mark_failed("gone", "away")
    assert sorted(await either.load_failed_jobs()) == ["comes", "gone"]
    assert await either.return_songs_to_jobs(["comes"]) == 2
    assert await column(either, "status") == {"s0": "PENDING", "s1": "DESCRIBED", "s2": "FAILED"}
    assert await either.load_pending() == []
    assert await either.mark_processing(songs[:2], "comes") == songs[:2]


async def test_songs_left_out_once_and_repeatedly_are_counted_apart(either: Library) -> None:
    await add_songs(either, 5)
    await put(either, ["s1", "s2"], tries=1)
    await put(either, ["s2"], status="DESCRIBED")
    await put(either, ["s3"], tries=2)
    await put(either, ["s4"], tries=1, job_id="job")
    assert (await either.count_left_out(0), await either.count_left_out()) == (2, 3)
    assert ids(await either.load_pending(left_out_since=0)) == ["s1"]
    assert ids(await either.load_described(left_out_since=0)) == ["s2"]
    later = either.now_milliseconds() + 60_000
    await put(either, ["s1"], changed_at=later)
    assert (await either.count_left_out(later), await either.count_left_out(later + 1)) == (1, 0)
    assert ids(await either.load_pending(left_out_since=later + 1)) == []
