"""Settings of the environment, and those of the table that workers follow."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import delete, select, update

from tests.apps.music.world import World, world
from tidemill import ConfigurationError, TimeOfDay
from tidemill_apps.music.following import Follower
from tidemill_apps.music.limits import EMBEDDING, FULL, METADATA
from tidemill_apps.music.pipeline import Start
from tidemill_apps.music.settings import from_environment
from tidemill_apps.music.system_settings import Live, SystemSettings
from tidemill_apps.music.tables import system_settings


def test_without_a_word_it_is_the_source_s_own() -> None:
    settings = from_environment({})
    assert (settings.calls.per_minute, settings.metadata_starts, settings.embedding_starts) == (5, 2, 10)
    assert (settings.calls.zone, settings.calls.breaker_seconds, settings.resumes) == (
        "America/Los_Angeles",
        120.0,
        None,
    )


def test_variables_by_name() -> None:
    settings = from_environment(
        {
            "MUSIC_RESUME_AT": "16:30 Asia/Shanghai",
            "MUSIC_CALLS_PER_MINUTE": "15",
            "MUSIC_SUBSONIC_PASSWORD": "sesame",
            "MUSIC_CHAT_PROVIDER": "openai",
            "OPENAI_API_KEY": "sk-1",
        }
    )
    assert settings.resumes == TimeOfDay(16, 30, "Asia/Shanghai")
    assert (settings.calls.per_minute, settings.chat.key, settings.embeddings.key) == (15, "sk-1", "")
    assert "sesame" not in repr(settings)
    assert "sk-1" not in repr(settings)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("MUSIC_RESUME_AT", "16:30 Asia/Shanghia"),
        ("MUSIC_RESUME_AT", "25:00 UTC"),
        ("MUSIC_CALLS_ZONE", "Mars/Base"),
    ],
)
def test_a_zone_that_is_none_has_one_remedy(variable: str, value: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        from_environment({variable: value})
    assert str(refused.value).count(";") == 1
    assert str(refused.value).count("such as") == 1


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({}, "MUSIC_SUBSONIC_USER"),
        ({"MUSIC_SUBSONIC_USER": "ann"}, "MUSIC_SUBSONIC_PASSWORD"),
        ({"MUSIC_SUBSONIC_PASSWORD": "sesame"}, "MUSIC_SUBSONIC_USER"),
    ],
)
def test_a_music_server_without_a_user_or_a_password_is_refused_at_start(
    given: dict[str, str], missing: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        from_environment({"MUSIC_SUBSONIC_URL": "https://music.example", **given})
    assert str(refused.value) == (
        f"{missing} is not set, and MUSIC_SUBSONIC_URL is: the music server asks who calls; set it, "
        "or leave out the address for the sample songs"
    )


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("MUSIC_RESUME_AT", "half past four", "MUSIC_RESUME_AT: must be a time of day and a zone"),
        ("MUSIC_RESUME_AT", "25:00 UTC", "MUSIC_RESUME_AT: time of day: must be from 00:00 to 23:59"),
        ("MUSIC_RESUME_AT", "16:30 Mars/Base", "MUSIC_RESUME_AT: "),
        ("MUSIC_CALLS_PER_MINUTE", "0", "MUSIC_CALLS_PER_MINUTE: must be a whole number"),
        ("MUSIC_CALLS_SHAPE", "round", "MUSIC_CALLS_SHAPE: must be"),
        ("MUSIC_CALLS_ZONE", "Mars/Base", "MUSIC_CALLS_ZONE: "),
        ("MUSIC_SUBSONIC_URL", "my server", "MUSIC_SUBSONIC_URL: must be an address"),
    ],
)
def test_a_bad_value_names_its_variable(variable: str, value: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        from_environment({variable: value})
    assert str(refused.value).startswith(sentence)


async def test_workers_follow_the_table(tmp_path: Path) -> None:
    async with world(tmp_path, 100) as its:
        await its.start(limit=10)
        await put(its, "queue_concurrency", "3")
        await put(its, "queue_rate_limit_max", "7")
        await put(its, "queue_batch_size", "5")
        await its.music.follower.follow()
        assert await in_force(its) == ([3, 3, 3], [7, 7, 10])
        view = await its.music.app.inspect.queue(FULL)
        assert view.override is not None
        assert view.override.by == "music settings"
        assert (await its.pipeline.preview(Start(skip_sync=True))).jobs == 18


async def test_a_row_that_cannot_hold_changes_nothing_and_is_told(tmp_path: Path) -> None:
    async with world(tmp_path, 10) as its:
        await its.start()
        await put(its, "queue_concurrency", "3")
        await its.music.follower.follow()
        await put(its, "queue_concurrency", "many")
        await put(its, "queue_batch_size", "0")
        await its.music.follower.follow()
        assert (await in_force(its))[0] == [3, 3, 3]
        problems = (await its.call("GET", "/api/queue/status")).json["problems"]
        size, at_once = problems
        assert size == (
            "system_settings: queue_batch_size is '0', must be songs in one job, from 1 to 100; "
            "10 holds until it is corrected"
        )
        assert at_once.startswith("system_settings: queue_concurrency is 'many', must be jobs of one queue")
        assert at_once.endswith("3 holds until it is corrected")


async def test_after_a_restart_a_row_that_cannot_hold_leaves_what_is_in_force(tmp_path: Path) -> None:
    async with world(tmp_path, 10) as its:
        await its.start()
        await put(its, "queue_concurrency", "3")
        await put(its, "queue_rate_limit_max", "7")
        await its.music.follower.follow()
        await put(its, "queue_concurrency", "many")
        await put(its, "queue_rate_limit_max", "-1")
        another = SystemSettings(its.music.database, Live())
        await Follower(its.music.app, another, its.music.pools).follow()
        assert await in_force(its) == ([3, 3, 3], [7, 7, 10])


async def test_the_dashboard_writes_to_the_table(tmp_path: Path) -> None:
    async with world(tmp_path) as its:
        answer = await its.call("PUT", "/api/v1/settings/queue_batch_size", {"value": 20}, who="admin")
        assert answer.status < 300, answer.text
        assert (await rows(its))["queue_batch_size"] == "20"
        answer = await its.call("PUT", "/api/v1/settings/queue_batch_size", {"value": 0}, who="admin")
        assert answer.status == 422
        assert (await rows(its))["queue_batch_size"] == "20"


async def test_a_row_that_was_removed_comes_back_with_what_is_written(tmp_path: Path) -> None:
    async with world(tmp_path) as its:
        async with its.music.database.transaction() as connection:
            await connection.execute(delete(system_settings))
        assert (await its.music.system_settings.read()).live == Live()
        await its.music.system_settings.write("queue_batch_size", 4)
        assert (await its.music.system_settings.read()).live.queue_batch_size == 4


async def rows(its: World) -> dict[str, str]:
    async with its.music.database.reading() as connection:
        found = await connection.execute(select(system_settings.c.key, system_settings.c.value))
        return {row.key: row.value for row in found}


async def put(its: World, key: str, value: str) -> None:
    """As any other program would."""
    async with its.music.database.transaction() as connection:
        await connection.execute(
            update(system_settings).where(system_settings.c.key == key).values(value=value)
        )


async def in_force(its: World) -> tuple[list[int | None], list[float]]:
    """Jobs at once, and job starts, of the three queues."""
    inspect, starts = its.music.app.inspect, its.music.pools.starts
    queues = (FULL, METADATA, EMBEDDING)
    return (
        [(await inspect.queue(queue)).settings.concurrency for queue in queues],
        [(await inspect.pool(starts[queue].name)).limits[0].amount for queue in queues],
    )
