"""Overrides and pauses: code declares, people override; bad input changes nothing."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.inspect.support import Hand
from tidemill import ConfigurationError, Inspector, QueueSettings, Retention, Task, Tidemill
from tidemill.testing import ManualClock

Refresh = Task[[str], None]


async def test_an_override_takes_effect_and_says_who_why_and_until_when(
    look: Inspector, refresh: Refresh, hand: Hand, clock: ManualClock
) -> None:
    for number in range(3):
        await refresh.enqueue(f"{number}")
    until = clock.wall() + 60
    queue = await look.override("feeds", by="ann", reason="slow provider", until=until, concurrency=1)
    assert queue.settings.concurrency == 1
    assert queue.declared == QueueSettings()
    assert queue.override is not None
    assert queue.override.changes.given() == {"concurrency": 1}
    assert (queue.override.by, queue.override.reason) == ("ann", "slow provider")
    assert (queue.override.since, queue.override.until) == (clock.wall(), until)
    assert len(await hand.claim(3)) == 1
    clock.advance(60)
    queue = await look.queue("feeds")
    assert (queue.override, queue.settings.concurrency) == (None, None)


async def test_what_two_people_set_holds_together(look: Inspector, clock: ManualClock) -> None:
    until = clock.wall() + 60
    await look.override("feeds", by="ann", reason="slow", until=until, concurrency=1, weight=3)
    queue = await look.override("feeds", by="bo", concurrency=2, keep_done=Retention(age=60.0))
    assert queue.override is not None
    assert queue.override.changes.given() == {
        "weight": 3,
        "concurrency": 2,
        "keep_done": Retention(age=60.0),
    }
    assert (queue.override.by, queue.override.reason, queue.override.until) == ("bo", None, until)
    queue = await look.override("feeds", by="bo", until=None, max_length=9)
    assert queue.override is not None
    assert queue.override.until is None
    assert queue.settings.max_length == 9


async def test_a_limit_can_be_taken_away_from_what_code_declared(app: Tidemill, look: Inspector) -> None:
    app.queue("slow", concurrency=1)
    queue = await look.override("slow", by="ann", concurrency=None)
    assert (queue.settings.concurrency, queue.declared.concurrency) == (None, 1)


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{folder}/jobs.db"])
async def test_what_two_people_set_at_once_holds_together(url: str, tmp_path: Path) -> None:
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


async def test_an_override_is_cleared_by_name_or_as_a_whole(look: Inspector) -> None:
    await look.override("feeds", by="ann", reason="slow", concurrency=1, weight=3)
    queue = await look.clear_override("feeds", "weight")
    assert (queue.settings.concurrency, queue.settings.weight) == (1, 1)
    assert queue.override is not None
    assert (queue.override.by, queue.override.reason) == ("ann", "slow")
    queue = await look.clear_override("feeds", "concurrency")
    assert queue.override is None
    await look.override("feeds", by="ann", concurrency=1, weight=3)
    assert (await look.clear_override("feeds")).override is None
    assert (await look.clear_override("feeds")).override is None


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
async def test_an_override_that_cannot_work_changes_nothing(
    look: Inspector, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        await look.override("feeds", by="ann", **options)
    assert (await look.queue("feeds")).override is None


async def test_clearing_a_setting_there_is_not_is_told(look: Inspector) -> None:
    await look.override("feeds", by="ann", concurrency=1)
    with pytest.raises(ConfigurationError, match="unknown option 'wait'"):
        await look.clear_override("feeds", "wait")
    assert (await look.queue("feeds")).override is not None


async def test_a_time_is_a_number_or_a_datetime_with_a_zone_in_the_future(
    look: Inspector, clock: ManualClock
) -> None:
    end = datetime.fromtimestamp(clock.wall() + 60, UTC)
    await look.pause("feeds", until=end)
    pause = (await look.queue("feeds")).pause
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
            await look.pause("feeds", until=value)
        with pytest.raises(ConfigurationError, match=problem):
            await look.override("feeds", by="ann", until=value, weight=2)
    queue = await look.queue("feeds")
    assert (queue.pause, queue.override) == (pause, None)


async def test_history_since_a_datetime(look: Inspector) -> None:
    assert await look.history("feeds", datetime(2020, 1, 1, tzinfo=UTC)) == []
    with pytest.raises(ConfigurationError, match="since: a datetime needs a time zone"):
        await look.history("feeds", datetime(2020, 1, 1))  # noqa: DTZ001 - the mistake
