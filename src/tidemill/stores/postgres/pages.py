"""find, where so many jobs may be looked at and no more: a page takes no longer the more jobs there are.

Where the filter means few of all jobs (the counts know), the indexes of their states give the places to look
at; else the table is read in its order. Either way it is counted off first where the search ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tidemill.contract.reader import Page
from tidemill.core.filters import Filter, checked
from tidemill.core.job import Job
from tidemill.core.states import FINAL, State
from tidemill.stores.postgres.columns import words
from tidemill.stores.postgres.connection import Connection
from tidemill.stores.postgres.find import Condition, search
from tidemill.stores.postgres.statements import load
from tidemill.stores.postgres.step import Step

SQL, COUNTS = load("pages"), load("reader").counts
_PIECES = dict(SQL)

FEW = 0.25
"""Of all jobs: so many places are gathered as fast as the table is read."""
GATHERED = 250_000
"""More are not gathered while somebody waits: of places that stand in an index together ..."""
GATHERED_APART = 20_000
"""... and of those whose rows are looked up one by one."""
NEWEST = 1000
"""Before anything else so many of the newest are looked at: often they fill the page."""

_IN_AN_INDEX = ("id_prefix", "flow", "queue", "states")


class Source(msgspec.Struct, frozen=True):
    """Where the jobs to be looked at come from: statements that give their places in no order, each with the
    conditions that stand behind it; none for the whole table."""

    places: tuple[tuple[str, tuple[Condition, ...]], ...] = ()


class Question:
    """A statement in the making, with the values it asks for."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def ask(self, piece: str, value: object) -> str:
        self.values.append(value)
        return piece.format(f"${len(self.values)}")

    def places(self, source: Source, before: int | None) -> str:
        bounds = [] if before is None else [(SQL.before, before)]
        return "\nUNION ALL ".join(
            "\nAND ".join((statement, *(self.ask(*condition) for condition in (*conditions, *bounds))))
            for statement, conditions in source.places
        )


async def find(connection: Connection, wanted: Filter, limit: int, cursor: int | None, looks: int) -> Page:
    """R2, R11."""
    checked(wanted)

    async def read(step: Step) -> Page:
        await step.fetch(SQL.plan_for_indexes)
        return await _find(step, wanted, limit, cursor, looks)

    return await connection.run(read)


async def _find(step: Step, wanted: Filter, limit: int, cursor: int | None, looks: int) -> Page:
    page = await _of_all(step, wanted, limit, cursor, min(NEWEST, looks))
    if not page.partial:
        return page
    source = await _source(step, wanted)
    if source is None:
        return Page((), None)
    if not source.places:
        return await _of_all(step, wanted, limit, cursor, looks)
    return await _of_places(
        step, source, wanted, limit, cursor, looks if _looks_closer(wanted) else limit + 1
    )


async def _of_all(step: Step, wanted: Filter, limit: int, before: int | None, looks: int) -> Page:
    if wanted.ids is not None:
        return _page(await _found(step, wanted, limit, before), limit, None)
    question = Question()
    meant = "true" if before is None else question.ask(SQL.before, before)
    floor = await step.value(SQL.next_of_all.format(meant, looks), *question.values)
    within = () if floor is None else ((SQL.behind, floor),)
    return _page(await _found(step, wanted, limit, before, *within), limit, floor)


async def _of_places(  # noqa: PLR0917 - what find was asked
    step: Step, source: Source, wanted: Filter, limit: int, before: int | None, looks: int
) -> Page:
    question = Question()
    statement = SQL.newest_places.format(question.places(source, before), looks + 1)
    places = [seq for (seq,) in await step.fetch(statement, *question.values)]
    floor = places[looks] if len(places) > looks else None
    there = (SQL.at, words(places[:looks]))
    return _page(await _found(step, wanted, limit, before, there), limit, floor)


async def _found(step: Step, wanted: Filter, limit: int, before: int | None, *within: Condition) -> list[Job]:
    """One more than fit on the page, if there are."""
    found: list[Job] = []
    async for job in search(
        step.fetch, wanted, newest_first=True, limit=limit + 1, before=before, within=within
    ):
        found.append(job)
        if len(found) > limit:
            break
    return found


def _page(found: list[Job], limit: int, floor: int | None) -> Page:
    """`floor` is the place of the first job that was not looked at any more, None when all were."""
    page = tuple(found[:limit])
    if len(found) > limit:
        return Page(page, page[-1].seq if page else None)
    return Page(page, None) if floor is None else Page(page, floor + 1, partial=len(page) < limit)


async def _source(step: Step, wanted: Filter) -> Source | None:
    """None when no job can be meant."""
    if wanted.flow is not None:
        return Source(((SQL.jobs, ((SQL.flow, wanted.flow),)),))
    if wanted.id_prefix is not None:
        source = Source(((SQL.jobs, ((SQL.begins, wanted.id_prefix),)),))
        return Source() if await _are_many(step, source) else source
    states = frozenset(State if wanted.states is None else wanted.states)
    by_end = wanted.time == "finished" and (wanted.since is not None or wanted.until is not None)
    states &= FINAL if by_end else states
    if not states:
        return None
    source = Source(tuple(_places(wanted, states)))
    if by_end:
        return Source() if await _are_many(step, source) else source
    return source if await _are_few(step, wanted, states) else Source()


async def _are_many(step: Step, source: Source) -> bool:
    question = Question()
    statement = SQL.many.format(question.places(source, None), GATHERED_APART)
    return await step.first(statement, *question.values) is not None


async def _are_few(step: Step, wanted: Filter, states: frozenset[State]) -> bool:
    total = meant = 0
    for queue, state, jobs, _ in await step.fetch(COUNTS):
        total += jobs
        meant += jobs * (State(state) in states and wanted.queue in (None, queue))
    return meant <= min(FEW * total, GATHERED)


def _places(wanted: Filter, states: frozenset[State]) -> Iterator[tuple[str, tuple[Condition, ...]]]:
    queue: tuple[Condition, ...] = () if wanted.queue is None else ((SQL.queue, wanted.queue),)
    for state in sorted(states - FINAL):
        times = _times(wanted) if wanted.time == "due" and state in {State.SCHEDULED, State.READY} else ()
        yield _PIECES[state.value], (*queue, *times)
        if state is State.RUNNING:
            yield SQL.folded, queue
    named = "" if queue else f"\nAND {SQL.any_queue}"
    for state in sorted(states & FINAL):
        times = _times(wanted) if wanted.time == "finished" else ()
        for piece in (SQL.ended_alone, SQL.ended_in_flows) if times else (SQL.ended,):
            yield piece.format(state.value) + named, (*queue, *times)


def _times(wanted: Filter) -> tuple[Condition, ...]:
    bounds = [(bound, getattr(wanted, bound)) for bound in ("since", "until")]
    return tuple((_PIECES[f"{wanted.time}_{name}"], value) for name, value in bounds if value is not None)


def _looks_closer(wanted: Filter) -> bool:
    """Whether what is meant takes more than an index to tell."""
    return wanted != Filter(**{name: getattr(wanted, name) for name in _IN_AN_INDEX})
