"""Rows of `system_settings`, on either database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import pytest
from sqlalchemy import delete, insert, select, update

from tests.apps.music.library_fixtures import track
from tests.apps.music.virtual_kit import declare_web
from tests.web.asgi_client import send_request
from tests.web.signed_in_client import create_token
from tidemill import Tidemill
from tidemill.web import Role, dashboard
from tidemill_apps.common.database import Database
from tidemill_apps.common.live_settings import KeyValueTable, LiveSettingsTable
from tidemill_apps.music.library import Library
from tidemill_apps.music.limits import EMBEDDING_QUEUE, FULL_QUEUE, METADATA_QUEUE, WORK_QUEUES
from tidemill_apps.music.pipeline_control import PipelineStartRequest
from tidemill_apps.music.service import Music
from tidemill_apps.music.settings import LiveSettings, MusicSettings
from tidemill_apps.music.tables import metadata, system_settings

DEFAULTS = {"queue_batch_size": "10", "queue_concurrency": "1", "queue_rate_limit_max": "2"}


async def setting_rows(library: Library) -> dict[str, str]:
    async with library.database.reading() as connection:
        found = await connection.execute(select(system_settings.c.key, system_settings.c.value))
        return {row.key: row.value for row in found}


def settings_table(defaults: LiveSettings) -> LiveSettingsTable[LiveSettings]:
    """A table that is never read."""
    return LiveSettingsTable(KeyValueTable(Database("sqlite:///none.db"), system_settings), defaults)


async def test_processes_that_start_together_find_the_rows_missing_and_write_each_once(
    either: Library,
) -> None:
    settings = LiveSettingsTable(either.flags, LiveSettings())
    for _ in range(5):
        async with either.database.transaction() as connection:
            await connection.execute(delete(system_settings))
        await asyncio.gather(*(settings.prepare() for _ in range(6)))
        assert await setting_rows(either) == DEFAULTS


async def test_concurrent_writes_insert_a_missing_row_once(either: Library) -> None:
    settings = LiveSettingsTable(either.flags, LiveSettings())
    await asyncio.gather(*(settings.write("queue_batch_size", 25) for _ in range(6)))
    assert await setting_rows(either) == {"queue_batch_size": "25"}
    assert (await settings.read()).live == LiveSettings(queue_batch_size=25)


@pytest.mark.parametrize("value", [25, 25.0, " 25 ", "25"])
def test_a_number_is_parsed_from_every_column_type(value: object) -> None:
    found = settings_table(LiveSettings()).parse({"queue_batch_size": value})
    assert (found.live.queue_batch_size, found.problems) == (25, ())


@pytest.mark.parametrize(
    "value", [None, "", "ten", "十", "-1", "0", "101", "1e9", "NaN", b"25", "25; drop", "9" * 999]
)
def test_nonsense_leaves_what_holds_and_says_so_in_a_sentence(value: object) -> None:
    settings = settings_table(LiveSettings(queue_batch_size=7))
    found = settings.parse({"queue_batch_size": value, "queue_concurrency": "3"})
    assert found.live == LiveSettings(queue_batch_size=7, queue_concurrency=3)
    assert found.valid_keys == {"queue_concurrency"}
    (problem,) = found.problems
    assert problem.endswith("must be songs in one job, from 1 to 100; 7 holds until it is corrected")
    assert len(problem) < 200


WITHIN = 5.0
"""Seconds within which a changed row takes effect."""
CONCURRENCY, STARTS, BATCH = "queue_concurrency", "queue_rate_limit_max", "queue_batch_size"


@pytest.fixture
async def music(tmp_path: Path) -> AsyncIterator[Music]:
    app = Tidemill(f"sqlite:///{tmp_path}/jobs.db")
    music = Music(app, MusicSettings(database_url=f"sqlite:///{tmp_path}/music.db"))
    declare_web(music)
    async with app:
        await music.prepare()
        yield music
        await music.close()


@asynccontextmanager
async def working(music: Music) -> AsyncIterator[None]:
    worker = music.app.worker()
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await running


async def by_another_program(music: Music, key: str, value: str) -> None:
    async with music.database.transaction() as connection:
        one = update(system_settings).where(system_settings.c.key == key)
        await connection.execute(one.values(value=value))


async def rows(database: Database) -> dict[str, str]:
    async with database.reading() as connection:
        found = await connection.execute(select(system_settings.c.key, system_settings.c.value))
        return {row.key: row.value for row in found}


async def concurrency(music: Music) -> set[int | None]:
    return {(await music.app.inspect.queue(queue)).settings.concurrency for queue in WORK_QUEUES}


async def starts(music: Music, queue: str) -> float:
    (limit,) = (await music.app.inspect.pool(music.pools.starts[queue].name)).limits
    return limit.amount


async def test_one_job_of_a_queue_at_once_and_two_starts_a_minute_by_default(music: Music) -> None:
    assert await rows(music.database) == {CONCURRENCY: "1", STARTS: "2", BATCH: "10"}
    await music.settings_sync.apply()
    assert await concurrency(music) == {1}
    assert [await starts(music, queue) for queue in (FULL_QUEUE, METADATA_QUEUE, EMBEDDING_QUEUE)] == [
        2,
        2,
        10,
    ]


async def test_a_row_that_is_changed_holds_on_running_workers_within_five_seconds(music: Music) -> None:
    async with working(music):
        began = monotonic()
        await by_another_program(music, CONCURRENCY, "4")
        await by_another_program(music, STARTS, "7")
        while not (await concurrency(music) == {4} and await starts(music, FULL_QUEUE) == 7):
            await asyncio.sleep(0.05)
            assert monotonic() - began < WITHIN
    assert [await starts(music, queue) for queue in (METADATA_QUEUE, EMBEDDING_QUEUE)] == [7, 10]


async def test_a_batch_size_holds_with_the_next_start(music: Music) -> None:
    await music.library.upsert([track(number) for number in range(12)])
    assert (await music.pipeline.preview(PipelineStartRequest(skip_sync=True))).jobs == 2
    await by_another_program(music, BATCH, "5")
    assert (await music.pipeline.preview(PipelineStartRequest(skip_sync=True))).jobs == 3


async def test_a_setting_changed_in_the_dashboard_is_written_to_the_table(music: Music) -> None:
    token = await create_token(music.app, Role.ADMIN)
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    dashboards = dashboard(music.app)

    async def put(value: object) -> int:
        body = json.dumps({"value": value}).encode()
        answer = await send_request(
            dashboards, "PUT", f"/api/v1/settings/{CONCURRENCY}", headers=headers, body=body
        )
        return answer.status

    assert await put(6) == 200
    assert await rows(music.database) == {CONCURRENCY: "6", STARTS: "2", BATCH: "10"}
    await music.settings_sync.apply()
    assert await concurrency(music) == {6}
    for wrong in (0, 101, "many", None):
        assert await put(wrong) == 422
    assert (await rows(music.database))[CONCURRENCY] == "6"


async def test_a_setting_equal_to_the_declared_value_is_no_override(music: Music) -> None:
    for value in ("3", "1"):
        await by_another_program(music, CONCURRENCY, value)
        await music.settings_sync.apply()
        assert await concurrency(music) == {int(value)}
    assert (await music.app.inspect.queue(FULL_QUEUE)).override is None


@pytest.mark.parametrize("value", ["0", "101", "-1", "two", "", "1.5", "两"])
async def test_of_a_row_that_cannot_hold_what_is_in_force_stays_and_a_sentence_says_why(
    music: Music, value: str
) -> None:
    await by_another_program(music, CONCURRENCY, "3")
    await music.settings_sync.apply()
    await by_another_program(music, CONCURRENCY, value)
    await music.settings_sync.apply()
    assert await concurrency(music) == {3}
    (problem,) = (await music.live_settings.read()).problems
    assert problem == (
        f"system_settings: queue_concurrency is {value!r}, must be jobs of one queue at once, from 1 to 100; "
        "3 holds until it is corrected"
    )


async def test_a_row_that_is_deleted_leaves_what_is_in_force(music: Music) -> None:
    await by_another_program(music, STARTS, "6")
    await music.settings_sync.apply()
    async with music.database.transaction() as connection:
        await connection.execute(delete(system_settings).where(system_settings.c.key == STARTS))
    await music.settings_sync.apply()
    assert await starts(music, FULL_QUEUE) == 6


async def test_rows_that_are_there_before_us_are_kept(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/music.db")
    await database.prepare(metadata)
    table = KeyValueTable(database, system_settings)
    await LiveSettingsTable(table, LiveSettings()).write(BATCH, 25)
    async with database.transaction() as connection:
        await connection.execute(insert(system_settings).values(key="theme", value="1"))
    await LiveSettingsTable(table, LiveSettings()).prepare()
    assert await rows(database) == {CONCURRENCY: "1", STARTS: "2", BATCH: "25", "theme": "1"}
    await database.close()


def test_numbers_may_be_written_with_spaces_around_them() -> None:
    found = settings_table(LiveSettings()).parse({CONCURRENCY: " 8 ", STARTS: "9\n"})
    assert (found.live.queue_concurrency, found.live.queue_rate_limit_max) == (8, 9)
    assert found.problems == ()
