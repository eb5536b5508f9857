"""Runs a store method on rows in a database: load, decide, commit.

The method is an engine function that runs on the loaded rows. If a row is missing, the row is loaded and the
function runs again. The commit succeeds only if all rows that the function read are unchanged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from tidemill.clock import Entropy
from tidemill.engine.changes import Changes, collect_changes
from tidemill.engine.queries import JobById, LaneByName, NotLoaded, RowQuery, Rows, StoreCounters
from tidemill.engine.read_sets import ReadSet
from tidemill.engine.records import Records
from tidemill.engine.transaction_records import AllocatedNumbers, Workspace

T = TypeVar("T")

EngineVerb = Callable[[Records], T]


class RowSource(Protocol):
    """Access to the rows of a database store, for one try of a transaction."""

    async def load(self, queries: Mapping[RowQuery, int]) -> tuple[Rows, StoreCounters]:
        """Loads rows. Returns the answers by query, None for missing rows, and the store's counters.

        `queries`: maps each query to how many entries of a sorted list are needed; 0 means the usual
        number."""
        ...

    async def take_seqs(self, count: int) -> list[int]:
        """Allocates `count` sequence numbers that no other transaction gets."""
        ...

    async def take_fence(self) -> int:
        """Allocates a fence that is higher than all fences before."""
        ...

    async def commit(self, changes: Changes, rows: Rows) -> bool:
        """Writes all changes in one transaction and returns True. Returns False, with nothing written, if a
        row that was read has changed since. `rows` are the rows as they were loaded."""
        ...


OpenSource = Callable[[], AbstractAsyncContextManager[RowSource]]
"""Opens a try: the connection or lock that holds its reads and writes together, closed at its end."""

RetryPause = Callable[[int], Any]
"""Awaited before another try, with the number of tries so far. Raises after too many."""


async def run_verb(
    begin: OpenSource, read_set: ReadSet, verb: EngineVerb[T], entropy: Entropy, pause: RetryPause
) -> tuple[T, Changes]:
    """Runs the engine function `verb` until its changes are committed. Returns its answer and the changes.

    - `begin`: opens the row source of one try.
    - `read_set`: the rows to load first.
    - `pause`: is awaited before another try, with the number of tries so far."""
    allocated, tries = AllocatedNumbers(), 0
    while True:
        async with begin() as source:
            done = await _try_verb(source, read_set, verb, entropy, allocated)
        if done is not None:
            return done
        # Another worker may have claimed one of the jobs meanwhile, with a higher fence.
        allocated.fence = None
        tries += 1
        await pause(tries)


async def _try_verb(
    source: RowSource, read_set: ReadSet, verb: EngineVerb[T], entropy: Entropy, allocated: AllocatedNumbers
) -> tuple[T, Changes] | None:
    loader = _Loader(source, read_set)
    counters = await loader.follow(dict.fromkeys(read_set.first, 0))
    while True:
        space = Workspace(loader.rows, counters, allocated, entropy)
        try:
            answer = verb(space)
        except NotLoaded as missing:
            await loader.follow(_related_queries(missing, loader.rows))
            continue
        if await _owns_its_numbers(source, space, allocated):
            changes = collect_changes(space, loader.rows)
            return (answer, changes) if await source.commit(changes, loader.rows) else None


def _related_queries(missing: NotLoaded, rows: Rows) -> dict[RowQuery, int]:
    """Returns the missing query, and the same query for other lanes. Each has the number of keys to load."""
    query, related = missing.want, {missing.want: missing.count}
    lanes = [(of, row.jobs) for of, row in rows.items() if isinstance(of, LaneByName) and of.lane and row]
    if isinstance(query, LaneByName) and query.lane:
        for of, jobs in lanes:
            if of.queue == query.queue and not jobs.complete and len(jobs.first) < missing.count:
                related[of] = missing.count
    elif isinstance(query, JobById):
        depths = (at for _, jobs in lanes for at, key in enumerate(jobs.first, 1) if key[-1] == query.id)
        depth = 2 * next(depths, 0)
        others = (JobById(key[-1]) for _, jobs in lanes for key in jobs.first[:depth])
        related |= {other: 0 for other in others if other not in rows}
    return related


async def _owns_its_numbers(source: RowSource, space: Workspace, allocated: AllocatedNumbers) -> bool:
    """True if the sequence numbers and the fence that the function used belong to this transaction. If False,
    the function has to run again."""
    if len(space.seqs) > len(allocated.seqs):
        allocated.seqs += await source.take_seqs(len(space.seqs) - len(allocated.seqs))
    if space.fence and allocated.fence is None:
        allocated.fence = await source.take_fence()
    return space.seqs == allocated.seqs[: len(space.seqs)] and space.fence in (0, allocated.fence)


class _Loader:
    """Loads rows for one try, and keeps all rows that were loaded."""

    def __init__(self, source: RowSource, read_set: ReadSet) -> None:
        self._source, self._read_set = source, read_set
        self.rows: dict[RowQuery, Any] = {}

    async def follow(self, queries: Mapping[RowQuery, int]) -> StoreCounters:
        """Loads the rows of `queries`, and then the further rows that the read set names. Returns the store's
        counters."""
        found, counters = await self._source.load(queries)
        while found:
            self.rows.update(found)
            following = (query for known, row in found.items() for query in self._read_set.follow(known, row))
            queries = {query: 0 for query in following if query not in self.rows}
            found = (await self._source.load(queries))[0] if queries else {}
        return counters
