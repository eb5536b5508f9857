"""find: the jobs a filter means, as a statement of only the conditions it sets.

Rows are read in portions, the first no larger than a page: a page that is full ends the search.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from asyncpg import Record

from tidemill.core.filters import Filter, checked
from tidemill.core.job import Job
from tidemill.core.matching import as_json_text, folded, matches, part_of_payload
from tidemill.core.states import FINAL, State
from tidemill.stores.postgres.rows import COLUMNS, job_of, text_of
from tidemill.stores.postgres.statements import load

SQL = load("find")
_PIECES = dict(SQL)
LARGEST_PORTION = 1000

Fetch = Callable[..., Awaitable[list[Record]]]


Condition = tuple[str, object]
"""A piece of a statement, and the value it asks for."""


async def search(
    fetch: Fetch,
    wanted: Filter,
    *,
    newest_first: bool,
    limit: int,
    before: int | None = None,
    within: Sequence[Condition] = (),
) -> AsyncIterator[Job]:
    """R2. What matches is `core.matching.matches`; the statement only keeps most others away. `within`: what
    else is known of them."""
    checked(wanted)
    if wanted.states is not None and not wanted.states:
        return
    portion, last = min(limit, LARGEST_PORTION), before
    while True:
        rows = await fetch(*_statement(wanted, within, last, portion, newest_first=newest_first))
        for row in rows:
            job = job_of(row)
            if matches(wanted, job):
                yield job
        if len(rows) < portion:
            return
        last, portion = rows[-1]["seq"], LARGEST_PORTION


def _statement(
    wanted: Filter,
    within: Sequence[Condition],
    last: int | None,
    portion: int,
    *,
    newest_first: bool,
) -> tuple[Any, ...]:
    values: list[Any] = []

    def asked(piece: str, value: object) -> str:
        values.append(value)
        return piece.format(f"${len(values)}")

    pieces = [asked(piece, value) for piece, value in within]
    pieces += [asked(_PIECES[name], value) for name, value in _conditions(wanted)]
    if wanted.text is not None:
        values += [folded(as_json_text(wanted.text)), folded(wanted.text)]
        pieces.append(SQL.text.format(quoted=f"${len(values) - 1}", plain=f"${len(values)}"))
    if last is not None:
        pieces.append(asked(SQL.before if newest_first else SQL.behind, last))
    order = SQL.newest_first if newest_first else SQL.oldest_first
    meant = "\n  AND ".join(pieces) or "true"
    told = {"columns": COLUMNS, "meant": meant, "states": _states(wanted), "order": order, "portion": portion}
    return ((SQL.running_rows if _only_running(wanted) else SQL.rows).format(**told), *values)


def _conditions(wanted: Filter) -> list[Condition]:
    named = ("ids", "id_prefix", "queue", "task", "key", "flow")
    found: list[Condition] = [(name, value) for name in named if (value := getattr(wanted, name)) is not None]
    found = [(name, list(value) if isinstance(value, tuple) else value) for name, value in found]
    if wanted.tag is not None:
        found.append(("tag", text_of(wanted.tag)))
    for bound in ("since", "until"):
        if (value := getattr(wanted, bound)) is not None:
            found.append((f"{wanted.time}_{bound}", value))
    return found + [("field", part_of_payload(*field)) for field in wanted.fields]


def _states(wanted: Filter) -> str:
    """Written out, so that the indexes of the states are known to answer."""
    if wanted.states is None:
        return "true"
    states = sorted(State(state).value for state in wanted.states)
    among = f"state IN ({', '.join(repr(state) for state in states)})"
    return f"{among} AND finished IS NOT NULL" if FINAL.issuperset(wanted.states) else among


def _only_running(wanted: Filter) -> bool:
    """Running ones, perhaps among others, but no ready ones."""
    states = wanted.states or ()
    return State.RUNNING in states and State.READY not in states
