"""A filter as the values `find.sql` takes."""

from __future__ import annotations

from typing import Any

from tidemill.core.filters import Filter
from tidemill.stores.sqlite.rows import text_of
from tidemill.stores.sqlite.statements import load

SQL = load("find")


def values(wanted: Filter, limit: int, before: int | None = None) -> dict[str, Any]:
    return {
        "before": before,
        "limit": limit,
        "ids": None if wanted.ids is None else text_of(wanted.ids),
        "queue": wanted.queue,
        "states": None if wanted.states is None else text_of(wanted.states),
        "task": wanted.task,
        "key": wanted.key,
        "tag": wanted.tag,
        "since": wanted.since,
        "until": wanted.until,
    }
