"""find: the jobs a filter means, as a statement of only the conditions it sets.

Where the filter means few of all jobs (the counters know), their states' partial indexes give the
places to look at; else the table is read in its order. Rows come as they are read, so a page that is
full ends the search.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tidemill.core.filters import Filter, checked
from tidemill.core.job import Job
from tidemill.core.matching import as_json_text, folded, matches
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

LAST = "\U0010ffff"
"""The character after which none comes."""

_ANY_CASE = re.compile("[A-Za-z]")
_WHOLE = re.compile(r"-?\d+|true|false|null")
_DUE = frozenset({State.SCHEDULED, State.READY})


def search(
    transaction: Transaction, wanted: Filter, *, newest_first: bool, before: int | None = None
) -> Iterator[Job]:
    """R2. What matches is `core.matching.matches`; the statement only keeps most others away."""
    statement = _statement(transaction, checked(wanted), before)
    if statement is None:
        return
    order = SQL.newest_first if newest_first else SQL.oldest_first
    rows = transaction.execute(f"{statement}\n{order}", _values(wanted, before))
    try:
        for row in rows:
            job = job_of(row)
            if matches(wanted, job):
                yield job
    finally:
        rows.close()  # a page that is full leaves the statement in the middle


def _statement(transaction: Transaction, wanted: Filter, before: int | None) -> str | None:
    """None when no job can be meant."""
    pieces = _conditions(wanted)
    if before is not None:
        pieces.insert(0, SQL.before)
    if wanted.ids is None and wanted.id_prefix is None and wanted.flow is None:
        states = _few(transaction, wanted, FEW if before is None else FEW_GOING_ON)
        if states is not None:
            if not states:
                return None
            pieces.insert(0, f"seq IN ({_places(wanted, states, before)})")
    return f"{SQL.rows}\nWHERE {_all(pieces)}" if pieces else str(SQL.rows)


def _conditions(wanted: Filter) -> list[str]:
    pieces = dict(SQL)
    named = ("ids", "id_prefix", "flow", "queue", "states", "task", "key", "tag")
    found = [pieces[name] for name in named if getattr(wanted, name) is not None]
    found += _times(wanted)
    found += [SQL.field.replace(":field_", f":{name}") for name in _fields(wanted)]
    if wanted.text is not None:
        found.append(SQL.text if _ANY_CASE.search(as_json_text(wanted.text)) else SQL.caseless_text)
    return found


def _times(wanted: Filter) -> list[str]:
    pieces = dict(SQL)
    bounds = (bound for bound in ("since", "until") if getattr(wanted, bound) is not None)
    return [pieces[f"{wanted.time}_{bound}"] for bound in bounds]


def _few(transaction: Transaction, wanted: Filter, share: float) -> frozenset[State] | None:
    """The states whose indexes are to be asked; None when the table is."""
    states = frozenset(State if wanted.states is None else wanted.states)
    by_end = wanted.time == "finished" and bool(_times(wanted))
    if by_end:
        states &= FINAL
    total = meant = 0
    for queue, state, jobs in transaction.counts():
        total += jobs
        meant += jobs * (state in states and wanted.queue in (None, queue))
    return states if by_end or meant <= share * total else None


def _places(wanted: Filter, states: frozenset[State], before: int | None) -> str:
    always = [SQL.queue] if wanted.queue is not None else []
    always += [SQL.before] if before is not None else []
    pieces = dict(SQL)
    found = []
    for state in sorted(states - FINAL):
        times = _times(wanted) if wanted.time == "due" and state in _DUE else []
        found.append(_all([pieces[str(state)], *always, *times]))
    if states & FINAL:
        times = _times(wanted) if wanted.time == "finished" else []
        found.append(_all([SQL.ended, *always, *times]))
    return "\nUNION ALL ".join(found)


def _all(pieces: list[str]) -> str:
    return "\n  AND ".join(pieces)


def _values(wanted: Filter, before: int | None) -> dict[str, Any]:
    return {
        "before": before,
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
    return {f"field_{number}": _text_of(*field) for number, field in enumerate(wanted.fields)}


def _text_of(path: str, value: str) -> str:
    """What a payload with that field has in it: the value, or the name where the value is a number that
    can be written in several ways."""
    if _WHOLE.fullmatch(value):
        return value
    return text_of(path.rsplit(".", maxsplit=1)[-1] if _is_number(value) else value)


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
