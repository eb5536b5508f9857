"""Splits a text into chunks of tokens, and packs chunks into provider calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec

from tidemill import ConfigurationError
from tidemill_apps.articles.markdown import PlainText, clean_markdown

if TYPE_CHECKING:
    from tokenizers import Tokenizer


TokenSpan = tuple[int, int]
TokenizerFunction = Callable[[str], list[TokenSpan]]
"""Returns the start and end offset of each token. White space between words belongs to no token."""

_CJK = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
_TOKEN_PATTERN = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]{{1,4}}|[^\s]")


def estimate_tokens(text: str) -> list[TokenSpan]:
    return [match.span() for match in _TOKEN_PATTERN.finditer(text)]


def load_tokenizer(path: str) -> TokenizerFunction:
    """Returns a function that splits a text into tokens. The file `path` (a tokenizer.json) defines the
    tokens. If `path` is empty, the function estimates them."""
    return partial(_count_tokens, _read_tokenizer(path)) if path else estimate_tokens


def _count_tokens(tokenizer: Tokenizer, text: str) -> list[TokenSpan]:
    """Returns the start and end offset of each token in the text. Special tokens, which cover no text, are
    left out."""
    offsets = tokenizer.encode(text, add_special_tokens=False).offsets
    return [(start, end) for start, end in offsets if end > start]


def _read_tokenizer(path: str) -> Tokenizer:
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


_SENTENCE_ENDS = "。！？；…"  # noqa: RUF001 - as they are written
_SENTENCE_ENDS_WITH_SPACE = ".!?;"
_CLOSING_QUOTES = "”’」』）)\"'"  # noqa: RUF001 - as above


class TextChunk(msgspec.Struct, frozen=True):
    text: str
    tokens: int


class Chunker(msgspec.Struct, frozen=True):
    """Splits a text into chunks of at most `size` tokens. Each chunk starts with the last `overlap` tokens of
    the chunk before it. `tokens` is the function that finds the tokens."""

    tokens: TokenizerFunction
    size: Annotated[int, msgspec.Meta(ge=10)] = 500
    overlap: int = 100

    def split_markdown(self, markdown: str) -> list[TextChunk]:
        return self.split(clean_markdown(markdown))

    def split(self, text: PlainText) -> list[TextChunk]:
        spans = self.tokens(text.text)
        chunks, start = [], 0
        while start < len(spans):
            end = self._end(text, spans, start)
            chunks.append(TextChunk(text.text[spans[start][0] : spans[end - 1][1]], end - start))
            if end == len(spans):
                break
            start = end - self.overlap
        return chunks

    def _end(self, text: PlainText, spans: Sequence[TokenSpan], start: int) -> int:
        """Returns the index of the first token after the chunk that begins at token `start`. A chunk that is
        not the last one ends at the best boundary in its second half, such as the end of a paragraph."""
        full = start + self.size
        if full >= len(spans):
            return len(spans)
        earliest = start + max(self.size // 2, self.overlap + 1)
        best, rank = full, 0
        for at in range(full, earliest - 1, -1):
            found = _rank_boundary(text, spans, at)
            if found > rank:
                best, rank = at, found
        return best


def _rank_boundary(text: PlainText, spans: Sequence[TokenSpan], at: int) -> int:
    """Returns how good a boundary before the token `at` is: 3 before a heading, 2 after a paragraph, 1 after
    a sentence, otherwise 0."""
    before, begins = spans[at - 1][1], spans[at][0]
    between = text.text[before:begins]
    if "\n\n" in between:
        return 3 if begins in text.headings else 2
    return 1 if _ends_sentence(text.text, before, begins) else 0


def _ends_sentence(text: str, before: int, begins: int) -> bool:
    end = before
    while end > 0 and text[end - 1] in _CLOSING_QUOTES:
        end -= 1
    if end == 0:
        return False
    if text[end - 1] in _SENTENCE_ENDS:
        return text[begins] not in _CLOSING_QUOTES
    return text[end - 1] in _SENTENCE_ENDS_WITH_SPACE and begins > before


ItemT = TypeVar("ItemT")


class CallPacker(msgspec.Struct, frozen=True):
    """Distributes chunks over provider calls. A call has at most `inputs` texts and `tokens` tokens."""

    chunker: Chunker
    inputs: int
    tokens: int

    def cost(self, content: str) -> dict[str, float]:
        """Returns how many texts (`inputs`) and tokens an article with the text `content` adds to a shared
        provider call. For an article that needs several calls, only its last call counts."""
        calls = list(self.calls(self.chunker.split_markdown(content), lambda chunk: chunk.tokens))
        last: Sequence[TextChunk] = calls[-1] if calls else ()
        return {"inputs": len(last), "tokens": sum(chunk.tokens for chunk in last)}

    def calls(self, items: Sequence[ItemT], size: Callable[[ItemT], int]) -> Iterator[list[ItemT]]:
        """Yields one list of items per provider call, in the order of `items`. A list ends when the next item
        would exceed the limits. `size` returns the tokens of an item."""
        call: list[ItemT] = []
        held = 0
        for item in items:
            tokens = size(item)
            if call and (len(call) == self.inputs or held + tokens > self.tokens):
                yield call
                call, held = [], 0
            call.append(item)
            held += tokens
        if call:
            yield call
