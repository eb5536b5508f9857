"""The list of songs: those that changed last come first, by status and by what is in their title or artist.
No call is made for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from sqlalchemy import ColumnElement, and_, func, or_, select

from tidemill_apps.music.library import Library
from tidemill_apps.music.rows import ARTIST, THERE, TITLE
from tidemill_apps.music.songs import Status
from tidemill_apps.music.tables import songs, storable

A_PAGE = 50
_changed = func.coalesce(songs.c.changed_at, 0)


class Wanted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`before` and `last` are where the page before ended: when its last song changed, and which it was."""

    status: Status | None = None
    text: Annotated[str, Meta(max_length=200)] = ""
    before: Annotated[int, Meta(ge=0)] | None = None
    last: Annotated[str, Meta(max_length=1000)] = ""

    def chosen(self) -> dict[str, str]:
        """Without the place in the list."""
        given = {"status": self.status.value if self.status else "", "text": self.text.strip()}
        return {name: value for name, value in given.items() if value}


class Line(Struct, frozen=True):
    navidrome_id: str
    title: str
    artist: str
    mood: str | None
    status: str
    changed_at: int


class Listed(Struct, frozen=True):
    """`next` is what to ask for after it; None at the end."""

    lines: Sequence[Line]
    next: Wanted | None


async def listed(library: Library, wanted: Wanted) -> Listed:
    columns = (songs.c.navidrome_id, TITLE, ARTIST, songs.c.mood, songs.c.status, _changed)
    query = select(*columns).where(*_meant(wanted)).order_by(_changed.desc(), songs.c.navidrome_id)
    async with library.database.reading() as connection:
        rows = (await connection.execute(query.limit(A_PAGE + 1))).all()
    lines = [Line(*row) for row in rows[:A_PAGE]]
    if len(rows) <= A_PAGE:
        return Listed(lines, None)
    end = lines[-1]
    return Listed(lines, msgspec.structs.replace(wanted, before=end.changed_at, last=end.navidrome_id))


def _meant(wanted: Wanted) -> list[ColumnElement[bool]]:
    meant: list[ColumnElement[bool]] = [THERE]
    if wanted.status is not None:
        meant.append(songs.c.status == wanted.status.value)
    if text := storable(wanted.text.strip()):
        meant.append(or_(TITLE.icontains(text, autoescape=True), ARTIST.icontains(text, autoescape=True)))
    if wanted.before is not None:
        same = and_(_changed == wanted.before, songs.c.navidrome_id > storable(wanted.last))
        meant.append(or_(_changed < wanted.before, same))
    return meant
