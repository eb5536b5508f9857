"""A sorted list that is mostly read and shortened at its front."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice
from typing import Any

Key = tuple[Any, ...]
"""What it is sorted by, ending in a job's seq and id."""

_SLACK = 64


class Order:
    """Removing the head moves a mark instead of the list: a long queue drains at a flat cost."""

    __slots__ = ("_keys", "_start")

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._start = 0

    def __len__(self) -> int:
        return len(self._keys) - self._start

    def __getitem__(self, at: int) -> Key:
        return self._keys[self._start + at if at >= 0 else at]

    def add(self, key: Key) -> None:
        insort(self._keys, key, lo=self._start)

    def remove(self, key: Key) -> None:
        at = bisect_left(self._keys, key, lo=self._start)
        if at != self._start:
            del self._keys[at]
            return
        self._start += 1
        if self._start > _SLACK and self._start * 2 > len(self._keys):
            del self._keys[: self._start]
            self._start = 0

    def head(self) -> Key | None:
        return self._keys[self._start] if self._start < len(self._keys) else None

    def at(self, place: int) -> Key | None:
        return self._keys[self._start + place] if place < len(self) else None

    def place(self, key: Key) -> int:
        """How many stand before the key."""
        return bisect_left(self._keys, key, lo=self._start) - self._start

    def walk(self) -> Iterator[Key]:
        """From the head on; nothing may change meanwhile."""
        return islice(self._keys, self._start, None)

    def slice(self, offset: int, count: int) -> list[Key]:
        begin = self._start + offset
        return self._keys[begin : begin + count]
