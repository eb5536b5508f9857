"""find: the jobs a filter means, as a statement of only the conditions it sets.

Rows are read in portions, the first no larger than a page: a page that is full ends the search.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from asyncpg import Record

from tidemill.core.filters import Filter, checked
from tidemill.core.job import Job
from tidemill.core.matching import as_json_text, folded, matches
from tidemill.core.states import FINAL, State
from tidemill.stores.postgres.rows import COLUMNS, job_of, text_of
from tidemill.stores.postgres.statements import load

SQL = load("find")
_PIECES = dict(SQL)
LARGEST_PORTION = 1000

Fetch = Callable[..., Awaitable[list[Record]]]

_WHOLE = re.compile(r"-?\d+|true|false|null")


async def search(
    fetch: Fetch, wanted: Filter, *, newest_first: bool, limit: int, before: int | None = None
) -> AsyncIterator[Job]:
    """R2. What matches is `core.matching.matches`; the statement only keeps most others away."""
    checked(wanted)
    if wanted.states is not None and not wanted.states:
        return
    portion, last = min(limit, LARGEST_PORTION), before
    while True:
        rows = await fetch(*_statement(wanted, last, portion, newest_first=newest_first))
        for row in rows:
            job = job_of(row)
            if matches(wanted, job):
                yield job
        if len(rows) < portion:
            return
        last, portion = rows[-1]["seq"], LARGEST_PORTION


def _statement(wanted: Filter, last: int | None, portion: int, *, newest_first: bool) -> tuple[Any, ...]:
    values: list[Any] = []

    def asked(piece: str, value: object) -> str:
        values.append(value)
        return piece.format(f"${len(values)}")

    pieces = [asked(_PIECES[name], value) for name, value in _conditions(wanted)]
    if wanted.text is not None:
        values += [folded(as_json_text(wanted.text)), folded(wanted.text)]
        pieces.append(SQL.text.format(quoted=f"${len(values) - 1}", plain=f"${len(values)}"))
    if last is not None:
        pieces.append(asked(SQL.before if newest_first else SQL.behind, last))
    order = SQL.newest_first if newest_first else SQL.oldest_first
    meant = "\n  AND ".join(pieces) or "true"
    told = {"columns": COLUMNS, "meant": meant, "states": _states(wanted), "order": order, "portion": portion}
    return ((SQL.running_rows if _only_running(wanted) else SQL.rows).format(**told), *values)


def _conditions(wanted: Filter) -> list[tuple[str, object]]:
    named = ("ids", "id_prefix", "queue", "task", "key", "flow")
    found: list[tuple[str, object]] = [
        (name, value) for name in named if (value := getattr(wanted, name)) is not None
    ]
    found = [(name, list(value) if isinstance(value, tuple) else value) for name, value in found]
    if wanted.tag is not None:
        found.append(("tag", text_of(wanted.tag)))
    for bound in ("since", "until"):
        if (value := getattr(wanted, bound)) is not None:
            found.append((f"{wanted.time}_{bound}", value))
    return found + [("field", _text_of(*field)) for field in wanted.fields]


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
