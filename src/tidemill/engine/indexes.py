"""Data structures in memory: sorted keys, indexes of job ids, and counts by key."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice
from typing import Any, Generic, TypeVar

K = TypeVar("K")


class JobIndex(Generic[K]):
    """An index from a key to the ids of jobs, in the order in which the ids were added."""

    def __init__(self) -> None:
        self._ids: dict[K, dict[str, None]] = {}

    def add(self, key: K, job: str) -> None:
        self._ids.setdefault(key, {})[job] = None

    def discard(self, key: K, job: str) -> None:
        ids = self._ids.get(key)
        if ids is not None:
            ids.pop(job, None)
            if not ids:
                del self._ids[key]

    def of(self, key: K) -> list[str]:
        return list(self._ids.get(key, ()))

    def keys(self) -> list[K]:
        return list(self._ids)

    def every(self) -> Iterator[str]:
        for ids in self._ids.values():
            yield from ids


class KeyCounts(Generic[K]):
    """A count for each key; 0 for an unknown key."""

    def __init__(self) -> None:
        self._counts: dict[K, int] = {}

    def change(self, key: K, by: int) -> None:
        count = self._counts.get(key, 0) + by
        if count:
            self._counts[key] = count
        else:
            self._counts.pop(key, None)

    def of(self, key: K) -> int:
        return self._counts.get(key, 0)

    def items(self) -> list[tuple[K, int]]:
        return list(self._counts.items())


SortKey = tuple[Any, ...]
"""The values to sort by, ending with a job's seq and id."""

_SLACK = 64


class SortedKeys:
    """A sorted list of keys. Removing the first key only moves an offset, so emptying a long list costs
    constant time per key."""

    __slots__ = ("_keys", "_start")

    def __init__(self) -> None:
        self._keys: list[SortKey] = []
        self._start = 0

    def __len__(self) -> int:
        return len(self._keys) - self._start

    def __getitem__(self, at: int) -> SortKey:
        return self._keys[self._start + at if at >= 0 else at]

    def add(self, key: SortKey) -> None:
        insort(self._keys, key, lo=self._start)

    def remove(self, key: SortKey) -> None:
        at = bisect_left(self._keys, key, lo=self._start)
        if at != self._start:
            del self._keys[at]
            return
        self._start += 1
        if self._start > _SLACK and self._start * 2 > len(self._keys):
            del self._keys[: self._start]
            self._start = 0

    def head(self) -> SortKey | None:
        return self._keys[self._start] if self._start < len(self._keys) else None

    def at(self, position: int) -> SortKey | None:
        return self._keys[self._start + position] if position < len(self) else None

    def position(self, key: SortKey) -> int:
        """Returns the position of a key: how many keys in the list are smaller."""
        return bisect_left(self._keys, key, lo=self._start) - self._start

    def walk(self) -> Iterator[SortKey]:
        """Iterates over the keys in order. The list must not change meanwhile."""
        return islice(self._keys, self._start, None)

    def slice(self, offset: int, count: int) -> list[SortKey]:
        begin = self._start + offset
        return self._keys[begin : begin + count]
