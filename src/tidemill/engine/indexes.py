"""Which jobs belong to something, and how many of something there are.

Kept apart from what they are asked for: whoever files a job does not have to know who else is filed there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K")


class Index(Generic[K]):
    """Ids of jobs by what they have in common, in the order they came."""

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


class Tally(Generic[K]):
    """How many there are of each."""

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
