"""Synchronises the library with the music server and hides songs that the server no longer lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import NamedTuple, Protocol

from sqlalchemy import case, func, select

from tidemill_apps.music.library import Library
from tidemill_apps.music.tables import IS_LISTED, Track, songs

MIN_SUSPICIOUS_SONGS = 10
SUSPICIOUS_SHARE_DIVISOR = 5
"""More missing songs than this share, and than MIN_SUSPICIOUS_SONGS, are not hidden without confirmation."""
MISSING_COUNT_KEY = "songs_not_listed"


class HiddenCounts(NamedTuple):
    """The result of hiding songs. `hidden` is the number of hidden songs. `missing` is the number of songs
    that are no longer listed but were too many to hide."""

    hidden: int = 0
    missing: int = 0


async def hide_missing(library: Library, listed: AbstractSet[str], *, confirmed: bool) -> HiddenCounts:
    """Hides stored songs that are not in `listed`, the ids of all songs that the music server lists. Hides
    none if suspiciously many are missing, unless `confirmed` is True."""
    known = await _load_listed_songs(library)
    missing = sorted(known.keys() - listed)
    if not confirmed and is_suspicious(len(missing), len(known)):
        await store_missing_count(library, len(missing))
        return HiddenCounts(missing=len(missing))
    await store_missing_count(library, 0)
    return HiddenCounts(hidden=await library.hide(missing))


async def preview_missing(library: Library, listed: AbstractSet[str], *, confirmed: bool) -> Counter[str]:
    """Returns, per status, the number of songs that `hide_missing` would hide. Songs with a stored job id are
    not counted, because a start would not enqueue them."""
    known = await _load_listed_songs(library)
    missing = known.keys() - listed
    if not confirmed and is_suspicious(len(missing), len(known.keys() | listed)):
        return Counter()
    return Counter(status for id_ in missing if (status := known[id_]) is not None)


async def _load_listed_songs(library: Library) -> dict[str, str | None]:
    """Returns a mapping from song id to status, for all stored songs that are not hidden. The status is None
    if a job id is stored for the song."""
    waits = case((songs.c.job_id.is_(None), songs.c.status))
    async with library.database.reading() as connection:
        rows = (await connection.execute(select(songs.c.navidrome_id, waits).where(IS_LISTED))).all()
    return {row[0]: row[1] for row in rows}


def is_suspicious(missing: int, known: int) -> bool:
    return 0 < missing == known or missing > max(MIN_SUSPICIOUS_SONGS, known // SUSPICIOUS_SHARE_DIVISOR)


async def count_unlisted(library: Library) -> int:
    """Returns the number of songs that are hidden because the music server no longer lists them."""
    async with library.database.reading() as connection:
        return int(
            (
                await connection.execute(select(func.count()).where(songs.c.unlisted_at.is_not(None)))
            ).scalar_one()
        )


async def store_missing_count(library: Library, missing: int) -> None:
    """Stores the number of missing songs for the status page. The next sync replaces it; 0 deletes it."""
    if missing:
        await library.flags.put(MISSING_COUNT_KEY, str(missing))
    else:
        await library.flags.delete(MISSING_COUNT_KEY)


async def load_missing_count(library: Library) -> int:
    return int(await library.flags.get(MISSING_COUNT_KEY) or 0)


LAST_MODIFIED_KEY = "subsonic_last_modified"


class SongSource(Protocol):
    """A source of songs, such as a music server. `url` identifies the source. `last_modified` returns the
    time of its last change, 0 if unknown. `pages` yields its songs in lists."""

    @property
    def url(self) -> str: ...
    async def last_modified(self) -> int: ...
    def pages(self) -> AsyncIterator[list[Track]]: ...


class SyncResult(NamedTuple):
    """The numbers of songs in a sync.

    - `seen`: songs that the source lists.
    - `new`: listed songs that were not stored before.
    - `changed`: listed songs that have changed or are listed again.
    - `hidden`: songs that are no longer listed and were hidden.
    - `missing`: songs that are no longer listed but were too many to hide.
    """

    seen: int = 0
    new: int = 0
    changed: int = 0
    hidden: int = 0
    missing: int = 0


class SyncPreview(NamedTuple):
    """The predicted effect of a sync. `new` is the number of songs that would become pending. `gone` maps
    each status to the number of waiting songs that would be hidden."""

    new: int = 0
    gone: Mapping[str, int] = MappingProxyType({})


async def sync_library(
    source: SongSource,
    library: Library,
    progress: Callable[[SyncResult], None] = lambda _: None,
    *,
    confirmed: bool = False,
) -> SyncResult:
    """Reads all songs of the source into the library, and hides songs that are no longer listed. Does nothing
    if the source has not changed. `progress` is called after each page. `confirmed=True` hides any number of
    songs."""
    version = await _load_source_version(source)
    if version and version == await library.flags.get(LAST_MODIFIED_KEY):
        await store_missing_count(library, 0)
        return SyncResult()
    total, listed = SyncResult(), set[str]()
    async for page in source.pages():
        new, changed = await library.upsert(page)
        listed |= {track.id for track in page}
        total = SyncResult(total.seen + len(page), total.new + new, total.changed + changed)
        progress(total)
    if version and version == await _load_source_version(source):
        total = total._replace(**(await hide_missing(library, listed, confirmed=confirmed))._asdict())
    if not total.missing:  # while songs are missing, read again: the server may have recovered
        await library.flags.put(LAST_MODIFIED_KEY, version)
    return total


async def preview_sync(source: SongSource, library: Library, *, confirmed: bool = False) -> SyncPreview:
    """Returns the predicted effect of a sync. It reads the source and writes nothing. `confirmed` has the
    same meaning as in `sync_library`."""
    version = await _load_source_version(source)
    if version and version == await library.flags.get(LAST_MODIFIED_KEY):
        return SyncPreview()
    new, listed = 0, set[str]()
    async for page in source.pages():
        new += await library.count_new_pending(page)
        listed |= {track.id for track in page}
    return SyncPreview(new, await preview_missing(library, listed, confirmed=confirmed) if version else {})


async def _load_source_version(source: SongSource) -> str:
    """Returns a text that differs whenever the source has changed: the time of its last change and its URL.
    Empty if the source does not know this time."""
    modified = await source.last_modified()
    return f"{modified} {source.url}" if modified else ""
