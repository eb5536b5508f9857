"""The database of an application on SQLite and PostgreSQL.

Missing tables are created, writers wait for each other, and errors are one sentence."""

from __future__ import annotations

import asyncio
import multiprocessing
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import (
    Column,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    func,
    insert,
    inspect,
    select,
    update,
)

from tests.servers.postgres import DATABASE, PASSWORD, USER, Postgres
from tests.servers.program import free_port
from tests.servers.proxy import Proxy
from tidemill import ConfigurationError
from tidemill_apps.common import database as common
from tidemill_apps.common.database import Database, DatabaseUnavailable, RowRefused

METADATA = MetaData()
SONGS = Table(
    "songs",
    METADATA,
    Column("id", String(40), primary_key=True),
    Column("title", String(200), nullable=False),
    Column("status", String(20), nullable=False, server_default="pending", index=True),
    Column("plays", Integer, nullable=False, server_default="0"),
    Column("mood", String(40), nullable=False),
)
TAGS = Table(
    "tags",
    METADATA,
    Column("song", String(40), ForeignKey("songs.id"), primary_key=True),
    Column("tag", String(40), primary_key=True),
)
TIDE = {"id": "1", "title": "潮汐", "mood": "calm"}


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/music.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    made = Database(url)
    await made.prepare(METADATA)
    yield made
    await made.close()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Database]:
    database = Database(url)
    try:
        yield database
    finally:
        await database.close()


async def _titles(database: Database) -> list[str]:
    async with database.reading() as connection:
        return list((await connection.execute(select(SONGS.c.title).order_by(SONGS.c.id))).scalars())


async def test_a_transaction_commits_or_rolls_back(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute(insert(SONGS).values(TIDE))
    with pytest.raises(RuntimeError, match="on the way"):
        async with database.transaction() as connection:
            await connection.execute(insert(SONGS).values(TIDE | {"id": "2"}))
            raise RuntimeError("on the way")
    assert await _titles(database) == ["潮汐"]
    await database.close()
    assert await _titles(database) == ["潮汐"]


async def test_writers_that_read_first_wait_for_each_other(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute(insert(SONGS).values(TIDE))

    async def one_more() -> None:
        async with database.transaction() as connection:
            row = select(SONGS.c.plays).where(SONGS.c.id == "1").with_for_update()
            plays = (await connection.execute(row)).scalar_one()
            await connection.execute(update(SONGS).values(plays=plays + 1))

    await asyncio.gather(*(one_more() for _ in range(40)))
    async with database.reading() as connection:
        assert (await connection.execute(select(SONGS.c.plays))).scalar_one() == 40


def _prepare_and_count(url: str) -> None:
    async def several() -> None:
        database = Database(url)
        await database.prepare(METADATA)
        for _ in range(10):
            async with database.transaction() as connection:
                row = select(SONGS.c.plays).where(SONGS.c.id == "1").with_for_update()
                plays = (await connection.execute(row)).scalar_one_or_none()
                assert plays is not None
                await connection.execute(update(SONGS).values(plays=plays + 1))
        await database.close()

    asyncio.run(several())


async def test_processes_that_start_together_make_the_tables_once_and_wait_for_each_other(url: str) -> None:
    old = MetaData()
    songs = Table("songs", old, Column("id", String(40), primary_key=True), Column("title", String(200)))
    first = Database(url)
    await first.prepare(old)
    async with first.transaction() as connection:
        await connection.execute(insert(songs).values(id="1", title="潮汐"))
    await first.close()
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_prepare_and_count, args=(url,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        await asyncio.to_thread(process.join, 60)
    assert [process.exitcode for process in processes] == [0, 0]
    async with first.reading() as connection:
        found = (await connection.execute(select(SONGS.c.title, SONGS.c.plays, SONGS.c.mood))).one()
        assert tuple(found) == ("潮汐", 20, None)
    await first.close()


async def test_many_may_prepare_at_once(url: str) -> None:
    many = [Database(url) for _ in range(8)]
    await asyncio.gather(*(one.prepare(METADATA) for one in many))
    assert await _titles(many[0]) == []
    for one in many:
        await one.close()


async def test_a_table_that_is_there_keeps_what_it_has_and_gets_what_it_lacks(url: str) -> None:
    theirs = MetaData()
    table = Table(
        "songs",
        theirs,
        Column("id", String(10), primary_key=True),
        Column("title", String(10)),
        Column("rating", Integer),
    )
    database = Database(url)
    await database.prepare(theirs)
    async with database.transaction() as connection:
        await connection.execute(insert(table).values(id="1", title="海", rating=5))
    await database.prepare(METADATA)
    await database.prepare(METADATA)
    async with database.reading() as connection:
        columns = await connection.run_sync(lambda sync: inspect(sync).get_columns("songs"))
        indexes = await connection.run_sync(lambda sync: inspect(sync).get_indexes("songs"))
        row = (await connection.execute(select(SONGS.c.status, SONGS.c.mood))).one()
        rating = (await connection.execute(select(table.c.rating))).scalar_one()
    await database.close()
    kinds = {column["name"]: (str(column["type"]), column["nullable"]) for column in columns}
    assert kinds["id"] == ("VARCHAR(10)", False)
    assert kinds["title"] == ("VARCHAR(10)", True)
    assert kinds["status"] == ("VARCHAR(20)", False)
    assert kinds["mood"] == ("VARCHAR(40)", True)
    assert [index["name"] for index in indexes] == ["ix_songs_status"]
    assert (rating, *row) == (5, "pending", None)


async def test_a_reference_to_nothing_is_refused(database: Database) -> None:
    with pytest.raises(RowRefused) as caught:
        async with database.transaction() as connection:
            await connection.execute(insert(TAGS).values(song="nobody", tag="海"))
    assert "INSERT" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_one_object_serves_several_event_loops(url: str) -> None:
    database = Database(url)

    async def prepared() -> int:
        await database.prepare(METADATA)
        async with database.reading() as connection:
            count = (await connection.execute(select(func.count()).select_from(SONGS))).scalar_one()
        await database.close()
        return int(count)

    assert [asyncio.run(prepared()) for _ in range(2)] == [0, 0]


def test_a_process_that_ends_without_closing_it_ends(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from tidemill_apps.common.database import Database\n"
        "database = Database(sys.argv[1])\n"
        "async def main():\n"
        "    async with database.transaction():\n"
        "        print('opened')\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", program, f"sqlite:///{tmp_path}/music.db"]
    assert subprocess.run(command, capture_output=True, timeout=60, check=True).stdout == b"opened\n"


async def test_a_reader_waits_for_no_writer(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path}/music.db") as database:
        await database.prepare(METADATA)
        async with database.transaction() as connection:
            await connection.execute(insert(SONGS).values(TIDE))
            assert await _titles(database) == []
        assert await _titles(database) == ["潮汐"]


async def test_an_unreachable_server_is_reported_without_the_password() -> None:
    port = free_port()
    database = Database(f"postgresql://ann:hunter2@127.0.0.1:{port}/music")
    with pytest.raises(DatabaseUnavailable) as caught:
        await database.prepare(METADATA)
    assert str(caught.value).startswith(f"the database 127.0.0.1:{port}/music cannot be reached: ")
    assert "hunter2" not in f"{caught.value} {database!r}"


async def test_a_missing_database_is_reported_in_one_sentence(postgres_url: str) -> None:
    there = postgres_url.rpartition("/")[0]
    with pytest.raises(
        DatabaseUnavailable, match='/nowhere cannot be used: database "nowhere" does not exist'
    ):
        await Database(f"{there}/nowhere").prepare(METADATA)


async def test_a_wrong_password_is_reported_without_the_password(postgres_server: Postgres) -> None:
    wrong = postgres_server.guarded_url.replace(PASSWORD, "hunter2")
    with pytest.raises(DatabaseUnavailable, match="cannot be used: password authentication failed") as caught:
        await Database(wrong).prepare(METADATA)
    assert "hunter2" not in str(caught.value)


async def test_options_of_an_address_are_the_driver_s(postgres_url: str) -> None:
    database = Database(f"{postgres_url}?sslmode=prefer&application_name=music")
    async with database.reading() as connection:
        name = await connection.execute(select(func.current_setting("application_name")))
        assert name.scalar_one() == "music"
    await database.close()
    with pytest.raises(DatabaseUnavailable, match="cannot be reached: "):
        await Database(f"{postgres_url}?sslmode=require").prepare(METADATA)


async def test_a_lock_timeout_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "LOCK_TIMEOUT_SECONDS", 0.05)
    url = f"sqlite:///{tmp_path}/music.db"
    async with opened(url) as one, opened(url) as other, one.transaction():
        with pytest.raises(DatabaseUnavailable, match="somebody else has been writing for too long"):
            async with other.transaction():
                pass


async def test_a_broken_connection_is_reported_and_the_next_one_works(postgres_server: Postgres) -> None:
    async with Proxy(postgres_server.port) as proxy:
        database = Database(f"postgresql://{USER}@127.0.0.1:{proxy.port}/{DATABASE}")
        await database.prepare(METADATA)
        with pytest.raises(
            DatabaseUnavailable, match=f"the database 127.0.0.1:{proxy.port}/tests went away: "
        ):
            async with database.transaction() as connection:
                await connection.execute(insert(SONGS).values(TIDE))
                proxy.reset()
                await connection.execute(insert(SONGS).values(TIDE | {"id": "2"}))
        assert await _titles(database) == []
        proxy.reset()  # the pooled connections are dead, and the pool has not noticed
        assert await _titles(database) == []
        await database.close()
    postgres_server.empty()


async def test_a_full_disk_is_reported_and_writes_work_again_afterwards(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path}/music.db") as database:
        await database.prepare(METADATA)
        with pytest.raises(DatabaseUnavailable, match="the disk is full; make room, work goes on by itself"):
            async with database.transaction() as connection:
                await connection.exec_driver_sql("PRAGMA max_page_count = 10")
                await connection.execute(insert(SONGS).values(TIDE | {"title": "潮" * 100_000}))
        async with database.transaction() as connection:
            await connection.exec_driver_sql("PRAGMA max_page_count = 1000")
            await connection.execute(insert(SONGS).values(TIDE))
        assert await _titles(database) == ["潮汐"]


async def test_an_unusable_file_is_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("这不是数据库" * 200)
    url = f"sqlite:///{tmp_path}"
    async with opened(f"{url}/none/music.db") as nowhere, opened(f"{url}/notes.txt") as notes:
        with pytest.raises(DatabaseUnavailable, match=r"the file cannot be opened; is its folder there"):
            await nowhere.prepare(METADATA)
        with pytest.raises(DatabaseUnavailable, match="the file is no SQLite database"):
            await notes.prepare(METADATA)


async def test_an_error_of_the_program_s_own_stays_what_it_is(database: Database) -> None:
    with pytest.raises(FileNotFoundError):
        async with database.transaction():
            Path("/nowhere/at/all").read_text()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("music.db", "is not one"),
        ("sqlite://", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:///music.db?mode=ro", "names no file"),
        ("mysql://ann:hunter2@host/music", "databases by 'mysql' are not known here"),
        ("postgresql+psycopg2://ann:hunter2@host/music", "are not known here"),
        ("postgresql://ann:hunter2@host:port/music", "is not one"),
    ],
)
def test_addresses_of_no_database_are_refused_at_once(url: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Database(url)
    assert problem in str(caught.value)
    assert "sqlite:///music.db or postgresql://" in str(caught.value)
    assert "hunter2" not in str(caught.value)
