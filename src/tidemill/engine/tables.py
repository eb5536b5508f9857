"""Rows that were looked up, as the dictionaries the verbs work with.

Whoever asks for a row that was not looked up is told so (`Unloaded`), and the step begins anew when it is
there. What a verb only adds to is never looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tidemill.engine.indexes import Index, Tally
from tidemill.engine.wants import UNKNOWN, Beginning, Rows, Unloaded, Want

K = TypeVar("K")
V = TypeVar("V")


class Looked:
    """The rows of one step, and which of them it read."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.read: dict[Want, None] = {}

    def __call__(self, want: Want) -> Any:
        try:
            row = self._rows[want]
        except KeyError:
            raise Unloaded(want) from None
        self.read[want] = None
        return row

    def knows(self, want: Want) -> bool:
        return want in self._rows

    def beginning(self, want: Want) -> Beginning:
        """Of an order; nothing of it where it was not looked up."""
        found: Beginning = self._rows.get(want, UNKNOWN)
        return found


class Table(dict[K, V]):
    """`want` names the row of a key, `made` makes a value of it that may be changed."""

    def __init__(self, looked: Looked, want: Callable[[K], Want], made: Callable[[K, Any], V]) -> None:
        super().__init__()
        self._looked, self._want, self._made = looked, want, made
        self._seen: dict[K, None] = {}

    def _see(self, key: K) -> None:
        if key not in self._seen:
            row = self._looked(self._want(key))
            self._seen[key] = None
            if row is not None and row != ():
                super().__setitem__(key, self._made(key, row))

    def __getitem__(self, key: K) -> V:
        self._see(key)
        return super().__getitem__(key)

    def __contains__(self, key: Any) -> bool:
        self._see(key)
        return super().__contains__(key)

    def get(self, key: K, default: Any = None) -> Any:
        self._see(key)
        return super().get(key, default)

    def pop(self, key: K, *default: Any) -> Any:
        self._see(key)
        return super().pop(key, *default)

    def setdefault(self, key: K, default: Any = None) -> Any:
        self._see(key)
        return super().setdefault(key, default)

    def __setitem__(self, key: K, value: V) -> None:
        """The row that was there is looked up too: whoever writes over it must know it."""
        self._see(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: K) -> None:
        self._see(key)
        super().__delitem__(key)

    def write(self, key: K, value: V) -> None:
        """Whatever was there."""
        self._seen[key] = None
        super().__setitem__(key, value)

    def is_new(self, key: K) -> None:
        """There cannot be such a row, unless it was looked up."""
        if not self._looked.knows(self._want(key)):
            self._seen[key] = None

    def after(self) -> Iterator[tuple[K, V | None]]:
        """Every row that was asked for or written, as it is now."""
        for key in self._seen:
            yield key, super().get(key)


class Written(dict[K, V]):
    """Rows that are only written: whatever was there is replaced, or goes."""

    def __init__(self) -> None:
        super().__init__()
        self._gone: set[K] = set()

    def pop(self, key: K, default: Any = None) -> Any:
        self._gone.add(key)
        return super().pop(key, default)

    def after(self) -> Iterator[tuple[K, V | None]]:
        yield from self.items()
        yield from ((key, None) for key in self._gone if not super(Written, self).__contains__(key))


class LookedIndex(Index[K]):
    """What is filed or taken out is kept apart, until somebody asks who is there."""

    def __init__(self, looked: Looked, want: Callable[[K], Want]) -> None:
        super().__init__()
        self._looked, self._want = looked, want
        self._changes: dict[K, dict[str, bool]] = {}

    def add(self, key: K, job: str) -> None:
        self._changes.setdefault(key, {})[job] = True

    def discard(self, key: K, job: str) -> None:
        self._changes.setdefault(key, {})[job] = False

    def added(self, key: K) -> bool:
        """Whether this step has filed somebody there."""
        return any(self._changes.get(key, {}).values())

    def of(self, key: K) -> list[str]:
        changes = self._changes.get(key, {})
        known = [job for job in self._looked(self._want(key)) or () if changes.get(job, True)]
        return known + [job for job, added in changes.items() if added and job not in known]


class LookedTally(Tally[K]):
    """Counts changes, until somebody asks how many there are."""

    def __init__(self, looked: Looked, want: Callable[[K], Want]) -> None:
        super().__init__()
        self._looked, self._want = looked, want

    def of(self, key: K) -> int:
        return int(self._looked(self._want(key)) or 0) + super().of(key)
