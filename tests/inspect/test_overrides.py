"""Overrides and pauses: code declares, people override; invalid input changes nothing."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.inspect.support import ManualWorker
from tidemill import ConfigurationError, Inspector, QueueSettings, Retention, Task, Tidemill
from tidemill.testing import ManualClock

Refresh = Task[[str], None]


async def test_an_override_applies_and_has_author_reason_and_end(
    app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker, clock: ManualClock
) -> None:
    for number in range(3):
        await refresh.enqueue(f"{number}")
    until = clock.wall() + 60
    queue = await app_inspector.override(
        "feeds", by="ann", reason="slow provider", until=until, concurrency=1
    )
    assert queue.settings.concurrency == 1
    assert queue.declared == QueueSettings()
    assert queue.override is not None
    assert queue.override.changes.given() == {"concurrency": 1}
    assert (queue.override.by, queue.override.reason) == ("ann", "slow provider")
    assert (queue.override.since, queue.override.until) == (clock.wall(), until)
    assert len(await manual_worker.claim(3)) == 1
    clock.advance(60)
    queue = await app_inspector.queue("feeds")
    assert (queue.override, queue.settings.concurrency) == (None, None)


async def test_overrides_of_two_people_are_merged(app_inspector: Inspector, clock: ManualClock) -> None:
    until = clock.wall() + 60
    await app_inspector.override("feeds", by="ann", reason="slow", until=until, concurrency=1, weight=3)
    queue = await app_inspector.override("feeds", by="bo", concurrency=2, keep_done=Retention(age=60.0))
    assert queue.override is not None
    assert queue.override.changes.given() == {
        "weight": 3,
        "concurrency": 2,
        "keep_done": Retention(age=60.0),
    }
    assert (queue.override.by, queue.override.reason, queue.override.until) == ("bo", None, until)
    queue = await app_inspector.override("feeds", by="bo", until=None, max_length=9)
    assert queue.override is not None
    assert queue.override.until is None
    assert queue.settings.max_length == 9


async def test_an_override_can_remove_a_declared_limit(app: Tidemill, app_inspector: Inspector) -> None:
    app.queue("slow", concurrency=1)
    queue = await app_inspector.override("slow", by="ann", concurrency=None)
    assert (queue.settings.concurrency, queue.declared.concurrency) == (None, 1)


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{folder}/jobs.db"])
async def test_concurrent_overrides_are_merged(url: str, tmp_path: Path) -> None:
    app = Tidemill(url.format(folder=tmp_path))
    app.queue("feeds")
    async with app:
        for _ in range(5):
            await app.inspect.clear_override("feeds")
            await asyncio.gather(
                app.inspect.override("feeds", by="ann", concurrency=5),
                app.inspect.override("feeds", by="bo", max_length=9),
            )
            override = (await app.inspect.queue("feeds")).override
            assert override is not None
            assert override.changes.given() == {"concurrency": 5, "max_length": 9}


async def test_an_override_is_cleared_by_name_or_as_a_whole(app_inspector: Inspector) -> None:
    await app_inspector.override("feeds", by="ann", reason="slow", concurrency=1, weight=3)
    queue = await app_inspector.clear_override("feeds", "weight")
    assert (queue.settings.concurrency, queue.settings.weight) == (1, 1)
    assert queue.override is not None
    assert (queue.override.by, queue.override.reason) == ("ann", "slow")
    queue = await app_inspector.clear_override("feeds", "concurrency")
    assert queue.override is None
    await app_inspector.override("feeds", by="ann", concurrency=1, weight=3)
    assert (await app_inspector.clear_override("feeds")).override is None
    assert (await app_inspector.clear_override("feeds")).override is None


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"concurency": 1}, "unknown option 'concurency'; valid options are weight, concurrency,"),
        ({"weight": 0}, "weight: must be a whole number, 1 or more, is 0"),
        ({"weight": None}, "weight"),
        ({"concurrency": "two"}, "concurrency"),
        ({"keep_done": 60}, "keep_done"),
        ({}, "name at least one setting"),
    ],
)
async def test_an_invalid_override_changes_nothing(
    app_inspector: Inspector, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        await app_inspector.override("feeds", by="ann", **options)
    assert (await app_inspector.queue("feeds")).override is None


async def test_clearing_an_unknown_setting_is_refused(app_inspector: Inspector) -> None:
    await app_inspector.override("feeds", by="ann", concurrency=1)
    with pytest.raises(ConfigurationError, match="unknown option 'wait'"):
        await app_inspector.clear_override("feeds", "wait")
    assert (await app_inspector.queue("feeds")).override is not None


async def test_a_time_is_a_number_or_a_datetime_with_a_zone_in_the_future(
    app_inspector: Inspector, clock: ManualClock
) -> None:
    end = datetime.fromtimestamp(clock.wall() + 60, UTC)
    await app_inspector.pause("feeds", until=end)
    pause = (await app_inspector.queue("feeds")).pause
    assert pause is not None
    assert pause.until == end.timestamp()
    wrong: list[tuple[Any, str]] = [
        (end.replace(tzinfo=None), "until: a datetime needs a time zone"),
        ("tomorrow", "until: must be a Unix time or a datetime"),
        (clock.wall() - 5, "until: must be in the future, is 5 s ago"),
        (float("nan"), "until: must be in the future"),
    ]
    for value, problem in wrong:
        with pytest.raises(ConfigurationError, match=problem):
            await app_inspector.pause("feeds", until=value)
        with pytest.raises(ConfigurationError, match=problem):
            await app_inspector.override("feeds", by="ann", until=value, weight=2)
    queue = await app_inspector.queue("feeds")
    assert (queue.pause, queue.override) == (pause, None)


async def test_history_since_a_datetime(app_inspector: Inspector) -> None:
    assert await app_inspector.history("feeds", datetime(2020, 1, 1, tzinfo=UTC)) == []
    with pytest.raises(ConfigurationError, match="since: a datetime needs a time zone"):
        await app_inspector.history("feeds", datetime(2020, 1, 1))  # noqa: DTZ001 - the mistake
