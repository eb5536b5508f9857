"""Chunks (E9): nothing is lost, none is too large, the overlap is exact, and they end where it reads well."""

# ruff: noqa: RUF001 - Chinese has its own marks

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_apps.articles.chunks import Chunking
from tidemill_apps.articles.markdown import Cleaned, cleaned
from tidemill_apps.articles.tokens import Tokens, estimated

WORDS = st.sampled_from(
    [
        "潮水",
        "磨坊。",
        "你好！",
        "什么？",
        "其一；",
        "wheel",
        "pond.",
        "it's",
        "x_1",
        "\n\n",
        "\n",
        " ",
        "…",
        "🌊",
        "「引」",
    ]
)
TEXTS = st.lists(WORDS, max_size=400).map("".join)
CHUNKING = Chunking(estimated)


def overlapping(one: str, other: str, tokens: Tokens, overlap: int) -> bool:
    """The last tokens of one are the first of the other."""
    last, first = tokens(one)[-overlap:], tokens(other)[:overlap]
    return one[last[0][0] :] == other[: first[-1][1]]


@given(TEXTS, st.integers(10, 60), st.data())
def test_whatever_the_text(text: str, size: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(1, (size - 1) // 2))
    chunks = Chunking(estimated, size, overlap).split(Cleaned(text))
    spans = estimated(text)
    assert all(len(estimated(chunk.text)) == chunk.tokens <= size for chunk in chunks)
    assert all(overlapping(one.text, other.text, estimated, overlap) for one, other in pairwise(chunks))
    told = [text[start:end] for start, end in spans]
    again = [chunk.text[start:end] for chunk in chunks[:1] for start, end in estimated(chunk.text)]
    for chunk in chunks[1:]:
        again += [chunk.text[start:end] for start, end in estimated(chunk.text)[overlap:]]
    assert again == told


@given(TEXTS)
def test_the_same_text_gives_the_same_chunks(text: str) -> None:
    assert CHUNKING.of(text) == CHUNKING.of(text)


def test_500_tokens_and_100_of_them_twice() -> None:
    chunks = CHUNKING.of("潮" * 1_300)
    assert [chunk.tokens for chunk in chunks] == [500, 500, 500]
    assert sum(chunk.tokens for chunk in chunks) == 1_300 + 2 * 100


@pytest.mark.parametrize("end", ["。", "！", "？", "；", "。”", ". ", "! ", '." '])
def test_a_chunk_ends_with_a_sentence(end: str) -> None:
    text = "字" * 399 + end + "字" * 400
    assert CHUNKING.split(Cleaned(text))[0].text == ("字" * 399 + end).strip()


def test_a_dot_inside_a_number_ends_nothing() -> None:
    text = " ".join(["3.14"] * 300)
    first = CHUNKING.split(Cleaned(text))[0]
    assert first.tokens == 500


def test_a_paragraph_goes_before_a_sentence_and_a_heading_before_a_paragraph() -> None:
    heading, paragraph, sentence = "字" * 300, "字" * 60, "字" * 60 + "。"
    text = f"{heading}\n\n# 新的一节\n\n{paragraph}\n\n{sentence}{'字' * 500}"
    assert CHUNKING.of(text)[0].text == heading
    without = f"{heading}{paragraph}\n\n{sentence}{'字' * 500}"
    assert CHUNKING.of(without)[0].text == heading + paragraph


def test_what_has_no_words_has_no_chunks() -> None:
    assert CHUNKING.of("") == CHUNKING.of(" \n\n") == CHUNKING.of("<!-- nothing -->") == []


def test_headings_are_where_they_begin() -> None:
    text = cleaned("一\n\n## 二\n\n三\n\n四\n===\n")
    assert {text.text[at] for at in text.headings} == {"二", "四"}
