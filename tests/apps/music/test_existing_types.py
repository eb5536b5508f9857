"""A `songs` table of another program whose columns have other types or rules: served, or refused at start."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import text

from tests.apps.music.libraries import Wall, track
from tests.apps.music.world import World, world
from tidemill import ConfigurationError, Filter
from tidemill_apps.common.database import Database
from tidemill_apps.common.database_errors import RowRefused
from tidemill_apps.music.describing import Description
from tidemill_apps.music.library import Library
from tidemill_apps.music.outcomes import Outcome

SERVED = "tags jsonb, analysis_json json, energy_level smallint, is_instrumental smallint, duration smallint"
DESCRIBED = Description(
    description="潮声",
    tags=["海", 'a "quoted" tag'],
    mood="calm",
    is_instrumental=True,
    energy_level=7,
    analysis_json='{"id": "s0"}',
)


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[Database]:
    made = Database(postgres_url, "MUSIC_DATABASE_URL")
    yield made
    await made.close()


async def create(database: Database, columns: str) -> Library:
    async with database.transaction() as connection:
        await connection.execute(text(f"CREATE TABLE songs (navidrome_id text PRIMARY KEY, {columns})"))
    return Library(database, Wall())


async def test_types_that_can_hold_the_values_are_served(database: Database) -> None:
    library = await create(database, SERVED)
    await library.prepare()
    await library.upsert([track(0, duration=200)])
    songs = await library.pending()
    await library.mark_processing(songs, "job")
    await library.save("job", [Outcome(navidrome_id="s0", description=DESCRIBED, vector=[1.0, 0.5])])
    stored = await library.song("s0")
    assert stored is not None
    assert (stored.tags, stored.energy_level, stored.is_instrumental) == (DESCRIBED.tags, 7, True)
    assert (stored.status, stored.duration) == ("COMPLETED", 200)


@pytest.mark.parametrize(
    ("column", "told"),
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
async def test_what_cannot_hold_the_values_is_told_at_start(
    database: Database, column: str, told: str
) -> None:
    library = await create(database, column)
    with pytest.raises(ConfigurationError) as caught:
        await library.prepare()
    message = str(caught.value)
    assert message.startswith(f"MUSIC_DATABASE_URL: the table songs has {told}")
    assert "ALTER TABLE songs ALTER COLUMN" in message
    assert "CREATE" not in message


async def test_a_column_of_others_that_new_songs_need_is_told_without_sql(database: Database) -> None:
    library = await create(database, "rating integer NOT NULL")
    await library.prepare()
    with pytest.raises(RowRefused) as caught:
        await library.upsert([track(0)])
    assert str(caught.value).startswith(
        "no song can be added to the table songs: rating must have a value and has no default; "
    )


async def test_a_rule_that_nobody_foresaw_costs_both_calls_once_and_shows_no_sql(
    postgres_url: str, database: Database, tmp_path_factory: pytest.TempPathFactory
) -> None:
    await create(database, "status text CHECK (status <> 'COMPLETED')")
    async with world(tmp_path_factory.mktemp("music"), 10, database_url=postgres_url) as its:
        await its.start()
        await its.run_until_idle()
        await its.music.sweeper.sweep()
        assert len(its.provider.ledger.bills) == 2
        status = (await its.call("GET", "/api/queue/status")).text
        assert "violates check constraint" in status
        assert "UPDATE" not in status
        assert await shown_errors(its) == []


async def shown_errors(its: World) -> list[str]:
    """Errors of jobs that have a statement in them."""
    found = [job async for job in its.music.app.inspect.each(Filter())]
    return [job.error.message for job in found if job.error is not None and "UPDATE" in job.error.message]
