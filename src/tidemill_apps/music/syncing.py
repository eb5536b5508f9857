"""Bringing the library up to date with the music server.

A server says when its collection changed last. If that was so when it was read the last time, nothing is
read. The mark is written after the last page: a sync that was interrupted reads everything again, and what is
stored already is not written again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import NamedTuple, Protocol

from sqlalchemy import delete, insert, select

from tidemill_apps.music.library import Library
from tidemill_apps.music.songs import Track
from tidemill_apps.music.tables import system_settings

MARK = "subsonic_last_modified"


class Source(Protocol):
    """Where songs come from. `url` tells sources apart: what another one said does not count here."""

    @property
    def url(self) -> str: ...
    async def last_modified(self) -> int: ...
    def pages(self) -> AsyncIterator[list[Track]]: ...


class Synced(NamedTuple):
    """`seen` were listed, of which `new` were not known and `changed` were told otherwise."""

    seen: int = 0
    new: int = 0
    changed: int = 0


async def sync(
    source: Source, library: Library, progress: Callable[[Synced], None] = lambda _: None
) -> Synced:
    mark = await _mark_of(source)
    if mark and mark == await _mark(library):
        return Synced()
    total = Synced()
    async for page in source.pages():
        new, changed = await library.upsert(page)
        total = Synced(total.seen + len(page), total.new + new, total.changed + changed)
        progress(total)
    await _remember(library, mark)
    return total


async def foresee(source: Source, library: Library) -> int:
    """How many songs more would be pending after a sync. The source is read, and nothing is written."""
    mark = await _mark_of(source)
    if mark and mark == await _mark(library):
        return 0
    return sum([await library.foresee(page) async for page in source.pages()])


async def _mark_of(source: Source) -> str:
    """Empty when the source does not say when it changed last."""
    modified = await source.last_modified()
    return f"{modified} {source.url}" if modified else ""


async def _mark(library: Library) -> str | None:
    query = select(system_settings.c.value).where(system_settings.c.key == MARK)
    async with library.database.reading() as connection:
        return (await connection.execute(query)).scalar_one_or_none()


async def _remember(library: Library, mark: str) -> None:
    async with library.database.transaction() as connection:
        await connection.execute(delete(system_settings).where(system_settings.c.key == MARK))
        await connection.execute(insert(system_settings).values(key=MARK, value=mark))
