"""Libraries for tests, and songs in them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import insert, select, update

from tests.apps.music.audio_files import recording
from tidemill_apps.common.database import Database
from tidemill_apps.music.library import Library
from tidemill_apps.music.tables import Song, Track, songs


class TickingClock:
    """A clock that never returns the same time twice."""

    def __init__(self) -> None:
        self.seconds = 1_800_000_000.0

    def __call__(self) -> float:
        self.seconds += 0.001
        return self.seconds


@asynccontextmanager
async def open_library(url: str) -> AsyncIterator[Library]:
    database = Database(url)
    try:
        library = Library(database, TickingClock())
        await library.prepare()
        yield library
    finally:
        await database.close()


def track(number: int, **more: Any) -> Track:
    """Returns a track; odd ones are Chinese."""
    what = recording(number)
    given = {"id": f"s{number}", "title": what.title, "artist": what.artist, "album": what.album}
    return Track(**{**given, **more})


async def add_songs(library: Library, count: int) -> list[Song]:
    await library.upsert([track(number) for number in range(count)])
    return await library.load_pending()


async def column(library: Library, name: str) -> dict[str, Any]:
    """Returns a column of every song, by id."""
    query = select(songs.c.navidrome_id, songs.c[name]).order_by(songs.c.navidrome_id)
    async with library.database.reading() as connection:
        return {row[0]: row[1] for row in (await connection.execute(query)).all()}


async def put(library: Library, navidrome_ids: Sequence[str], **values: Any) -> None:
    async with library.database.transaction() as connection:
        await connection.execute(update(songs).where(songs.c.navidrome_id.in_(navidrome_ids)).values(values))


async def insert_rows(library: Library, rows: list[dict[str, Any]]) -> None:
    async with library.database.transaction() as connection:
        await connection.execute(insert(songs), rows)
