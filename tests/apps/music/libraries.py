"""Libraries for tests, and songs in them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import insert, select, update

from tests.apps.music.audio import recording
from tidemill_apps.common.database import Database
from tidemill_apps.music.library import Library
from tidemill_apps.music.songs import Song, Track
from tidemill_apps.music.tables import songs


class Wall:
    """A clock of which no two readings are the same."""

    def __init__(self) -> None:
        self.seconds = 1_800_000_000.0

    def __call__(self) -> float:
        self.seconds += 0.001
        return self.seconds


@asynccontextmanager
async def made(url: str) -> AsyncIterator[Library]:
    database = Database(url)
    try:
        library = Library(database, Wall())
        await library.prepare()
        yield library
    finally:
        await database.close()


def track(number: int, **more: Any) -> Track:
    """Odd ones are Chinese."""
    what = recording(number)
    given = {"id": f"s{number}", "title": what.title, "artist": what.artist, "album": what.album}
    return Track(**{**given, **more})


async def stocked(library: Library, count: int) -> list[Song]:
    await library.upsert([track(number) for number in range(count)])
    return await library.pending()


async def column(library: Library, name: str) -> dict[str, Any]:
    """Of every song, by id."""
    query = select(songs.c.navidrome_id, songs.c[name]).order_by(songs.c.navidrome_id)
    async with library.database.reading() as connection:
        return {row[0]: row[1] for row in (await connection.execute(query)).all()}


async def put(library: Library, navidrome_ids: Sequence[str], **values: Any) -> None:
    async with library.database.transaction() as connection:
        await connection.execute(update(songs).where(songs.c.navidrome_id.in_(navidrome_ids)).values(values))


async def insert_rows(library: Library, rows: list[dict[str, Any]]) -> None:
    async with library.database.transaction() as connection:
        await connection.execute(insert(songs), rows)
