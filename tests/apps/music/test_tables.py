"""A table that is there already stays as it is: what is missing is added, and its songs are worked on."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Column, Integer, MetaData, String, Table, Text, insert, select

from tests.apps.music.libraries import column, made, put, stocked
from tidemill_apps.common.database import Database
from tidemill_apps.music.library import Library
from tidemill_apps.music.outcomes import Outcome
from tidemill_apps.music.songs import Song, Status

THEIRS = MetaData()
their_songs = Table(
    "songs",
    THEIRS,
    Column("id", Integer, primary_key=True),
    Column("navidrome_id", String, unique=True, nullable=False),
    Column("title", String, nullable=False),
    Column("artist", String),
    Column("status", String),
    Column("description", Text),
    Column("rating", Integer),
)


async def before_us(database: Database) -> None:
    rows: list[dict[str, object]] = [
        {"navidrome_id": "a", "title": "雾中灯塔", "artist": "林晚", "status": "PROCESSING", "rating": 5},
        {"navidrome_id": "b", "title": "Tide", "artist": None, "status": None, "rating": 4},
        {"navidrome_id": "c", "title": "归帆", "artist": "海风乐队", "status": "COMPLETED", "rating": None},
    ]
    async with database.transaction() as connection:
        await connection.run_sync(THEIRS.drop_all)
        await connection.run_sync(THEIRS.create_all)
        await connection.execute(insert(their_songs), rows)


async def test_an_existing_table_with_fewer_columns_just_works(either: Library) -> None:
    await before_us(either.database)
    await either.prepare()
    assert await either.counts() == {
        Status.PENDING: 2,
        Status.PROCESSING: 1,
        Status.DESCRIBED: 0,
        Status.COMPLETED: 0,
        Status.FAILED: 0,
    }
    assert await either.left_processing() == {None: ["a"]}
    assert await either.release(None) == 1
    waiting = await either.pending()
    assert waiting == [Song("a", "雾中灯塔", "林晚"), Song("b", "Tide", ""), Song("c", "归帆", "海风乐队")]
    assert await either.mark_processing(waiting, "job") == waiting
    await either.save("job", [Outcome(navidrome_id="b", vector=[1.0, 0.5])])
    assert (await column(either, "status"))["b"] == "COMPLETED"
    async with either.database.reading() as connection:
        kept = (await connection.execute(select(their_songs.c.rating).order_by(their_songs.c.id))).scalars()
        assert list(kept) == [5, 4, None]


async def test_new_songs_go_into_an_existing_table(either: Library) -> None:
    await before_us(either.database)
    await either.prepare()
    assert len(await stocked(either, 3)) == 5


async def test_a_song_that_is_completed_without_a_vector_waits(either: Library) -> None:
    await stocked(either, 3)
    await put(either, ["s0", "s1", "s2"], status="COMPLETED", job_id="theirs")
    await put(either, ["s1"], description="雾")
    await put(either, ["s2"], description="雾", vector=b"\0\0\x80?")
    await either.prepare()
    assert await column(either, "status") == {"s0": "PENDING", "s1": "DESCRIBED", "s2": "COMPLETED"}
    assert [song.navidrome_id for song in await either.described_without_vector()] == ["s1"]


async def test_preparing_again_changes_nothing(either: Library) -> None:
    await stocked(either, 2)
    before = await column(either, "changed_at")
    await either.prepare()
    assert await column(either, "changed_at") == before


async def test_tables_are_made_in_a_file_that_is_not_there(tmp_path: Path) -> None:
    async with made(f"sqlite:///{tmp_path}/new.db") as library:
        assert await library.pending() == []
    assert (tmp_path / "new.db").exists()
