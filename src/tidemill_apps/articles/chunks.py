"""A text in pieces of at most so many tokens, each beginning with the last tokens of the one before.

Pure: the same text and the same tokens give the same chunks, so that a run which is repeated finds what it
has written already. A chunk ends where it reads best: before a heading, else before a paragraph, else behind
a sentence, else where it is full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from tidemill_apps.articles.markdown import Cleaned, cleaned
from tidemill_apps.articles.tokens import Span, Tokens

_ENDS = "。！？；…"  # noqa: RUF001 - as they are written
_ENDS_WITH_SPACE = ".!?;"
_CLOSING = "”’」』）)\"'"  # noqa: RUF001 - as above


class Chunk(msgspec.Struct, frozen=True):
    text: str
    tokens: int


class Chunking(msgspec.Struct, frozen=True):
    """`overlap` tokens of a chunk are the first of the next."""

    tokens: Tokens
    size: Annotated[int, msgspec.Meta(ge=10)] = 500
    overlap: int = 100

    def of(self, markdown: str) -> list[Chunk]:
        return self.split(cleaned(markdown))

    def split(self, text: Cleaned) -> list[Chunk]:
        spans = self.tokens(text.text)
        chunks, start = [], 0
        while start < len(spans):
            end = self._end(text, spans, start)
            chunks.append(Chunk(text.text[spans[start][0] : spans[end - 1][1]], end - start))
            if end == len(spans):
                break
            start = end - self.overlap
        return chunks

    def _end(self, text: Cleaned, spans: Sequence[Span], start: int) -> int:
        """The best place in the second half of what the chunk can hold; of equal ones the last."""
        full = start + self.size
        if full >= len(spans):
            return len(spans)
        earliest = start + max(self.size // 2, self.overlap + 1)
        best, rank = full, 0
        for at in range(full, earliest - 1, -1):
            found = _rank(text, spans, at)
            if found > rank:
                best, rank = at, found
        return best


def _rank(text: Cleaned, spans: Sequence[Span], at: int) -> int:
    """How well a chunk ends before the token at that place."""
    before, begins = spans[at - 1][1], spans[at][0]
    between = text.text[before:begins]
    if "\n\n" in between:
        return 3 if begins in text.headings else 2
    return 1 if _ends_sentence(text.text, before, begins) else 0


def _ends_sentence(text: str, before: int, begins: int) -> bool:
    end = before
    while end > 0 and text[end - 1] in _CLOSING:
        end -= 1
    if end == 0:
        return False
    if text[end - 1] in _ENDS:
        return text[begins] not in _CLOSING
    return text[end - 1] in _ENDS_WITH_SPACE and begins > before
