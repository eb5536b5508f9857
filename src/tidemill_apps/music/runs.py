"""Since when it runs, from a person's start to a person's stop. What is left out of an answer meanwhile goes
once more; what was left out before is not meant, however few songs a start is limited to, and after a stop
nothing is."""

from __future__ import annotations

from tidemill_apps.music.library import Library
from tidemill_apps.music.marks import mark, marked, unmark

SINCE = "runs_since"


async def begin(library: Library, *, under_way: bool) -> None:
    """A start while it runs is part of the same run."""
    if not (under_way and await since(library)):
        await mark(library.database, SINCE, str(library.now()))


async def end(library: Library) -> None:
    await unmark(library.database, SINCE)


async def since(library: Library) -> int | None:
    """In milliseconds; None when it was stopped."""
    told = await marked(library.database, SINCE)
    return None if told is None else int(told)
