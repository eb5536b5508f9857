"""The store is gone, and perhaps a channel too: whoever can be reached is told, each time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.telling.support import an_app, until
from tidemill.telemetry.events import StoreBack, StoreLost
from tidemill.telling.alerts import direct
from tidemill.telling.alerts.channels import NotSent
from tidemill.telling.alerts.direct import Direct
from tidemill.telling.alerts.wording import Message
from tidemill.testing import ManualClock


class Channel:
    def __init__(self, error: Exception | None = None) -> None:
        self.got: list[str] = []
        self.tried = 0
        self.error = error

    def send(self, message: Message, wall: float) -> None:
        del wall
        self.tried += 1
        if self.error is not None:
            raise self.error
        self.got.append(message.title)


class World:
    def __init__(self, clock: ManualClock) -> None:
        app = an_app(clock)
        app.alert("store lost", on="store_lost", above=0.0)
        self.works, self.dead = Channel(), Channel(NotSent("down"))
        channels: Any = {"dead": self.dead, "works": self.works}
        app.telling.channels = channels
        self.failed: list[str] = []
        self.direct = Direct(
            app.telling,
            "one",
            clock.wall,
            sent=lambda *_: None,
            failed=lambda name, _: self.failed.append(name),
        )

    def lost(self, worker: str = "one") -> None:
        self.direct.lost(StoreLost(worker=worker, outcomes=0, error="E", message="gone"))

    def back(self, worker: str = "one") -> None:
        self.direct.back(StoreBack(worker=worker, seconds=1.0))


@pytest.fixture
async def world(clock: ManualClock) -> AsyncIterator[World]:
    world = World(clock)
    yield world
    await world.direct.close()


async def test_a_channel_that_is_down_hides_no_loss_from_the_others(world: World) -> None:
    for times in (1, 2):
        world.lost()
        await until(lambda: len(world.works.got) == 2 * times - 1)  # noqa: B023 - awaited here
        world.back()
        await until(lambda: len(world.works.got) == 2 * times)  # noqa: B023 - awaited here
    assert ["(over)" in title for title in world.works.got] == [False, True, False, True]
    assert set(world.failed) == {"dead"}


async def test_a_channel_that_breaks_in_whatever_way_is_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "TRY_AGAIN_AFTER", 0.01)
    world.dead.error = ValueError("no host of that name")
    world.lost()
    await until(lambda: world.dead.tried > 1)
    world.dead.error = None
    await until(lambda: len(world.dead.got) == 1)


async def test_each_worker_of_a_process_speaks_for_itself(world: World) -> None:
    under_way = asyncio.all_tasks()
    world.lost("other")
    await asyncio.sleep(0)  # what is wanted from any thread is begun on the loop
    assert asyncio.all_tasks() == under_way
    world.lost()
    await until(lambda: len(world.works.got) == 1)
    saying = asyncio.all_tasks()
    world.back("other")
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == saying


async def test_who_has_closed_says_nothing_more(world: World) -> None:
    before = asyncio.all_tasks()
    world.lost()
    await until(lambda: len(world.works.got) == 1)
    assert asyncio.all_tasks() > before
    await world.direct.close()
    assert asyncio.all_tasks() == before
