"""Songs similar to a song: the nearest first, and fast."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tests.apps.music.analysis_kit import analysis_environment
from tests.apps.music.library_fixtures import insert_rows, put, track
from tidemill_apps.music.connections import load_sample_tracks
from tidemill_apps.music.library import Library
from tidemill_apps.music.search import SimilarityIndex, SimilarSong
from tidemill_apps.music.tables import SongStatus, pack_vector


async def with_vectors(library: Library, **vectors: list[float]) -> SimilarityIndex:
    """Adds songs named s0, s1 and so on with these vectors."""
    await library.upsert([track(int(name[1:])) for name in vectors])
    for name, vector in vectors.items():
        await put(library, [name], status=SongStatus.COMPLETED, vector=pack_vector(vector), changed_at=1)
    return SimilarityIndex(library)


def ids_and_scores(matches: list[SimilarSong]) -> list[tuple[str, float]]:
    return [(match.song.navidrome_id, round(match.similarity, 3)) for match in matches]


async def test_the_nearest_come_first_however_long_their_vectors_are(either: Library) -> None:
    similar = await with_vectors(either, s0=[1, 0], s1=[10, 1], s2=[0, 3], s3=[-1, 0])
    assert ids_and_scores(await similar.to_song("s0")) == [("s1", 0.995), ("s2", 0.0), ("s3", -1.0)]
    assert ids_and_scores(await similar.to_song("s0", 1)) == [("s1", 0.995)]
    assert (await similar.to_song("s0"))[0].song.title == "潮汐之歌 第1首"
    assert ids_and_scores(await similar.to_vector([0, 0.5], 2)) == [("s2", 1.0), ("s1", 0.1)]


async def test_a_song_without_a_vector_is_like_nothing(library: Library) -> None:
    similar = await with_vectors(library, s0=[1, 0])
    await library.upsert([track(1)])
    assert await similar.to_song("s1") == []
    assert await similar.to_song("nobody") == []
    assert await similar.to_song("s0") == []


async def test_an_empty_library_has_nothing_like_anything(library: Library) -> None:
    assert await SimilarityIndex(library).to_vector([1, 0]) == []


async def test_vectors_of_another_model_are_not_compared(library: Library) -> None:
    similar = await with_vectors(library, s0=[1, 0], s1=[1, 1], s2=[1, 0, 0], s3=[1, 1, 1])
    assert ids_and_scores(await similar.to_song("s0")) == [("s1", 0.707)]
    assert ids_and_scores(await similar.to_song("s2")) == [("s3", 0.577)]
    assert await similar.to_vector([1, 0, 0, 0]) == []


async def test_a_vector_of_nothing_is_like_nothing(library: Library) -> None:
    similar = await with_vectors(library, s0=[1, 0], s1=[0, 0])
    assert ids_and_scores(await similar.to_song("s0")) == [("s1", 0.0)]


async def test_similarity_uses_changed_vectors_at_once(library: Library) -> None:
    similar = await with_vectors(library, s0=[1, 0], s1=[0, 1])
    assert ids_and_scores(await similar.to_song("s0")) == [("s1", 0.0)]
    await put(library, ["s1"], vector=pack_vector([1, 0]), changed_at=2)
    assert ids_and_scores(await similar.to_song("s0")) == [("s1", 1.0)]
    await library.upsert([track(1, title="改名")])
    assert await similar.to_song("s0") == []


async def test_songs_are_found_by_a_text_in_both_languages(library: Library) -> None:
    await library.upsert(load_sample_tracks())
    async with analysis_environment(library, dimensions=768) as at:
        songs = await library.load_pending()
        for start in range(0, len(songs), 20):
            await at.full.enqueue(songs[start : start + 20])
        await at.kit.run_for(600)
        similar = SimilarityIndex(library)
        for text, title in (("雨声 雨天", "雨打芭蕉"), ("rain, a rainy afternoon", "Raindrop Prelude")):
            (best, *_) = await similar.to_text(text, at.embeddings, 3)
            assert best.song.title == title
        (moon,) = [song for song in songs if song.title == "二泉映月"]
        assert {match.song.mood for match in await similar.to_song(moon.navidrome_id, 4)} == {"宁静"}


@pytest.mark.alone
async def test_ten_thousand_songs_are_compared_within_a_fifth_of_a_second(library: Library) -> None:
    random = np.random.default_rng(7)
    vectors = random.normal(size=(10_000, 768)).astype(np.float32)
    await insert_rows(
        library,
        [
            {
                "navidrome_id": f"s{number}",
                "title": f"歌 {number}",
                "artist": "林晚",
                "status": "COMPLETED",
                "vector": vector.tobytes(),
                "changed_at": 1,
            }
            for number, vector in enumerate(vectors)
        ],
    )
    similar = SimilarityIndex(library)
    await similar.to_song("s1")
    took = []
    for number in range(5):
        began = time.perf_counter()
        found = await similar.to_song(f"s{number}", 10)
        took.append(time.perf_counter() - began)
        assert len(found) == 10
    assert sorted(took)[2] < 0.2, took
