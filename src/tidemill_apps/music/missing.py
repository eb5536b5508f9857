"""Songs in the library that the music server does not list any more.

They are hidden: not worked on, not found, not counted. Their rows stay as they are, so that a song that comes
back has all that was paid for. A server that is not well, such as one whose disk is not there, may list
nothing or little: so many songs at once are only hidden when a person says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from sqlalchemy import case, func, select

from tidemill_apps.music.library import Library
from tidemill_apps.music.marks import mark, marked, unmark
from tidemill_apps.music.rows import THERE
from tidemill_apps.music.tables import songs

FEW = 10
SHARE = 5
"""More than a fifth of all songs, and more than a few, is too much to be believed at once."""
NOTED = "songs_not_listed"


class Hidden(NamedTuple):
    """So many were hidden; so many are missing and were too many to be."""

    hidden: int = 0
    missing: int = 0


async def hide_missing(library: Library, listed: AbstractSet[str], *, sure: bool) -> Hidden:
    """After a list that was read to its end. `sure`: a person says that they are gone for good."""
    known = await _known(library)
    missing = sorted(known.keys() - listed)
    if not sure and too_many(len(missing), len(known)):
        await note(library, len(missing))
        return Hidden(missing=len(missing))
    await note(library, 0)
    return Hidden(hidden=await library.hide(missing))


async def foresee_missing(library: Library, listed: AbstractSet[str], *, sure: bool) -> Counter[str]:
    """How many songs that no job has would be hidden, by status."""
    known = await _known(library)
    missing = known.keys() - listed
    if not sure and too_many(len(missing), len(known.keys() | listed)):
        return Counter()
    return Counter(status for id_ in missing if (status := known[id_]) is not None)


async def _known(library: Library) -> dict[str, str | None]:
    """With their status, unless a job has them."""
    waits = case((songs.c.job_id.is_(None), songs.c.status))
    async with library.database.reading() as connection:
        rows = (await connection.execute(select(songs.c.navidrome_id, waits).where(THERE))).all()
    return {row[0]: row[1] for row in rows}


def too_many(missing: int, known: int) -> bool:
    return 0 < missing == known or missing > max(FEW, known // SHARE)


async def gone(library: Library) -> int:
    """How many are hidden."""
    async with library.database.reading() as connection:
        return int(
            (await connection.execute(select(func.count()).where(songs.c.gone_at.is_not(None)))).scalar_one()
        )


async def note(library: Library, missing: int) -> None:
    """For people to see, until a sync finds otherwise."""
    if missing:
        await mark(library.database, NOTED, str(missing))
    else:
        await unmark(library.database, NOTED)


async def noted(library: Library) -> int:
    return int(await marked(library.database, NOTED) or 0)
