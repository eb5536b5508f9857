"""Chunks in calls: as few calls as the provider's limits for one allow.

An article larger than a call is several: what is left when its full calls are taken out is what it shares
with others, so that no call is half empty because of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from tidemill_apps.articles.chunks import Chunk, Chunking

T = TypeVar("T")


class Packing(msgspec.Struct, frozen=True):
    """A call takes so many inputs, and so many tokens of them together."""

    chunking: Chunking
    inputs: int
    tokens: int

    def cost(self, content: str) -> dict[str, float]:
        """What an article adds to the call that it shares."""
        calls = list(self.calls(self.chunking.of(content), lambda chunk: chunk.tokens))
        last: Sequence[Chunk] = calls[-1] if calls else ()
        return {"inputs": len(last), "tokens": sum(chunk.tokens for chunk in last)}

    def calls(self, items: Sequence[T], size: Callable[[T], int]) -> Iterator[list[T]]:
        """In their order, each call as full as it can be."""
        call: list[T] = []
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
