"""Settings in the table of the application: who changes a row changes what the workers do, while they run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import pytest
from sqlalchemy import delete, insert, select, update

from tests.apps.music.libraries import track
from tests.web.asgi import ask
from tests.web.signed import token_of
from tidemill import Tidemill
from tidemill.web import Role, dashboard
from tidemill_apps.common.database import Database
from tidemill_apps.music.limits import EMBEDDING, FULL, METADATA, WORK_QUEUES
from tidemill_apps.music.music import Music
from tidemill_apps.music.pipeline import Start
from tidemill_apps.music.settings import MusicSettings
from tidemill_apps.music.system_settings import Live, SystemSettings, understood
from tidemill_apps.music.tables import metadata, system_settings

WITHIN = 5.0
"""Seconds in which a change of a row takes effect."""
CONCURRENCY, STARTS, BATCH = "queue_concurrency", "queue_rate_limit_max", "queue_batch_size"


@pytest.fixture
async def music(tmp_path: Path) -> AsyncIterator[Music]:
    app = Tidemill(f"sqlite:///{tmp_path}/jobs.db")
    music = Music(app, MusicSettings(database_url=f"sqlite:///{tmp_path}/music.db"))
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
    await music.follower.follow()
    assert await concurrency(music) == {1}
    assert [await starts(music, queue) for queue in (FULL, METADATA, EMBEDDING)] == [2, 2, 10]


async def test_a_row_that_is_changed_holds_on_running_workers_within_five_seconds(music: Music) -> None:
    async with working(music):
        began = monotonic()
        await by_another_program(music, CONCURRENCY, "4")
        await by_another_program(music, STARTS, "7")
        while not (await concurrency(music) == {4} and await starts(music, FULL) == 7):
            await asyncio.sleep(0.05)
            assert monotonic() - began < WITHIN
    assert [await starts(music, queue) for queue in (METADATA, EMBEDDING)] == [7, 10]


async def test_a_batch_size_holds_with_the_next_start(music: Music) -> None:
    await music.library.upsert([track(number) for number in range(12)])
    assert (await music.pipeline.preview(Start(skip_sync=True))).jobs == 2
    await by_another_program(music, BATCH, "5")
    assert (await music.pipeline.preview(Start(skip_sync=True))).jobs == 3


async def test_what_is_changed_in_the_dashboard_is_written_to_the_table(music: Music) -> None:
    token = await token_of(music.app, Role.ADMIN)
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    dashboards = dashboard(music.app)

    async def put(value: object) -> int:
        body = json.dumps({"value": value}).encode()
        answer = await ask(dashboards, "PUT", f"/api/v1/settings/{CONCURRENCY}", headers=headers, body=body)
        return answer.status

    assert await put(6) == 200
    assert await rows(music.database) == {CONCURRENCY: "6", STARTS: "2", BATCH: "10"}
    await music.follower.follow()
    assert await concurrency(music) == {6}
    for wrong in (0, 101, "many", None):
        assert await put(wrong) == 422
    assert (await rows(music.database))[CONCURRENCY] == "6"


async def test_what_the_code_says_again_is_no_override(music: Music) -> None:
    for value in ("3", "1"):
        await by_another_program(music, CONCURRENCY, value)
        await music.follower.follow()
        assert await concurrency(music) == {int(value)}
    assert (await music.app.inspect.queue(FULL)).override is None


@pytest.mark.parametrize("value", ["0", "101", "-1", "two", "", "1.5", "两"])
async def test_of_a_row_that_cannot_hold_what_is_in_force_stays_and_a_sentence_says_why(
    music: Music, value: str
) -> None:
    await by_another_program(music, CONCURRENCY, "3")
    await music.follower.follow()
    await by_another_program(music, CONCURRENCY, value)
    await music.follower.follow()
    assert await concurrency(music) == {3}
    (problem,) = (await music.system_settings.read()).problems
    assert problem == (
        f"system_settings: queue_concurrency is {value!r}, must be jobs of one queue at once, from 1 to 100; "
        "3 holds until it is corrected"
    )


async def test_a_row_that_is_deleted_leaves_what_is_in_force(music: Music) -> None:
    await by_another_program(music, STARTS, "6")
    await music.follower.follow()
    async with music.database.transaction() as connection:
        await connection.execute(delete(system_settings).where(system_settings.c.key == STARTS))
    await music.follower.follow()
    assert await starts(music, FULL) == 6


async def test_rows_that_are_there_before_us_are_kept(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/music.db")
    await database.prepare(metadata)
    before = SystemSettings(database, Live())
    await before.write(BATCH, 25)
    async with database.transaction() as connection:
        await connection.execute(insert(system_settings).values(key="theme", value="1"))
    await SystemSettings(database, Live()).prepare()
    assert await rows(database) == {CONCURRENCY: "1", STARTS: "2", BATCH: "25", "theme": "1"}
    await database.close()


def test_numbers_may_be_written_with_spaces_around_them() -> None:
    found = understood({CONCURRENCY: " 8 ", STARTS: "9\n"}, Live())
    assert (found.live.queue_concurrency, found.live.queue_rate_limit_max) == (8, 9)
    assert found.problems == ()
