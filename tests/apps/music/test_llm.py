"""A model's answer is parsed strictly: only requested songs in the requested format are kept."""

from __future__ import annotations

import json
from time import thread_time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apps.music.model_answers import answer, entry
from tidemill.testing.simulator import SimulatorCall
from tidemill_apps.music.connections import load_sample_tracks, simulate_descriptions
from tidemill_apps.music.llm import (
    ANSWER_SCHEMA,
    DUPLICATE_PROBLEM,
    LEFT_OUT_PROBLEM,
    SYSTEM_PROMPT,
    SongAnalysis,
    UnreadableAnswer,
    build_description,
    find_genre,
    format_songs,
    format_vector_text,
    parse_answer,
)
from tidemill_apps.music.tables import Song

ASKED = ["a", "b", "歌"]


def test_a_whole_answer_in_any_order() -> None:
    read = parse_answer(answer([entry("歌"), entry("a"), entry("b")]), ASKED)
    assert read.analyses.keys() == {"a", "b", "歌"}
    assert (read.problems, read.unknown_ids) == ({}, ())
    assert read.analyses["歌"].vector_anchor.acoustic_model == "钢琴与弦乐 歌"
    assert read.analyses["歌"].embedding_tags.mood_coord == ["宁静", "wistful"]


def test_a_fence_around_it_is_no_part_of_it() -> None:
    read = parse_answer(f"```json\n{answer([entry('a')])}\n```\n", ["a"])
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
    read = parse_answer(text, ASKED)
    assert read.analyses == parse_answer(WHOLE, ASKED).analyses
    assert read.problems == {"歌": LEFT_OUT_PROBLEM}


def test_no_answer_takes_longer_than_its_length_allows() -> None:
    began = thread_time()
    for part in ('{"a":', "{", '{"id": [', "[{"):
        with pytest.raises(UnreadableAnswer):
            parse_answer(part * (100_000 // len(part)), ASKED)
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
    with pytest.raises(UnreadableAnswer):
        parse_answer(text, ASKED)


@pytest.mark.parametrize(
    ("malformed", "problem"),
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
def test_a_malformed_entry_is_its_own_songs_problem(malformed: dict[str, Any], problem: str) -> None:
    read = parse_answer(answer([entry("a"), malformed, entry("歌")]), ASKED)
    assert read.analyses.keys() == {"a", "歌"}
    assert read.problems.keys() == {"b"}
    assert problem in read.problems["b"]


@pytest.mark.parametrize("nothing", ["歌", 7, None, {}, {"id": 7}, {"title": "b"}])
def test_an_entry_without_an_id_is_nobodys(nothing: Any) -> None:
    read = parse_answer(answer([entry("a"), nothing, entry("歌")]), ASKED)
    assert read.analyses.keys() == {"a", "歌"}
    assert read.problems == {"b": LEFT_OUT_PROBLEM}


def test_unknown_ids_are_refused_and_named() -> None:
    read = parse_answer(answer([entry("a"), entry("z"), entry("未知"), entry("z")]), ["a"])
    assert read.analyses.keys() == {"a"}
    assert read.unknown_ids == ("z", "未知")


def test_a_repeated_id_is_a_problem_and_gives_no_analysis() -> None:
    read = parse_answer(answer([entry("歌"), entry("a"), entry("歌", energy=9)]), ["a", "歌"])
    assert read.analyses.keys() == {"a"}
    assert read.problems == {"歌": DUPLICATE_PROBLEM}


def test_songs_left_out_are_named() -> None:
    assert parse_answer(answer([]), ASKED).problems == dict.fromkeys(ASKED, LEFT_OUT_PROBLEM)


def test_extra_fields_are_ignored() -> None:
    read = parse_answer(answer([{**entry("a"), "confidence": 0.4}]), ["a"])
    assert read.analyses.keys() == {"a"}


@given(st.lists(st.sampled_from(["a", "b", "歌", "z", "bad a", "bad 歌"]), max_size=8))
def test_every_song_has_an_analysis_or_a_problem_and_never_both(ids: list[str]) -> None:
    entries = [
        entry(one.removeprefix("bad "), energy=99) if one.startswith("bad ") else entry(one) for one in ids
    ]
    read = parse_answer(answer(entries), ASKED)
    assert read.analyses.keys() | read.problems.keys() == set(ASKED)
    assert not read.analyses.keys() & read.problems.keys()
    for id_ in read.analyses:
        assert ids.count(id_) == 1
        assert f"bad {id_}" not in ids


def test_the_prompt_contains_only_id_title_and_artist_of_a_song() -> None:
    prompt = json.loads(format_songs([Song("s1", "雾中灯塔", "林晚"), Song("s2", "Tide", "")]))
    assert prompt == [
        {"id": "s1", "title": "雾中灯塔", "artist": "林晚"},
        {"id": "s2", "title": "Tide", "artist": ""},
    ]


def test_the_schema_asks_for_what_the_parser_wants() -> None:
    wanted = ANSWER_SCHEMA["properties"]["songs"]["items"]
    assert wanted["properties"].keys() == entry("a").keys()
    for inner in ("vector_anchor", "embedding_tags"):
        assert wanted["properties"][inner]["properties"].keys() == entry("a")[inner].keys()
        assert wanted["properties"][inner]["required"] == list(wanted["properties"][inner]["properties"])
        assert all(name in SYSTEM_PROMPT for name in entry("a")[inner])


def test_the_simulator_s_reply_is_a_complete_answer() -> None:
    songs = [Song(one.id, one.title, one.artist) for one in load_sample_tracks()]
    reply = simulate_descriptions(
        SimulatorCall(kind="chat", model="m", texts=(SYSTEM_PROMPT, format_songs(songs)), input_tokens=1)
    )
    read = parse_answer(reply, [song.navidrome_id for song in songs])
    assert (len(read.analyses), read.problems, read.unknown_ids) == (60, {}, ())
    for song in songs:
        assert song.title in str(read.analyses[song.navidrome_id].vector_anchor.acoustic_model)


def analysis(**more: object) -> SongAnalysis:
    return msgspec.convert(entry("s1", **more), SongAnalysis)


def test_the_stored_description() -> None:
    stored = build_description(analysis())
    assert stored.description == "钢琴与弦乐 s1\n\n[Imagery] the sea at night, s1"
    assert stored.tags == ["宁静", "wistful", "lighthouse", "#Genre:Ambient", "深夜", "#Spectrum:low"]
    assert (stored.mood, stored.energy_level, stored.is_instrumental) == ("宁静", 3, True)
    assert json.loads(stored.analysis_json) == entry("s1")


def test_missing_fields_are_left_out_of_the_description() -> None:
    stored = build_description(
        analysis(acoustic_model=None, mood_coord=[], objects=[], scene_tag="", spectrum=None)
    )
    assert stored.description == "\n\n[Imagery] the sea at night, s1"
    assert stored.tags == []
    assert stored.mood == "Unknown"


def test_an_empty_mood_is_unknown() -> None:
    assert build_description(analysis(mood_coord=["", "calm"])).mood == "Unknown"


@pytest.mark.parametrize(
    ("tags", "genre"),
    [
        (["sea", "#Genre:Jazz"], "Jazz"),
        (["#genre: Hip Hop "], "Hip Hop"),
        (["流派：民谣"], "民谣"),  # noqa: RUF001 - Chinese punctuation
        (["#风格:古风", "#Genre:Folk"], "古风"),
        (["genre painting", "流派"], None),
        ([], None),
    ],
)
def test_the_genre_is_found_among_the_objects(tags: list[str], genre: str | None) -> None:
    assert find_genre(tags) == genre


def test_the_text_of_a_vector_has_the_songs_own_title_and_artist() -> None:
    stored = build_description(analysis())
    assert format_vector_text(
        Song("s1", "雾中灯塔", "林晚"), stored.description, stored.tags
    ).splitlines() == [
        "Title: 雾中灯塔",
        "Artist: 林晚",
        "Genre: Ambient",
        "钢琴与弦乐 s1",
        "",
        "[Imagery] the sea at night, s1",
        "Tags: 宁静, wistful, lighthouse, #Genre:Ambient, 深夜, #Spectrum:low",
    ]
