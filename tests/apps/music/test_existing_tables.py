"""An existing table stays as it is: missing columns are added, and its songs are processed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import Column, Integer, MetaData, String, Table, Text, insert, select, text

from tests.apps.music.library_fixtures import TickingClock, add_songs, column, open_library, put, track
from tests.apps.music.virtual_kit import MusicEnvironment, music_environment
from tidemill import ConfigurationError, Filter
from tidemill_apps.common.database import Database, RowRefused
from tidemill_apps.music.library import Library
from tidemill_apps.music.tables import Song, SongDescription, SongOutcome, SongStatus

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
    assert await either.count_by_status() == {
        SongStatus.PENDING: 2,
        SongStatus.PROCESSING: 1,
        SongStatus.DESCRIBED: 0,
        SongStatus.COMPLETED: 0,
        SongStatus.FAILED: 0,
    }
    assert await either.load_songs_by_job() == {None: ["a"]}
    assert await either.release(None) == 1
    waiting = await either.load_pending()
    assert waiting == [Song("a", "雾中灯塔", "林晚"), Song("b", "Tide", ""), Song("c", "归帆", "海风乐队")]
    assert await either.mark_processing(waiting, "job") == waiting
    await either.save("job", [SongOutcome(navidrome_id="b", vector=[1.0, 0.5])])
    assert (await column(either, "status"))["b"] == "COMPLETED"
    async with either.database.reading() as connection:
        kept = (await connection.execute(select(their_songs.c.rating).order_by(their_songs.c.id))).scalars()
        assert list(kept) == [5, 4, None]


async def test_new_songs_go_into_an_existing_table(either: Library) -> None:
    await before_us(either.database)
    await either.prepare()
    assert len(await add_songs(either, 3)) == 5


async def test_a_song_that_is_completed_without_a_vector_waits(either: Library) -> None:
    await add_songs(either, 3)
    await put(either, ["s0", "s1", "s2"], status="COMPLETED", job_id="theirs")
    await put(either, ["s1"], description="雾")
    await put(either, ["s2"], description="雾", vector=b"\0\0\x80?")
    await either.prepare()
    assert await column(either, "status") == {"s0": "PENDING", "s1": "DESCRIBED", "s2": "COMPLETED"}
    assert [song.navidrome_id for song in await either.load_described()] == ["s1"]


async def test_preparing_again_changes_nothing(either: Library) -> None:
    await add_songs(either, 2)
    before = await column(either, "changed_at")
    await either.prepare()
    assert await column(either, "changed_at") == before


async def test_tables_are_made_in_a_file_that_is_not_there(tmp_path: Path) -> None:
    async with open_library(f"sqlite:///{tmp_path}/new.db") as library:
        assert await library.load_pending() == []
    assert (tmp_path / "new.db").exists()


SERVED = "tags jsonb, analysis_json json, energy_level smallint, is_instrumental smallint, duration smallint"
DESCRIBED = SongDescription(
    description="潮声",
    tags=["海", 'a "quoted" tag'],
    mood="calm",
    is_instrumental=True,
    energy_level=7,
    analysis_json='{"id": "s0"}',
)


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[Database]:
    opened = Database(postgres_url, "MUSIC_DATABASE_URL")
    yield opened
    await opened.close()


async def create(database: Database, columns: str) -> Library:
    async with database.transaction() as connection:
        await connection.execute(text(f"CREATE TABLE songs (navidrome_id text PRIMARY KEY, {columns})"))
    return Library(database, TickingClock())


async def test_types_that_can_hold_the_values_are_served(database: Database) -> None:
    library = await create(database, SERVED)
    await library.prepare()
    await library.upsert([track(0, duration=200)])
    songs = await library.load_pending()
    await library.mark_processing(songs, "job")
    await library.save("job", [SongOutcome(navidrome_id="s0", description=DESCRIBED, vector=[1.0, 0.5])])
    stored = await library.load_row("s0")
    assert stored is not None
    assert (stored.tags, stored.energy_level, stored.is_instrumental) == (DESCRIBED.tags, 7, True)
    assert (stored.status, stored.duration) == ("COMPLETED", 200)


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        ("changed_at integer", "the column changed_at as integer, and BIGINT is needed; "),
        ("vector text", "the column vector as text, and BYTEA is needed; "),
        ("description jsonb", "the column description as jsonb, and TEXT is needed; "),
        ("last_error varchar(200)", "the column last_error as varchar(200), and TEXT is needed; "),
        ("energy_level text", "the column energy_level as text, and INTEGER is needed; "),
        ("tags text[]", "the column tags as array, and TEXT is needed; "),
        (
            "job_id text NOT NULL DEFAULT ''",
            "the column job_id as NOT NULL, and it has to be empty in some rows",
        ),
        ("mood text NOT NULL", "the column mood as NOT NULL, and it has to be empty in some rows"),
    ],
)
async def test_a_column_of_an_unfit_type_is_reported_at_start(
    database: Database, column: str, problem: str
) -> None:
    library = await create(database, column)
    with pytest.raises(ConfigurationError) as caught:
        await library.prepare()
    message = str(caught.value)
    assert message.startswith(f"MUSIC_DATABASE_URL: the table songs has {problem}")
    assert "ALTER TABLE songs ALTER COLUMN" in message
    assert "CREATE" not in message


async def test_a_foreign_not_null_column_is_reported_without_sql(database: Database) -> None:
    library = await create(database, "rating integer NOT NULL")
    await library.prepare()
    with pytest.raises(RowRefused) as caught:
        await library.upsert([track(0)])
    assert str(caught.value).startswith(
        "no song can be added to the table songs: rating must have a value and has no default; "
    )


async def test_a_violated_check_constraint_repeats_no_paid_call_and_shows_no_sql(
    postgres_url: str, database: Database, tmp_path_factory: pytest.TempPathFactory
) -> None:
    await create(database, "status text CHECK (status <> 'COMPLETED')")
    async with music_environment(tmp_path_factory.mktemp("music"), 10, database_url=postgres_url) as env:
        await env.start()
        await env.run_until_idle()
        await env.music.reconciler.reconcile()
        assert len(env.provider.request_log.bills) == 2
        status = (await env.call("GET", "/api/queue/status")).text
        assert "violates check constraint" in status
        assert "UPDATE" not in status
        assert await shown_errors(env) == []


async def shown_errors(env: MusicEnvironment) -> list[str]:
    """Returns the errors of jobs that contain a SQL statement."""
    found = [job async for job in env.music.app.inspect.each(Filter())]
    return [job.error.message for job in found if job.error is not None and "UPDATE" in job.error.message]
