"""A verb on rows that live elsewhere: look, decide, commit.

The verb itself is the engine's and knows nothing of it. It runs on what was looked up; when it wants to know
more, that is looked up and it runs again from the beginning, which costs nothing but time: nothing was
written. What it decided is written in one step, if all it rests on is still so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from tidemill.clock import Entropy
from tidemill.engine.changes import Changes, changes_of
from tidemill.engine.plans import Plan
from tidemill.engine.records import Records
from tidemill.engine.wants import JobOf, LaneOf, Numbers, Rows, Unloaded, Want
from tidemill.engine.workspace import Taken, Workspace

T = TypeVar("T")

Verb = Callable[[Records], T]


class Source(Protocol):
    """Where the rows live, for the length of one try."""

    async def look(self, wanted: Mapping[Want, int]) -> tuple[Rows, Numbers]:
        """Each want with how many of a beginning are needed, 0 for as many as usual. Answers at least
        those, None for what is not there."""
        ...

    async def take_seqs(self, count: int) -> list[int]:
        """Places in line that nobody else is given."""
        ...

    async def take_fence(self) -> int:
        """Higher than all before."""
        ...

    async def commit(self, changes: Changes, rows: Rows) -> bool:
        """Write all of it in one step; False, and nothing is written, when a row that was read is not what
        it was. `rows` are those that were looked up."""
        ...


Begin = Callable[[], AbstractAsyncContextManager[Source]]
"""A try begins: whatever holds together what it reads and writes is opened, and closed when it ends."""

Pause = Callable[[int], Any]
"""Awaited before another try, with the number of tries so far. Raises when there were too many."""


async def run(begin: Begin, plan: Plan, verb: Verb[T], entropy: Entropy, pause: Pause) -> tuple[T, Changes]:
    """What the verb answered, and what it changed."""
    taken, tries = Taken(), 0
    while True:
        async with begin() as source:
            done = await _try(source, plan, verb, entropy, taken)
        if done is not None:
            return done
        taken.fence = None  # a job it takes now may have been claimed meanwhile, with a higher one
        tries += 1
        await pause(tries)


async def _try(
    source: Source, plan: Plan, verb: Verb[T], entropy: Entropy, taken: Taken
) -> tuple[T, Changes] | None:
    look = _Look(source, plan)
    numbers = await look.follow(dict.fromkeys(plan.first, 0))
    while True:
        space = Workspace(look.rows, numbers, taken, entropy)
        try:
            answer = verb(space)
        except Unloaded as missing:
            await look.follow(_missed_with(missing, look.rows))
            continue
        if await _has_its_numbers(source, space, taken):
            changes = changes_of(space, look.rows)
            return (answer, changes) if await source.commit(changes, look.rows) else None


def _missed_with(missing: Unloaded, rows: Rows) -> dict[Want, int]:
    """What is missed of one lane is soon missed of the next: it is asked for together, or a claim from many
    lanes would ask, and run again, for each of their jobs."""
    want, missed = missing.want, {missing.want: missing.count}
    lanes = [(of, row.jobs) for of, row in rows.items() if isinstance(of, LaneOf) and of.lane and row]
    if isinstance(want, LaneOf) and want.lane:
        for of, jobs in lanes:
            if of.queue == want.queue and not jobs.complete and len(jobs.first) < missing.count:
                missed[of] = missing.count
    elif isinstance(want, JobOf):
        places = (at for _, jobs in lanes for at, key in enumerate(jobs.first, 1) if key[-1] == want.id)
        depth = 2 * next(places, 0)
        others = (JobOf(key[-1]) for _, jobs in lanes for key in jobs.first[:depth])
        missed |= {other: 0 for other in others if other not in rows}
    return missed


async def _has_its_numbers(source: Source, space: Workspace, taken: Taken) -> bool:
    """Whether the store gives the step the numbers it has reckoned with. If not, it runs again with those it
    was given."""
    if len(space.seqs) > len(taken.seqs):
        taken.seqs += await source.take_seqs(len(space.seqs) - len(taken.seqs))
    if space.fence and taken.fence is None:
        taken.fence = await source.take_fence()
    return space.seqs == taken.seqs[: len(space.seqs)] and space.fence in (0, taken.fence)


class _Look:
    """All that was looked up in this try."""

    def __init__(self, source: Source, plan: Plan) -> None:
        self._source, self._plan = source, plan
        self.rows: dict[Want, Any] = {}

    async def follow(self, wanted: Mapping[Want, int]) -> Numbers:
        """Those, and all that follows from them. Answers the clocks of the first look."""
        found, numbers = await self._source.look(wanted)
        while found:
            self.rows.update(found)
            following = (want for known, row in found.items() for want in self._plan.follow(known, row))
            wanted = {want: 0 for want in following if want not in self.rows}
            found = (await self._source.look(wanted))[0] if wanted else {}
        return numbers
