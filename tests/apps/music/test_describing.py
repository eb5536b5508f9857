"""What is stored of an analysis, and the text its vector is made of."""

from __future__ import annotations

import json

import msgspec
import pytest

from tests.apps.music.entries import entry
from tidemill_apps.music.answers import Analysis
from tidemill_apps.music.describing import described, genre_in, vector_text
from tidemill_apps.music.songs import Song


def analysis(**more: object) -> Analysis:
    return msgspec.convert(entry("s1", **more), Analysis)


def test_what_is_stored() -> None:
    stored = described(analysis())
    assert stored.description == "钢琴与弦乐 s1\n\n[Imagery] the sea at night, s1"
    assert stored.tags == ["宁静", "wistful", "lighthouse", "#Genre:Ambient", "深夜", "#Spectrum:low"]
    assert (stored.mood, stored.energy_level, stored.is_instrumental) == ("宁静", 3, True)
    assert json.loads(stored.analysis_json) == entry("s1")


def test_what_is_not_said_is_left_out() -> None:
    stored = described(analysis(acoustic_model=None, mood_coord=[], objects=[], scene_tag="", spectrum=None))
    assert stored.description == "\n\n[Imagery] the sea at night, s1"
    assert stored.tags == []
    assert stored.mood == "Unknown"


def test_an_empty_mood_is_unknown() -> None:
    assert described(analysis(mood_coord=["", "calm"])).mood == "Unknown"


@pytest.mark.parametrize(
    ("tags", "genre"),
    [
        (["sea", "#Genre:Jazz"], "Jazz"),
        (["#genre: Hip Hop "], "Hip Hop"),
        (["流派：民谣"], "民谣"),  # noqa: RUF001 - its own colon
        (["#风格:古风", "#Genre:Folk"], "古风"),
        (["genre painting", "流派"], None),
        ([], None),
    ],
)
def test_the_genre_is_found_among_the_objects(tags: list[str], genre: str | None) -> None:
    assert genre_in(tags) == genre


def test_the_text_of_a_vector_has_the_songs_own_title_and_artist() -> None:
    stored = described(analysis())
    assert vector_text(Song("s1", "雾中灯塔", "林晚"), stored.description, stored.tags).splitlines() == [
        "Title: 雾中灯塔",
        "Artist: 林晚",
        "Genre: Ambient",
        "钢琴与弦乐 s1",
        "",
        "[Imagery] the sea at night, s1",
        "Tags: 宁静, wistful, lighthouse, #Genre:Ambient, 深夜, #Spectrum:low",
    ]
