"""Settings of the environment, and those of the table, which workers follow."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import delete, select, update

from tests.apps.music.virtual_kit import MusicEnvironment, music_environment
from tidemill import ConfigurationError, TimeOfDay
from tidemill_apps.common.live_settings import LiveSettingsTable
from tidemill_apps.music.limits import EMBEDDING_QUEUE, FULL_QUEUE, METADATA_QUEUE, LiveSettingsSync
from tidemill_apps.music.pipeline_control import PipelineStartRequest
from tidemill_apps.music.settings import LiveSettings, load_settings
from tidemill_apps.music.tables import system_settings


def test_without_a_word_it_is_the_source_s_own() -> None:
    settings = load_settings({})
    assert (settings.calls.per_minute, settings.metadata_starts, settings.embedding_starts) == (5, 2, 10)
    assert (settings.calls.zone, settings.calls.breaker_seconds, settings.resumes) == (
        "America/Los_Angeles",
        120.0,
        None,
    )


def test_variables_by_name() -> None:
    settings = load_settings(
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
        load_settings({variable: value})
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
        load_settings({"MUSIC_SUBSONIC_URL": "https://music.example", **given})
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
        load_settings({variable: value})
    assert str(refused.value).startswith(sentence)


async def test_workers_follow_the_table(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 100) as env:
        await env.start(limit=10)
        await put(env, "queue_concurrency", "3")
        await put(env, "queue_rate_limit_max", "7")
        await put(env, "queue_batch_size", "5")
        await env.music.settings_sync.apply()
        assert await in_force(env) == ([3, 3, 3], [7, 7, 10])
        view = await env.music.app.inspect.queue(FULL_QUEUE)
        assert view.override is not None
        assert view.override.by == "music settings"
        assert (await env.pipeline.preview(PipelineStartRequest(skip_sync=True))).jobs == 18


async def test_an_invalid_settings_row_is_reported_and_changes_nothing(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 10) as env:
        await env.start()
        await put(env, "queue_concurrency", "3")
        await env.music.settings_sync.apply()
        await put(env, "queue_concurrency", "many")
        await put(env, "queue_batch_size", "0")
        await env.music.settings_sync.apply()
        assert (await in_force(env))[0] == [3, 3, 3]
        problems = (await env.call("GET", "/api/queue/status")).json["problems"]
        size, at_once = problems
        assert size == (
            "system_settings: queue_batch_size is '0', must be songs in one job, from 1 to 100; "
            "10 holds until it is corrected"
        )
        assert at_once.startswith("system_settings: queue_concurrency is 'many', must be jobs of one queue")
        assert at_once.endswith("3 holds until it is corrected")


async def test_after_a_restart_a_row_that_cannot_hold_leaves_what_is_in_force(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 10) as env:
        await env.start()
        await put(env, "queue_concurrency", "3")
        await put(env, "queue_rate_limit_max", "7")
        await env.music.settings_sync.apply()
        await put(env, "queue_concurrency", "many")
        await put(env, "queue_rate_limit_max", "-1")
        restarted = LiveSettingsTable(env.music.library.flags, LiveSettings())
        await LiveSettingsSync(env.music.app, restarted, env.music.pools).apply()
        assert await in_force(env) == ([3, 3, 3], [7, 7, 10])


async def test_the_dashboard_writes_to_the_table(tmp_path: Path) -> None:
    async with music_environment(tmp_path) as env:
        answer = await env.call("PUT", "/api/v1/settings/queue_batch_size", {"value": 20}, who="admin")
        assert answer.status < 300, answer.text
        assert (await rows(env))["queue_batch_size"] == "20"
        answer = await env.call("PUT", "/api/v1/settings/queue_batch_size", {"value": 0}, who="admin")
        assert answer.status == 422
        assert (await rows(env))["queue_batch_size"] == "20"


async def test_a_row_that_was_removed_comes_back_with_what_is_written(tmp_path: Path) -> None:
    async with music_environment(tmp_path) as env:
        async with env.music.database.transaction() as connection:
            await connection.execute(delete(system_settings))
        assert (await env.music.live_settings.read()).live == LiveSettings()
        await env.music.live_settings.write("queue_batch_size", 4)
        assert (await env.music.live_settings.read()).live.queue_batch_size == 4


async def rows(env: MusicEnvironment) -> dict[str, str]:
    async with env.music.database.reading() as connection:
        found = await connection.execute(select(system_settings.c.key, system_settings.c.value))
        return {row.key: row.value for row in found}


async def put(env: MusicEnvironment, key: str, value: str) -> None:
    """Writes a setting like any other program."""
    async with env.music.database.transaction() as connection:
        await connection.execute(
            update(system_settings).where(system_settings.c.key == key).values(value=value)
        )


async def in_force(env: MusicEnvironment) -> tuple[list[int | None], list[float]]:
    """Returns the concurrency and the start rate of the three queues."""
    inspect, starts = env.music.app.inspect, env.music.pools.starts
    queues = (FULL_QUEUE, METADATA_QUEUE, EMBEDDING_QUEUE)
    return (
        [(await inspect.queue(queue)).settings.concurrency for queue in queues],
        [(await inspect.pool(starts[queue].name)).limits[0].amount for queue in queues],
    )
