"""From a text to parts: nothing is lost, and no part is longer than the speech service accepts (Q16)."""

from __future__ import annotations

# ruff: noqa: RUF001 - Chinese punctuation
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apps.podcasts.podcast_texts import MILLS, MILLS_ZH, QUEUES_ZH
from tidemill_apps.common.sentences import clean_text, detect_language, is_speakable, split_sentences
from tidemill_apps.common.speech import measure
from tidemill_apps.podcasts.text import ScriptSection, pack_parts, read_sections


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("Version 3.11 is out. Yes.", ["Version 3.11 is out.", "Yes."]),
        ("潮水来了。磨坊转动！真的吗？", ["潮水来了。", "磨坊转动！", "真的吗？"]),
        ("他说：“走吧。”然后走了。", ["他说：“走吧。”", "然后走了。"]),
        ("第一行\n第二行", ["第一行", "第二行"]),
        ('She said "Go." Then she left.', ['She said "Go."', "Then she left."]),
        ("… — !", []),
    ],
)
def test_sentences_end_where_people_end_them(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


def letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))


def test_markdown_becomes_chapters_without_code_and_addresses() -> None:
    sections = read_sections(MILLS.text, "markdown", MILLS.title)
    assert [section.title for section in sections] == ["How they work", "Where they are"]
    spoken = " ".join(sentence for section in sections for sentence in section.sentences)
    assert sections[0].sentences[0] == "How they work."
    assert "Woodbridge still grinds" in spoken
    assert "print" not in spoken
    assert "https" not in spoken


def test_html_is_read_without_tags_and_scripts() -> None:
    [section] = read_sections(QUEUES_ZH.text, "html", "title")
    assert section.title == "队列"
    assert section.sentences[:2] == ("队列。", "队列保存任务，直到有人有空处理。")
    assert "alert" not in "".join(section.sentences)


def test_a_text_before_the_first_heading_is_the_first_chapter() -> None:
    sections = read_sections("Hello.\n\n# One\n\nText.", "markdown", "The title")
    assert [section.title for section in sections] == ["The title", "One"]


def test_nothing_speakable_gives_no_section() -> None:
    assert read_sections("```\ncode\n```\n\n---\n\nhttps://example.org", "markdown", "title") == []


@pytest.mark.parametrize(("unit", "limit"), [("characters", 30), ("bytes", 50), ("bytes", 7)])
def test_parts_fit_the_limit_in_its_unit(unit: str, limit: int) -> None:
    sections = read_sections(MILLS_ZH.text, "markdown", "title")
    parts = pack_parts(sections, partial(measure, unit), limit)  # type: ignore[arg-type]
    assert max(measure(unit, part.text) for part in parts) <= limit  # type: ignore[arg-type]
    said = "".join(part.text for part in parts)
    assert letters(said) == letters("".join("".join(section.sentences) for section in sections))


def test_5000_bytes_are_1666_chinese_characters() -> None:
    section = ScriptSection("title", ("潮" * 5000,))
    parts = pack_parts([section], partial(measure, "bytes"), 5000)
    assert [len(part.text) for part in parts] == [1666, 1666, 1666, 2]


def test_a_part_never_spans_two_chapters() -> None:
    sections = [ScriptSection("a", ("One.", "Two.")), ScriptSection("b", ("Three.",))]
    assert [(part.section, part.text) for part in pack_parts(sections, len, 100)] == [
        (0, "One. Two."),
        (1, "Three."),
    ]


@given(st.text(alphabet="ab c.!?,潮汐。，！\n“”", max_size=200), st.integers(4, 40))
def test_any_text_is_split_within_the_limit_and_nothing_is_lost(text: str, limit: int) -> None:
    spoken = clean_text(text)
    sentences = tuple(split_sentences(spoken))
    if not sentences:
        assert not any(map(is_speakable, spoken.split("\n")))
        return
    parts = pack_parts([ScriptSection("title", sentences)], lambda part: len(part.encode()), limit)
    assert all(len(part.text.encode()) <= limit for part in parts)
    assert letters("".join(part.text for part in parts)) == letters(text)


def test_the_language_is_detected() -> None:
    assert detect_language(MILLS.text) == "en"
    assert detect_language(MILLS_ZH.text) == "zh"
    assert detect_language("使用 Python 3 编写的队列，支持 Redis 和 SQLite。") == "zh"
