"""The loaded rows of one transaction, and dictionaries, indexes and sorted lists that read from them. Reading
a row that was not loaded raises NotLoaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

from tidemill.engine.indexes import JobIndex, KeyCounts, SortedKeys, SortKey
from tidemill.engine.queries import UNKNOWN_PREFIX, KeyPrefix, NotLoaded, RowQuery, Rows

K = TypeVar("K")
V = TypeVar("V")


class LoadedRows:
    """The rows that were loaded from the database for one transaction, by query. Calling the object with a
    query returns the row, or raises NotLoaded.

    `read`: the queries that were asked. The commit checks that their rows are unchanged."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.read: dict[RowQuery, None] = {}

    def __call__(self, query: RowQuery) -> Any:
        try:
            row = self._rows[query]
        except KeyError:
            raise NotLoaded(query) from None
        self.read[query] = None
        return row

    def knows(self, query: RowQuery) -> bool:
        return query in self._rows

    def prefix(self, query: RowQuery) -> KeyPrefix:
        """Returns the loaded keys of the sorted list that `query` names. If none were loaded, the result is
        empty and not `complete`."""
        found: KeyPrefix = self._rows.get(query, UNKNOWN_PREFIX)
        return found


class LoadedTable(dict[K, V]):
    """A dictionary that reads each value from the loaded rows at its first use.

    - `query`: returns the query for a key.
    - `build`: makes the value from a row."""

    def __init__(
        self, loaded: LoadedRows, query: Callable[[K], RowQuery], build: Callable[[K, Any], V]
    ) -> None:
        super().__init__()
        self._loaded, self._query, self._build = loaded, query, build
        self._loaded_keys: dict[K, None] = {}

    def _load_row(self, key: K) -> None:
        if key not in self._loaded_keys:
            row = self._loaded(self._query(key))
            self._loaded_keys[key] = None
            if row is not None and row != ():
                super().__setitem__(key, self._build(key, row))

    def __getitem__(self, key: K) -> V:
        self._load_row(key)
        return super().__getitem__(key)

    def __contains__(self, key: Any) -> bool:
        self._load_row(key)
        return super().__contains__(key)

    def get(self, key: K, default: Any = None) -> Any:
        self._load_row(key)
        return super().get(key, default)

    def pop(self, key: K, *default: Any) -> Any:
        self._load_row(key)
        return super().pop(key, *default)

    def setdefault(self, key: K, default: Any = None) -> Any:
        self._load_row(key)
        return super().setdefault(key, default)

    def __setitem__(self, key: K, value: V) -> None:
        """Sets a value. Raises NotLoaded if the old row was not loaded."""
        self._load_row(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: K) -> None:
        self._load_row(key)
        super().__delitem__(key)

    def write(self, key: K, value: V) -> None:
        """Sets a value without loading the old row."""
        self._loaded_keys[key] = None
        super().__setitem__(key, value)

    def assume_new(self, key: K) -> None:
        """Tells the table that the database has no row with this key, so none has to be loaded."""
        if not self._loaded.knows(self._query(key)):
            self._loaded_keys[key] = None

    def after(self) -> Iterator[tuple[K, V | None]]:
        """Yields every key that the transaction has read or written, with its current value; None if it has
        none."""
        for key in self._loaded_keys:
            yield key, super().get(key)


class WriteOnlyTable(dict[K, V]):
    """A dictionary for rows that are only written. An old row is replaced or deleted without being loaded."""

    def __init__(self) -> None:
        super().__init__()
        self._deleted: set[K] = set()

    def pop(self, key: K, default: Any = None) -> Any:
        self._deleted.add(key)
        return super().pop(key, default)

    def after(self) -> Iterator[tuple[K, V | None]]:
        yield from self.items()
        yield from ((key, None) for key in self._deleted if not super(WriteOnlyTable, self).__contains__(key))


class LoadedIndex(JobIndex[K]):
    """An index of job ids from loaded rows. Adding and removing ids needs no loaded row; reading does."""

    def __init__(self, loaded: LoadedRows, query: Callable[[K], RowQuery]) -> None:
        super().__init__()
        self._loaded, self._query = loaded, query
        self._changes: dict[K, dict[str, bool]] = {}

    def add(self, key: K, job: str) -> None:
        self._changes.setdefault(key, {})[job] = True

    def discard(self, key: K, job: str) -> None:
        self._changes.setdefault(key, {})[job] = False

    def added(self, key: K) -> bool:
        """True if this transaction added a job under the key."""
        return any(self._changes.get(key, {}).values())

    def of(self, key: K) -> list[str]:
        changes = self._changes.get(key, {})
        loaded = [job for job in self._loaded(self._query(key)) or () if changes.get(job, True)]
        return loaded + [job for job, added in changes.items() if added and job not in loaded]


class LoadedCounts(KeyCounts[K]):
    """Counts by key from loaded rows. Changing a count needs no loaded row; only reading does."""

    def __init__(self, loaded: LoadedRows, query: Callable[[K], RowQuery]) -> None:
        super().__init__()
        self._loaded, self._query = loaded, query

    def of(self, key: K) -> int:
        return int(self._loaded(self._query(key)) or 0) + super().of(key)


class PrefixKeys(SortedKeys):
    """The first keys of a sorted list; only these are loaded from the database. Reading beyond the last
    loaded key raises NotLoaded. Adding a key after the last loaded key has no effect."""

    __slots__ = ("_bound", "_loaded_count", "_query")

    def __init__(self, prefix: KeyPrefix, query: RowQuery) -> None:
        super().__init__()
        self._keys = list(prefix.first)
        self._bound: SortKey | None = None if prefix.complete else (prefix.first or ((),))[-1]
        self._loaded_count, self._query = len(prefix.first), query

    def __len__(self) -> int:
        if self._bound is not None:
            self._miss(2 * self._loaded_count)
        return super().__len__()

    def __getitem__(self, at: int) -> SortKey:
        found = self.at(at)
        if found is None:
            raise IndexError(at)
        return found

    def add(self, key: SortKey) -> None:
        if not self._is_behind(key):
            super().add(key)

    def remove(self, key: SortKey) -> None:
        if not self._is_behind(key):
            super().remove(key)

    def head(self) -> SortKey | None:
        return self.at(0)

    def at(self, position: int) -> SortKey | None:
        keys = self._keys[self._start + position : self._start + position + 1]
        if not keys and self._bound is not None:
            self._miss(position + 1)
        return keys[0] if keys else None

    def position(self, key: SortKey) -> int:
        if self._is_behind(key):
            self._miss(2 * self._loaded_count)
        return super().position(key)

    def walk(self) -> Iterator[SortKey]:
        yield from super().walk()
        if self._bound is not None:
            self._miss(2 * self._loaded_count)

    def slice(self, offset: int, count: int) -> list[SortKey]:
        keys = super().slice(offset, count)
        if len(keys) < count and self._bound is not None:
            self._miss(offset + count)
        return keys

    def _is_behind(self, key: SortKey) -> bool:
        return self._bound is not None and key > self._bound

    def _miss(self, count: int) -> NoReturn:
        """Raises NotLoaded to ask for at least `count` keys of the list."""
        raise NotLoaded(self._query, max(count, self._loaded_count, 1) + self._loaded_count)
