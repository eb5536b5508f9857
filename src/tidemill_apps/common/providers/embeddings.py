"""Vectors of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from tidemill_apps.common.providers.calls import AnswerUnusable


class Embedded(msgspec.Struct, frozen=True):
    """`vectors` are in the order of the texts; None where the provider gave none. `response` is for
    `ctx.used(…)`."""

    vectors: list[list[float] | None]
    response: object


class Embeddings(Protocol):
    async def embed(self, texts: Sequence[str], *, mark: str) -> Embedded:
        """One call, paid for; see `Chat.complete`."""

    async def close(self) -> None:
        """Connections of this event loop. It may be used again."""


def checked(
    vectors: list[list[float] | None], dimensions: int | None, response: object
) -> list[list[float] | None]:
    """All of one length, and of the one that was asked for. An empty one is none."""
    found = [vector or None for vector in vectors]
    lengths = {len(vector) for vector in found if vector is not None}
    if dimensions is not None and lengths - {dimensions}:
        raise AnswerUnusable(f"vectors have {_listed(lengths)} dimensions, expected {dimensions}", response)
    if len(lengths) > 1:
        raise AnswerUnusable(f"vectors of one answer have {_listed(lengths)} dimensions", response)
    return found


def _listed(lengths: set[int]) -> str:
    return " and ".join(map(str, sorted(lengths)))
