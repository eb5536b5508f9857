"""Songs as they lie in the table: which are meant, and what is read of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Row, and_, case, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from tidemill_apps.music.outcomes import before_processing
from tidemill_apps.music.songs import Status, Stored, Track
from tidemill_apps.music.tables import songs
from tidemill_apps.music.upserts import COLUMNS

AT_ONCE = 500
"""Songs named in one statement: databases allow only so many values in it."""
WAITING = (Status.PENDING, Status.DESCRIBED)
T = TypeVar("T")

TITLE, ARTIST = func.coalesce(songs.c.title, ""), func.coalesce(songs.c.artist, "")
LISTED = [songs.c[name] for name in ("navidrome_id", "status", "job_id", "gone_at", *COLUMNS)]
THERE = songs.c.gone_at.is_(None)
"""The music server lists it, as far as is known."""
SHOWN = [songs.c[name] for name in Stored.__struct_fields__]


async def listed(connection: AsyncConnection, tracks: Sequence[Track]) -> dict[str, Mapping[str, Any]]:
    """What is stored of them that a server may list otherwise, by id."""
    there: dict[str, Mapping[str, Any]] = {}
    for some in pieces([track.id for track in tracks]):
        rows = await connection.execute(select(*LISTED).where(songs.c.navidrome_id.in_(some)))
        there |= {row["navidrome_id"]: row for row in rows.mappings()}
    return there


def held() -> ColumnElement[bool]:
    waits = and_(songs.c.status.in_(WAITING), songs.c.job_id.is_not(None))
    return or_(songs.c.status == Status.PROCESSING.value, waits)


def was() -> ColumnElement[str]:
    """A song that was marked and not begun is what it was all the time."""
    return case((songs.c.status.in_(WAITING), songs.c.status), else_=before_processing())


def of_job(job_id: str | None) -> ColumnElement[bool]:
    return songs.c.job_id.is_(None) if job_id is None else songs.c.job_id == job_id


def stored_in(row: Row[Any]) -> Stored:
    values = dict(zip(row._fields, row, strict=True))
    given = {"title": row.title or "", "artist": row.artist or "", "tries": row.tries or 0}
    if row.is_instrumental is not None:  # a number in some tables
        given["is_instrumental"] = bool(row.is_instrumental)
    return Stored(**{**values, **given, "tags": _list(row.tags)})


def _list(tags: str | list[str] | None) -> list[str]:
    """Another program may store tags as plain text. The driver reads a JSON column as a list."""
    if isinstance(tags, list):
        return [str(tag) for tag in tags]
    try:
        return msgspec.json.decode(tags or "[]", type=list[str])
    except msgspec.DecodeError:
        return [tags or ""]


def pieces(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), AT_ONCE):
        yield items[start : start + AT_ONCE]
