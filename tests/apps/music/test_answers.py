"""A model's answer is read strictly: what is kept was asked for, and is of the form that was asked for."""

from __future__ import annotations

import json
from time import thread_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apps.music.entries import answer, entry
from tidemill.testing.providers import Asked
from tidemill_apps.music.answers import LEFT_OUT, TWICE, Unreadable, read_answer
from tidemill_apps.music.prompt import SCHEMA, SYSTEM, question
from tidemill_apps.music.sample import tracks
from tidemill_apps.music.simulated import describe_songs
from tidemill_apps.music.songs import Song

ASKED = ["a", "b", "歌"]


def test_a_whole_answer_in_any_order() -> None:
    read = read_answer(answer([entry("歌"), entry("a"), entry("b")]), ASKED)
    assert read.analyses.keys() == {"a", "b", "歌"}
    assert (read.problems, read.strangers) == ({}, ())
    assert read.analyses["歌"].vector_anchor.acoustic_model == "钢琴与弦乐 歌"
    assert read.analyses["歌"].embedding_tags.mood_coord == ["宁静", "wistful"]


def test_a_fence_around_it_is_no_part_of_it() -> None:
    read = read_answer(f"```json\n{answer([entry('a')])}\n```\n", ["a"])
    assert read.analyses.keys() == {"a"}


WHOLE = answer([entry("a"), entry("b")])


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([entry("a"), entry("b")]),
        json.dumps(entry("a")) + "\n" + json.dumps(entry("b")),
        f"Here are your {{songs}}:\n\n```json\n{WHOLE}\n```\nShall I go on?",
        f"```\n{WHOLE}",
        f"好的：{WHOLE}。",  # noqa: RUF001 - as a model writes it
        json.dumps({"results": [entry("a"), entry("b")]}),
        answer([entry("a"), entry("b"), entry("歌")])[:-20],
    ],
)
def test_entries_are_found_wherever_they_stand(text: str) -> None:
    read = read_answer(text, ASKED)
    assert read.analyses == read_answer(WHOLE, ASKED).analyses
    assert read.problems == {"歌": LEFT_OUT}


def test_no_answer_takes_longer_than_its_length_allows() -> None:
    began = thread_time()
    for part in ('{"a":', "{", '{"id": [', "[{"):
        with pytest.raises(Unreadable):
            read_answer(part * (100_000 // len(part)), ASKED)
    assert thread_time() - began < 4


@pytest.mark.parametrize(
    "text",
    [
        "",
        "抱歉，我不能回答。",  # noqa: RUF001 - as a model writes it
        answer([entry("a")])[:-20],
        "[]",
        "null",
        '{"results": []}',
        '{"songs": {}}',
        '{"songs": null}',
        '{"songs": [\ud800]}',
    ],
)
def test_an_answer_that_is_another_document_says_nothing_of_any_song(text: str) -> None:
    with pytest.raises(Unreadable):
        read_answer(text, ASKED)


@pytest.mark.parametrize(
    ("malformed", "told"),
    [
        (entry("b", energy=11), "energy"),
        (entry("b", energy=0), "energy"),
        (entry("b", energy="high"), "energy"),
        (entry("b", energy=None), "energy"),
        (entry("b", mood_coord="calm"), "mood_coord"),
        (entry("b", objects=[1]), "objects"),
        (entry("b", is_instrumental="yes"), "is_instrumental"),
        (entry("b", vector_anchor=None), "vector_anchor"),
        (entry("b", acoustic_model=7), "acoustic_model"),
        (entry("b", acoustic_model=" ", semantic_push=None), "nothing is said of how it sounds"),
        ({"id": "b"}, "vector_anchor"),
    ],
)
def test_a_malformed_entry_is_its_own_songs_problem(malformed: dict[str, Any], told: str) -> None:
    read = read_answer(answer([entry("a"), malformed, entry("歌")]), ASKED)
    assert read.analyses.keys() == {"a", "歌"}
    assert read.problems.keys() == {"b"}
    assert told in read.problems["b"]


@pytest.mark.parametrize("nothing", ["歌", 7, None, {}, {"id": 7}, {"title": "b"}])
def test_an_entry_without_an_id_is_nobodys(nothing: Any) -> None:
    read = read_answer(answer([entry("a"), nothing, entry("歌")]), ASKED)
    assert read.analyses.keys() == {"a", "歌"}
    assert read.problems == {"b": LEFT_OUT}


def test_unknown_ids_are_refused_and_named() -> None:
    read = read_answer(answer([entry("a"), entry("z"), entry("未知"), entry("z")]), ["a"])
    assert read.analyses.keys() == {"a"}
    assert read.strangers == ("z", "未知")


def test_of_a_repeated_id_nobody_knows_which_is_meant() -> None:
    read = read_answer(answer([entry("歌"), entry("a"), entry("歌", energy=9)]), ["a", "歌"])
    assert read.analyses.keys() == {"a"}
    assert read.problems == {"歌": TWICE}


def test_songs_left_out_are_named() -> None:
    assert read_answer(answer([]), ASKED).problems == dict.fromkeys(ASKED, LEFT_OUT)


def test_fields_that_nobody_asked_for_do_no_harm() -> None:
    read = read_answer(answer([{**entry("a"), "confidence": 0.4}]), ["a"])
    assert read.analyses.keys() == {"a"}


@given(st.lists(st.sampled_from(["a", "b", "歌", "z", "bad a", "bad 歌"]), max_size=8))
def test_every_song_has_an_analysis_or_a_problem_and_never_both(said: list[str]) -> None:
    entries = [
        entry(one.removeprefix("bad "), energy=99) if one.startswith("bad ") else entry(one) for one in said
    ]
    read = read_answer(answer(entries), ASKED)
    assert read.analyses.keys() | read.problems.keys() == set(ASKED)
    assert not read.analyses.keys() & read.problems.keys()
    for id_ in read.analyses:
        assert said.count(id_) == 1
        assert f"bad {id_}" not in said


def test_a_model_is_told_of_a_song_its_id_title_and_artist_only() -> None:
    asked = json.loads(question([Song("s1", "雾中灯塔", "林晚"), Song("s2", "Tide", "")]))
    assert asked == [
        {"id": "s1", "title": "雾中灯塔", "artist": "林晚"},
        {"id": "s2", "title": "Tide", "artist": ""},
    ]


def test_the_schema_asks_for_what_the_parser_wants() -> None:
    wanted = SCHEMA["properties"]["songs"]["items"]
    assert wanted["properties"].keys() == entry("a").keys()
    for inner in ("vector_anchor", "embedding_tags"):
        assert wanted["properties"][inner]["properties"].keys() == entry("a")[inner].keys()
        assert wanted["properties"][inner]["required"] == list(wanted["properties"][inner]["properties"])
        assert all(name in SYSTEM for name in entry("a")[inner])


def test_what_the_simulator_says_is_a_whole_answer() -> None:
    songs = [Song(one.id, one.title, one.artist) for one in tracks()]
    said = describe_songs(Asked(kind="chat", model="m", texts=(SYSTEM, question(songs)), input_tokens=1))
    read = read_answer(said, [song.navidrome_id for song in songs])
    assert (len(read.analyses), read.problems, read.strangers) == (60, {}, ())
    for song in songs:
        assert song.title in str(read.analyses[song.navidrome_id].vector_anchor.acoustic_model)
