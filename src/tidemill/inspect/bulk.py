"""Changing the jobs a filter means, however many they are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence

from msgspec.structs import replace

from tidemill.contract.store import Store
from tidemill.core.changes import Change
from tidemill.core.filters import Filter
from tidemill.core.job import Job
from tidemill.core.states import State
from tidemill.inspect.views import Changed, Count

COUNTED = 1000
"""So many of those that match are counted; reading them takes longer than passing over others."""
PAGE = 1000
CHUNK = 500
"""No step of a bulk change holds up the writer for longer than so many jobs take."""

Progress = Callable[[int], None]
"""Told how many jobs have been dealt with so far."""


async def each(store: Store, wanted: Filter) -> AsyncIterator[Job]:
    cursor: int | None = None
    while True:
        page = await store.find(wanted, PAGE, cursor)
        for job in page.jobs:
            yield job
        if page.cursor is None:
            return
        cursor = page.cursor


async def count(store: Store, wanted: Filter, looks: int | None) -> Count:
    """Queues and states are counted by the store; anything else has to be looked at."""
    if wanted == Filter(queue=wanted.queue, states=wanted.states):
        return Count(await _counted(store, wanted))
    if looks is not None:
        page = await store.find(wanted, min(looks, COUNTED), looks=looks)
        return Count(len(page.jobs), more=page.cursor is not None)
    met = 0
    async for _ in each(store, wanted):
        met += 1
    return Count(met)


async def _counted(store: Store, wanted: Filter) -> int:
    counts = await store.counts()
    queues = counts if wanted.queue is None else {wanted.queue: counts.get(wanted.queue, {})}
    states = set(State) if wanted.states is None else set(wanted.states)
    return sum(states_of.get(state, 0) for states_of in queues.values() for state in states)


async def change(store: Store, wanted: Filter, what: Change, progress: Progress | None = None) -> Changed:
    """Finds who is meant without the writer, then changes them in short steps, oldest first. Every
    step asks the filter again: a job that moved on meanwhile is not what was meant any more."""
    meant = await _meant(store, wanted)
    changed: list[str] = []
    unchanged: list[str] = []
    dealt_with = 0
    for chunk in _chunks(meant):
        amended = await store.amend(replace(wanted, ids=chunk), what, len(chunk))
        changed += amended.changed
        unchanged += amended.unchanged
        dealt_with += len(chunk)
        if progress is not None:
            progress(dealt_with)
    return Changed(
        changed=len(changed),
        unchanged=len(unchanged),
        moved=len(meant) - len(changed) - len(unchanged),
        ids=tuple(changed),
        unchanged_ids=tuple(unchanged),
    )


async def _meant(store: Store, wanted: Filter) -> list[str]:
    if wanted.ids is None:
        newest_first = [job.id async for job in each(store, wanted)]
        return newest_first[::-1]
    named = list(dict.fromkeys(wanted.ids))
    found: list[str] = []
    for chunk in _chunks(named):
        page = await store.find(replace(wanted, ids=chunk), len(chunk))
        found += (job.id for job in reversed(page.jobs))
    return found


def _chunks(ids: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for start in range(0, len(ids), CHUNK):
        yield tuple(ids[start : start + CHUNK])
