"""During a store outage every working channel gets its message, also if another channel is down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.notifications.receiver import Receiver, make_app, wait_until
from tests.servers.redis import Redis
from tidemill import Tidemill
from tidemill.notifications import outage_alerts
from tidemill.notifications.alert_channels import ChannelError
from tidemill.notifications.alert_messages import AlertMessage
from tidemill.notifications.outage_alerts import OutageAlerts
from tidemill.telemetry.events import AlertSent, StoreLost, StoreRecovered
from tidemill.testing import ManualClock


class Channel:
    def __init__(self, error: Exception | None = None) -> None:
        self.titles: list[str] = []
        self.tried = 0
        self.error = error

    def send(self, message: AlertMessage, wall: float) -> None:
        del wall
        self.tried += 1
        if self.error is not None:
            raise self.error
        self.titles.append(message.title)


class World:
    def __init__(self, clock: ManualClock) -> None:
        app = make_app(clock)
        app.alert("store lost", on="store_lost", above=0.0)
        self.works, self.dead = Channel(), Channel(ChannelError("down"))
        channels: Any = {"dead": self.dead, "works": self.works}
        app.notifications.channels = channels
        self.failed: list[str] = []
        self.direct = OutageAlerts(
            app.notifications,
            "one",
            clock.wall,
            sent=lambda *_: None,
            failed=lambda name, _: self.failed.append(name),
        )

    def lost(self, worker: str = "one") -> None:
        self.direct.lost(StoreLost(worker=worker, outcomes=0, error="E", message="gone"))

    def back(self, worker: str = "one") -> None:
        self.direct.back(StoreRecovered(worker=worker, seconds=1.0))


@pytest.fixture
async def world(clock: ManualClock) -> AsyncIterator[World]:
    world = World(clock)
    yield world
    await world.direct.close()


async def test_a_channel_that_is_down_hides_no_loss_from_the_others(world: World) -> None:
    for times in (1, 2):
        world.lost()
        await wait_until(lambda: len(world.works.titles) == 2 * times - 1)  # noqa: B023 - awaited here
        world.back()
        await wait_until(lambda: len(world.works.titles) == 2 * times)  # noqa: B023 - awaited here
    assert ["(over)" in title for title in world.works.titles] == [False, True, False, True]
    assert set(world.failed) == {"dead"}


async def test_a_channel_is_retried_after_any_error(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage_alerts, "CHANNEL_RETRY_SECONDS", 0.01)
    world.dead.error = ValueError("no host of that name")
    world.lost()
    await wait_until(lambda: world.dead.tried > 1)
    world.dead.error = None
    await wait_until(lambda: len(world.dead.titles) == 1)


async def test_each_worker_of_a_process_speaks_for_itself(world: World) -> None:
    under_way = asyncio.all_tasks()
    world.lost("other")
    await asyncio.sleep(0)  # `lost` may be called from any thread; it starts the sends on the loop
    assert asyncio.all_tasks() == under_way
    world.lost()
    await wait_until(lambda: len(world.works.titles) == 1)
    saying = asyncio.all_tasks()
    world.back("other")
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == saying


async def test_close_cancels_pending_alerts(world: World) -> None:
    before = asyncio.all_tasks()
    world.lost()
    await wait_until(lambda: len(world.works.titles) == 1)
    assert asyncio.all_tasks() > before
    await world.direct.close()
    assert asyncio.all_tasks() == before


async def test_a_lost_store_is_alerted_directly_and_loses_no_job_s12(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMILL_ALERTS_SLACK_URL", f"{receiver.url}/slack")
    monkeypatch.setenv("TIDEMILL_WEB_PUBLIC_URL", "https://jobs.example")
    receiver.status = 200
    with Redis() as server:
        app = Tidemill(server.url)
        app.alert("store lost", on="store_lost", above=0.2)
        seen: list[object] = []
        ran: list[int] = []
        app.on(StoreLost, StoreRecovered, AlertSent)(seen.append)

        @app.task
        async def note(number: int) -> None:
            ran.append(number)

        async with app:
            await note.enqueue(1)
            worker = app.worker(poll=0.2)
            running = asyncio.create_task(worker.run())
            await wait_until(lambda: ran == [1])
            server.kill()
            await wait_until(lambda: len(receiver.requests) == 1, seconds=30)
            assert [type(event) for event in seen[:1]] == [StoreLost]
            server.start()
            await wait_until(lambda: len(receiver.requests) == 2, seconds=60)
            await note.enqueue(2)
            await wait_until(lambda: ran == [1, 2], seconds=30)
            worker.stop()
            await running
    lost, back = (got.json["text"] for got in receiver.requests)
    assert f"worker {worker.id}: the store has not answered for" in lost
    assert "Rule: store lost" in lost
    assert "Since: " in lost
    assert "Look: https://jobs.example/alerts" in lost
    assert f"Store: {app.url}" in lost
    assert "(over)" in back
