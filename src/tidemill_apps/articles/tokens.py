"""Where the tokens of a text begin and end.

An embeddings API counts tokens of its own model. With the model's `tokenizer.json` they are counted as it
does; without one they are estimated: one for a Chinese, Japanese or Korean character, one for up to four
letters or digits, one for any other mark."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill import ConfigurationError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Span = tuple[int, int]
Tokens = Callable[[str], list[Span]]
"""The tokens of a text as places in it, from the first to the last. Space between words is nobody's."""

_CJK = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
_PIECES = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]{{1,4}}|[^\s]")


def estimated(text: str) -> list[Span]:
    return [match.span() for match in _PIECES.finditer(text)]


def tokens_by(path: str) -> Tokens:
    """By the tokenizer in that file, or estimated when there is none."""
    return partial(_counted, _loaded(path)) if path else estimated


def _counted(tokenizer: Tokenizer, text: str) -> list[Span]:
    """A character that takes several tokens is one place several times; a mark without a place is none."""
    offsets = tokenizer.encode(text, add_special_tokens=False).offsets
    return [(start, end) for start, end in offsets if end > start]


def _loaded(path: str) -> Tokenizer:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ConfigurationError(
            "ARTICLES_TOKENIZER: the package tokenizers is not installed; install it with: "
            "pip install 'tidemill[tokenizers]', or leave the variable out"
        ) from None
    if not Path(path).is_file():
        raise ConfigurationError(
            f"ARTICLES_TOKENIZER: there is no file {path}; give the path of a tokenizer.json"
        )
    try:
        made = Tokenizer.from_file(path)
    except Exception as error:
        raise ConfigurationError(
            f"ARTICLES_TOKENIZER: {path} is not a tokenizer.json ({error}); give the one of the model"
        ) from error
    made.no_truncation()
    made.no_padding()
    return made
