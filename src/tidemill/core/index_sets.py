"""Which jobs of a step: a set of small numbers, kept as one integer, ten thousand in 2.5 kB of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Self


class IndexSet:
    __slots__ = ("_bits",)

    def __init__(self, bits: int = 0) -> None:
        self._bits = bits

    @classmethod
    def of(cls, indexes: Iterable[int]) -> Self:
        bits = 0
        for index in indexes:
            bits |= 1 << index
        return cls(bits)

    @classmethod
    def below(cls, count: int) -> Self:
        return cls((1 << count) - 1)

    @classmethod
    def from_text(cls, text: str) -> Self:
        return cls(int(text or "0", 16))

    def as_text(self) -> str:
        return f"{self._bits:x}" if self._bits else ""

    def __or__(self, other: IndexSet) -> IndexSet:
        return IndexSet(self._bits | other._bits)

    def __and__(self, other: IndexSet) -> IndexSet:
        return IndexSet(self._bits & other._bits)

    def __sub__(self, other: IndexSet) -> IndexSet:
        return IndexSet(self._bits & ~other._bits)

    def __contains__(self, index: int) -> bool:
        return bool(self._bits >> index & 1)

    def __iter__(self) -> Iterator[int]:
        """By way of text: one that looked for the next bit each time would go over all of them each time."""
        digits = f"{self._bits:b}"[::-1]
        index = digits.find("1")
        while index >= 0:
            yield index
            index = digits.find("1", index + 1)

    def __len__(self) -> int:
        return self._bits.bit_count()

    def __bool__(self) -> bool:
        return self._bits != 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IndexSet) and self._bits == other._bits

    def __hash__(self) -> int:
        return hash(self._bits)

    def __repr__(self) -> str:
        return f"IndexSet.of({list(self)})"


NONE = IndexSet()


def to_json(value: Any) -> str:
    """For msgspec, as its `enc_hook`."""
    if isinstance(value, IndexSet):
        return value.as_text()
    raise TypeError(f"objects of type {type(value).__name__} are not data")


def from_json(wanted: type, value: Any) -> Any:
    """For msgspec, as its `dec_hook`."""
    if wanted is IndexSet:
        return IndexSet.from_text(value)
    raise TypeError(f"objects of type {wanted.__name__} are not data")
