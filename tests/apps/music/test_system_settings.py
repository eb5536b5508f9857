"""Rows of `system_settings`, on either database."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import delete, select

from tidemill_apps.music.library import Library
from tidemill_apps.music.system_settings import Live, SystemSettings, understood
from tidemill_apps.music.tables import system_settings

DEFAULTS = {"queue_batch_size": "10", "queue_concurrency": "1", "queue_rate_limit_max": "2"}


async def rows(library: Library) -> dict[str, str]:
    async with library.database.reading() as connection:
        found = await connection.execute(select(system_settings.c.key, system_settings.c.value))
        return {row.key: row.value for row in found}


async def test_processes_that_start_together_find_the_rows_missing_and_write_each_once(
    either: Library,
) -> None:
    settings = SystemSettings(either.database, Live())
    for _ in range(5):
        async with either.database.transaction() as connection:
            await connection.execute(delete(system_settings))
        await asyncio.gather(*(settings.prepare() for _ in range(6)))
        assert await rows(either) == DEFAULTS


async def test_a_row_that_is_gone_is_written_again_by_whoever_changes_it(either: Library) -> None:
    settings = SystemSettings(either.database, Live())
    await asyncio.gather(*(settings.write("queue_batch_size", 25) for _ in range(6)))
    assert await rows(either) == {"queue_batch_size": "25"}
    assert (await settings.read()).live == Live(queue_batch_size=25)


@pytest.mark.parametrize("value", [25, 25.0, " 25 ", "25"])
def test_a_number_is_understood_whatever_the_column_is(value: object) -> None:
    found = understood({"queue_batch_size": value}, Live())
    assert (found.live.queue_batch_size, found.problems) == (25, ())


@pytest.mark.parametrize(
    "value", [None, "", "ten", "十", "-1", "0", "101", "1e9", "NaN", b"25", "25; drop", "9" * 999]
)
def test_nonsense_leaves_what_holds_and_says_so_in_a_sentence(value: object) -> None:
    found = understood({"queue_batch_size": value, "queue_concurrency": "3"}, Live(queue_batch_size=7))
    assert found.live == Live(queue_batch_size=7, queue_concurrency=3)
    assert found.good == {"queue_concurrency"}
    (problem,) = found.problems
    assert problem.endswith("must be songs in one job, from 1 to 100; 7 holds until it is corrected")
    assert len(problem) < 200
