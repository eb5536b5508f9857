"""find: the jobs a filter means, as a statement of only the conditions it sets.

Where the filter means few of all jobs (the counters know), their states' partial indexes give the
places to look at; else the table is read in its order. Rows come as they are read, so a page that is
full ends the search. A search that may look at so many jobs and no more ends at a place, its floor, which
is counted off first: passing over rows costs a tenth of asking them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from tidemill.contract.reader import Page
from tidemill.core.filters import Filter, checked
from tidemill.core.job import Job
from tidemill.core.matching import as_json_text, folded, matches, part_of_payload
from tidemill.core.names import MAX_NAME
from tidemill.core.states import FINAL, State
from tidemill.stores.sqlite.rows import job_of, text_of
from tidemill.stores.sqlite.statements import load
from tidemill.stores.sqlite.transaction import Transaction

SQL = load("find")

FEW = 0.25
"""Of all jobs: so many places are sorted and looked up one by one as fast as the table is read."""

FEW_GOING_ON = 0.02
"""The same where a page follows another: the places are collected anew for every page, while the table is
read on from where the last page ended."""

GATHERED = 300_000
"""More places than these are not gathered for a page that somebody waits for."""

NEWEST = 2000
"""Before any are gathered, so many of the newest are looked at: often they fill the page."""

LAST = "\U0010ffff"
"""The character after which none comes."""

_ANY_CASE = re.compile("[A-Za-z]")
_DUE = frozenset({State.SCHEDULED, State.READY})
_IN_AN_INDEX = ("ids", "id_prefix", "flow", "queue", "states")


class Source(msgspec.Struct, frozen=True):
    """Where the jobs to be looked at come from: a condition that gives them in order, '' for all, or
    statements that give their `places` in no order."""

    condition: str = ""
    places: tuple[str, ...] = ()

    def within(self, bounds: list[str]) -> str:
        """The places, those between bounds."""
        return "\nUNION ALL ".join(_all([statement, *bounds]) for statement in self.places)


def find(transaction: Transaction, wanted: Filter, limit: int, cursor: int | None, looks: int | None) -> Page:
    """R2, R11."""
    source = _source(transaction, checked(wanted), cursor, bounded=looks is not None)
    if source is None:
        return Page((), None)
    if looks is None or not source.places or _looks_closer(wanted):
        return _page(transaction, source, wanted, limit, cursor, looks)
    page = _page(transaction, Source(), wanted, limit, cursor, NEWEST)
    return _page(transaction, source, wanted, limit, cursor, limit + 1) if page.partial else page


def _page(  # noqa: PLR0917 - what find was asked
    transaction: Transaction,
    source: Source,
    wanted: Filter,
    limit: int,
    cursor: int | None,
    looks: int | None,
) -> Page:
    is_bounded = looks is not None and wanted.ids is None
    floor = _floor(transaction, source, wanted, cursor, looks) if is_bounded else None
    found = list(islice(_rows(transaction, source, wanted, cursor, floor), limit + 1))
    page = tuple(found[:limit])
    if len(found) > limit:
        return Page(page, page[-1].seq if page else None)
    return Page(page, None) if floor is None else Page(page, floor + 1, partial=len(page) < limit)


def oldest_first(transaction: Transaction, wanted: Filter) -> Iterator[Job]:
    """Those a change is to be made to, J70."""
    source = _source(transaction, checked(wanted), None, bounded=False)
    return iter(()) if source is None else _rows(transaction, source, wanted, newest_first=False)


def _rows(
    transaction: Transaction,
    source: Source,
    wanted: Filter,
    before: int | None = None,
    floor: int | None = None,
    *,
    newest_first: bool = True,
) -> Iterator[Job]:
    """What matches is `core.matching.matches`; the statement only keeps most others away."""
    statement = _statement(source, wanted, before, floor)
    order = SQL.newest_first if newest_first else SQL.oldest_first
    rows = transaction.execute(f"{statement}\n{order}", _values(wanted, before, floor))
    try:
        for row in rows:
            job = job_of(row)
            if matches(wanted, job):
                yield job
    finally:
        rows.close()  # a page that is full leaves the statement in the middle


def _statement(source: Source, wanted: Filter, before: int | None, floor: int | None) -> str:
    pieces = bounds = _bounds(before, floor)
    if source.places:
        pieces = [f"seq IN ({source.within(bounds)})"]
    pieces = [*pieces, *_conditions(wanted)]
    return f"{SQL.rows}\nWHERE {_all(pieces)}" if pieces else str(SQL.rows)


def _bounds(before: int | None, floor: int | None) -> list[str]:
    return [SQL.before] * (before is not None) + [SQL.behind] * (floor is not None)


def _source(transaction: Transaction, wanted: Filter, before: int | None, *, bounded: bool) -> Source | None:
    """None when no job can be meant."""
    if wanted.ids is not None or wanted.flow is not None:
        return Source(SQL.ids if wanted.ids is not None else SQL.flow)
    if wanted.id_prefix is not None:
        source = Source(places=(SQL.id_prefix,))
        return Source() if bounded and _are_many(transaction, source, wanted) else source
    states = frozenset(State if wanted.states is None else wanted.states)
    by_end = wanted.time == "finished" and bool(_times(wanted))
    states &= FINAL if by_end else states
    if not states:
        return None
    source = Source(places=tuple(_places(wanted, states)))
    if by_end:
        return Source() if bounded and _are_many(transaction, source, wanted) else source
    share = FEW if before is None or bounded else FEW_GOING_ON
    few = _are_few(transaction, wanted, states, share, GATHERED if bounded else None)
    return source if few else Source()


def _are_many(transaction: Transaction, source: Source, wanted: Filter) -> bool:
    """More than are worth gathering."""
    values = {**_values(wanted, None, None), "gathered": GATHERED}
    return transaction.execute(SQL.many.format(source.within([])), values).fetchone() is not None


def _are_few(
    transaction: Transaction, wanted: Filter, states: frozenset[State], share: float, most: int | None
) -> bool:
    total = meant = 0
    for queue, state, jobs in transaction.counts():
        total += jobs
        meant += jobs * (state in states and wanted.queue in (None, queue))
    return meant <= share * total and (most is None or meant <= most)


def _floor(
    transaction: Transaction, source: Source, wanted: Filter, before: int | None, most: int | None
) -> int | None:
    """The place of the first job that is not looked at any more, None when all are."""
    bounds = _bounds(before, None)
    if source.places:
        statement = SQL.next_of_places.format(source.within(bounds))
    else:
        statement = SQL.next_of_all.format(_all([source.condition or "true", *bounds]))
    values = {**_values(wanted, before, None), "most": most}
    found = transaction.execute(statement, values).fetchone()
    return None if found is None else int(found[0])


def _looks_closer(wanted: Filter) -> bool:
    """Whether what is meant takes more than an index to tell."""
    known = {name: getattr(wanted, name) for name in _IN_AN_INDEX}
    return wanted != Filter(**known)


def _conditions(wanted: Filter) -> list[str]:
    pieces = dict(SQL)
    named = ("ids", "flow", "queue", "states", "task", "key", "tag")
    found = [pieces[name] for name in named if getattr(wanted, name) is not None]
    found += [SQL.begins] if wanted.id_prefix is not None else []
    found += _times(wanted)
    found += [SQL.field.replace(":field_", f":{name}") for name in _fields(wanted)]
    if wanted.text is not None:
        found.append(SQL.text if _ANY_CASE.search(as_json_text(wanted.text)) else SQL.caseless_text)
    return found


def _times(wanted: Filter) -> list[str]:
    pieces = dict(SQL)
    bounds = (bound for bound in ("since", "until") if getattr(wanted, bound) is not None)
    return [pieces[f"{wanted.time}_{bound}"] for bound in bounds]


def _places(wanted: Filter, states: frozenset[State]) -> Iterator[str]:
    pieces = dict(SQL)
    for state in sorted(states - FINAL):
        times = _times(wanted) if wanted.time == "due" and state in _DUE else []
        yield _all([pieces[str(state)], *_queue(wanted, named=bool(times)), *times])
    if states & FINAL:
        times = _times(wanted) if wanted.time == "finished" else []
        yield _all([SQL.ended, *_queue(wanted, named=True), *times])


def _queue(wanted: Filter, *, named: bool) -> list[str]:
    """`named`: what stands behind it in the index is searched, too."""
    return [SQL.queue] if wanted.queue is not None else [SQL.any_queue] if named else []


def _all(pieces: list[str]) -> str:
    return "\n  AND ".join(pieces)


def _values(wanted: Filter, before: int | None, floor: int | None) -> dict[str, Any]:
    return {
        "before": before,
        "floor": floor,
        "ids": text_of(wanted.ids),
        "id_prefix": wanted.id_prefix,
        "id_prefix_end": None if wanted.id_prefix is None else wanted.id_prefix + LAST * MAX_NAME,
        "flow": wanted.flow,
        "queue": wanted.queue,
        "states": text_of(list(State) if wanted.states is None else wanted.states),
        "task": wanted.task,
        "key": wanted.key,
        "tag": None if wanted.tag is None else text_of(wanted.tag),
        "since": wanted.since,
        "until": wanted.until,
        "text": None if wanted.text is None else folded(wanted.text),
        "quoted_text": None if wanted.text is None else folded(as_json_text(wanted.text)),
        **_fields(wanted),
    }


def _fields(wanted: Filter) -> dict[str, str]:
    return {f"field_{number}": part_of_payload(*field) for number, field in enumerate(wanted.fields)}
