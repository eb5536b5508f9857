"""Vectors of texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Protocol

import msgspec

from tidemill_apps.common.providers.calls import AnswerUnusable


class Embedded(msgspec.Struct, frozen=True):
    """`vectors` are in the order of the texts; None where the provider gave none. `response` is for
    `ctx.used(…)`."""

    vectors: list[list[float] | None]
    response: object


class Embeddings(Protocol):
    @property
    def dimensions(self) -> int | None:
        """The length of every vector, if the account names one."""

    async def embed(self, texts: Sequence[str], *, mark: str) -> Embedded:
        """One call, paid for; see `Chat.complete`."""

    async def close(self) -> None:
        """Connections of this event loop. It may be used again."""


def checked(
    vectors: list[list[float] | None], dimensions: int | None, response: object
) -> list[list[float] | None]:
    """None for a vector that is empty, of zeros, not finite, or of another length than was asked for or than
    most others of the answer have: the rest is paid for and can be used."""
    found = [vector if vector and any(vector) and all(map(isfinite, vector)) else None for vector in vectors]
    lengths = Counter(len(vector) for vector in found if vector is not None)
    if not lengths:
        return found
    [(size, times)] = lengths.most_common(1)
    if dimensions is not None and dimensions not in lengths:
        raise AnswerUnusable(f"vectors have {_listed(lengths)} dimensions, expected {dimensions}", response)
    if dimensions is None and 2 * times <= lengths.total():
        raise AnswerUnusable(f"vectors of one answer have {_listed(lengths)} dimensions", response)
    size = dimensions or size
    return [vector if vector is not None and len(vector) == size else None for vector in found]


def _listed(lengths: Iterable[int]) -> str:
    return " and ".join(map(str, sorted(lengths)))
