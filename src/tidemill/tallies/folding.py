"""Tallies of processes that are gone, added up into one record.

    seal the tally     its process can write it no more
    add it to the sum  which names it, so that nobody counts it twice
    forget it          its name leaves the sum a round later, when no reader has it in hand any more

Whoever does this may stop at any point, and two may do it at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.contract.store import Store
from tidemill.core.courses import Course
from tidemill.tallies.families import Counted, added
from tidemill.tallies.records import SEALED, SUM, TALLY, Sum, counted_in, every_tally, forget, get, put, write

FOLD_EVERY = 600.0
"""Seconds. A tally that did not change in as long is folded; nobody needs to know whether its process is
gone."""


async def counted(store: Store) -> dict[str, Counted]:
    """Everything that was told, whoever told it. The sum is read last: what is folded meanwhile is in it and
    named there."""
    tallies = [course async for course in every_tally(store)]
    _, total = await get(store, SUM, Sum)
    fresh = [counted_in(course) for course in tallies if course.id not in total.folded]
    return added(*fresh, total.counted)


class Folding:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: dict[str, int] = {}

    async def fold(self) -> None:
        tallies = [course async for course in every_tally(self._store)]
        sealed = [
            course
            for course in tallies
            if course.state == SEALED or await self._seal(course, self._seen.get(course.id))
        ]
        self._seen = {course.id: course.revision for course in tallies}
        if await self._add(sealed, {course.id for course in tallies}):
            for course in [course async for course in every_tally(self._store) if course.state == SEALED]:
                await self._forget_if_added(course)

    async def _seal(self, course: Course, seen: int | None) -> bool:
        if seen != course.revision:
            return False
        sealed = await write(
            self._store, course.id, course.revision, name=TALLY, state=SEALED, record=course.record
        )
        return sealed.done

    async def _add(self, sealed: Sequence[Course], there: set[str]) -> bool:
        revision, total = await get(self._store, SUM, Sum)
        fresh = [course for course in sealed if course.id not in total.folded]
        named = tuple(id_ for id_ in total.folded if id_ in there)
        if not fresh and named == total.folded:
            return bool(named)
        then = Sum(
            tuple(added(*map(counted_in, fresh), total.counted).values()),
            (*named, *(course.id for course in fresh)),
        )
        return await put(self._store, SUM, revision, then)

    async def _forget_if_added(self, course: Course) -> None:
        _, total = await get(self._store, SUM, Sum)
        if course.id in total.folded:
            await forget(self._store, course)
