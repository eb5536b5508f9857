"""A sorted list of which only the beginning was looked up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from tidemill.engine.order import Key, Order
from tidemill.engine.wants import Beginning, Unloaded, Want


class Partial(Order):
    """What lies behind the last key that was looked up is not kept, and asking for it is asking the store."""

    __slots__ = ("_bound", "_looked", "_want")

    def __init__(self, beginning: Beginning, want: Want) -> None:
        super().__init__()
        self._keys = list(beginning.first)
        self._bound: Key | None = None if beginning.complete else (beginning.first or ((),))[-1]
        self._looked, self._want = len(beginning.first), want

    def __len__(self) -> int:
        if self._bound is not None:
            self._miss(2 * self._looked)
        return super().__len__()

    def __getitem__(self, at: int) -> Key:
        found = self.at(at)
        if found is None:
            raise IndexError(at)
        return found

    def add(self, key: Key) -> None:
        if not self._is_behind(key):
            super().add(key)

    def remove(self, key: Key) -> None:
        if not self._is_behind(key):
            super().remove(key)

    def head(self) -> Key | None:
        return self.at(0)

    def at(self, place: int) -> Key | None:
        known = self._keys[self._start + place : self._start + place + 1]
        if not known and self._bound is not None:
            self._miss(place + 1)
        return known[0] if known else None

    def place(self, key: Key) -> int:
        if self._is_behind(key):
            self._miss(2 * self._looked)
        return super().place(key)

    def walk(self) -> Iterator[Key]:
        yield from super().walk()
        if self._bound is not None:
            self._miss(2 * self._looked)

    def slice(self, offset: int, count: int) -> list[Key]:
        known = super().slice(offset, count)
        if len(known) < count and self._bound is not None:
            self._miss(offset + count)
        return known

    def _is_behind(self, key: Key) -> bool:
        return self._bound is not None and key > self._bound

    def _miss(self, count: int) -> NoReturn:
        """Some of those that were looked up may be gone by now: so many more are needed. And at least as many
        again, or a step that takes a thousand away, one by one, would ask a thousand times."""
        raise Unloaded(self._want, max(count, self._looked, 1) + self._looked)
