"""Bringing the library up to date with the music server.

A server says when its collection changed last. If that was so when it was read the last time, nothing is
read. The mark is written after the last page: a sync that was interrupted reads everything again, and what is
stored already is not written again. Songs that were not on any page are missing then, unless the server
changed meanwhile, or is at it: a song that moved from one page to another is on none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from tidemill_apps.music import marks
from tidemill_apps.music.library import Library
from tidemill_apps.music.marks import marked
from tidemill_apps.music.missing import foresee_missing, hide_missing, note
from tidemill_apps.music.songs import Track

MARK = "subsonic_last_modified"


class Source(Protocol):
    """Where songs come from. `url` tells sources apart: what another one said does not count here."""

    @property
    def url(self) -> str: ...
    async def last_modified(self) -> int: ...
    def pages(self) -> AsyncIterator[list[Track]]: ...


class Synced(NamedTuple):
    """`seen` were listed, of which `new` were not known and `changed` were told otherwise or came back.
    `hidden` are listed no more; `missing` likewise, and were too many to be hidden."""

    seen: int = 0
    new: int = 0
    changed: int = 0
    hidden: int = 0
    missing: int = 0


class Foreseen(NamedTuple):
    """So many songs more would be pending; so many that wait now would be hidden, by status."""

    new: int = 0
    gone: Mapping[str, int] = MappingProxyType({})


async def sync(
    source: Source,
    library: Library,
    progress: Callable[[Synced], None] = lambda _: None,
    *,
    sure: bool = False,
) -> Synced:
    """`sure`: what is missing is gone for good, however much it is."""
    mark = await _mark_of(source)
    if mark and mark == await marked(library.database, MARK):
        await note(library, 0)
        return Synced()
    total, listed = Synced(), set[str]()
    async for page in source.pages():
        new, changed = await library.upsert(page)
        listed |= {track.id for track in page}
        total = Synced(total.seen + len(page), total.new + new, total.changed + changed)
        progress(total)
    if mark and mark == await _mark_of(source):
        total = total._replace(**(await hide_missing(library, listed, sure=sure))._asdict())
    if not total.missing:  # as long as there are, it is read again: the server may be well then
        await marks.mark(library.database, MARK, mark)
    return total


async def foresee(source: Source, library: Library, *, sure: bool = False) -> Foreseen:
    """What would wait after such a sync. The source is read, and nothing is written."""
    mark = await _mark_of(source)
    if mark and mark == await marked(library.database, MARK):
        return Foreseen()
    new, listed = 0, set[str]()
    async for page in source.pages():
        new += await library.foresee(page)
        listed |= {track.id for track in page}
    return Foreseen(new, await foresee_missing(library, listed, sure=sure) if mark else {})


async def _mark_of(source: Source) -> str:
    """Empty when the source does not say when it changed last."""
    modified = await source.last_modified()
    return f"{modified} {source.url}" if modified else ""
