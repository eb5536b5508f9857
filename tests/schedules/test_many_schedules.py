"""Many schedules at once (S5).

Virtual time with a slow store checks how soon they fire. On real stores that depends on the machine;
`make chaos` checks it there with ten thousand schedules."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tidemill import Tidemill
from tidemill.core.documents import Advance, AdvanceResult, DocumentKind, Worklist
from tidemill.schedules.advance_pass import MAX_CHANGES_PER_CALL
from tidemill.stores.memory import MemoryStore
from tidemill.telemetry.events import ScheduleFired, ScheduleSkipped
from tidemill.testing import SeededEntropy, VirtualClock, run_virtual

COUNT = int(os.environ.get("TIDEMILL_SCHEDULES", "600"))
IS_TIMED = "TIDEMILL_SCHEDULES" in os.environ
TRIP = 0.02


class Feeds:
    def __init__(self, app: Tidemill, count: int = COUNT) -> None:
        self.app, self.count = app, count
        self.fired = Counter[str]()
        self.late: list[float] = []
        self.ran: dict[int, float] = {}
        self.skipped: list[ScheduleSkipped] = []
        self.all_ran = asyncio.Event()
        app.on(ScheduleSkipped)(self.skipped.append)

        @app.on(ScheduleFired)
        def fired(event: ScheduleFired) -> None:
            self.fired[event.schedule] += 1
            self.late.append(app.clock.wall() - event.tick)  # by now its job is in the store

        @app.task(name="refresh")
        async def refresh(feed: int, due: float) -> None:
            self.ran[feed] = app.clock.wall() - due
            if len(self.ran) == count:
                self.all_ran.set()

        self.refresh = refresh

    async def run(self, spread: float, **options: Any) -> None:
        """Fires schedules that are all due within `spread` seconds, each once."""
        async with self.app:
            start = self.app.clock.wall() + 1 + self.count / 1000
            rows: list[Any] = []
            for feed in range(self.count):
                due = start + spread * feed / self.count
                rows.append((f"feed-{feed}", self.refresh.job(feed, due), {"every": 3600, "start": due}))
            await self.app.schedules.upsert_many(rows)
            worker = self.app.worker(concurrency=50, **options)
            running = asyncio.create_task(worker.run())
            await asyncio.wait_for(self.all_ran.wait(), 100)
            worker.stop()
            await running
        assert self.skipped == []
        assert self.fired == Counter(f"feed-{feed}" for feed in range(self.count))


class SlowStore(MemoryStore):
    """A store with a delay in every call for schedules."""

    advances = 0

    async def worklist(
        self, kind: DocumentKind, limit: int = 100, ids: Sequence[str] | None = None
    ) -> Worklist:
        await asyncio.sleep(TRIP)
        return await super().worklist(kind, limit, ids)

    async def advance(self, advances: Sequence[Advance]) -> list[AdvanceResult]:
        self.advances += 1
        await asyncio.sleep(TRIP)
        return await super().advance(advances)


@pytest.mark.parametrize("spread", [0.0, 2.0])
def test_s5_a_thousand_feeds_start_within_five_seconds(spread: float) -> None:
    """Their jobs are in the store within one second."""

    async def main() -> None:
        clock = VirtualClock()
        store = SlowStore(clock=clock, entropy=SeededEntropy(2))
        feeds = Feeds(Tidemill(store=store, clock=clock, entropy=SeededEntropy(3)), 1000)
        await feeds.run(spread, heartbeat_thread=False, isolation=False)
        assert max(feeds.late) < 1
        assert max(feeds.ran.values()) < 5
        declared = fired_at_once = 1000 / MAX_CHANGES_PER_CALL
        assert store.advances <= declared + fired_at_once + spread / TRIP

    run_virtual(main())


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Starts a server only for the tests that need it."""
    if request.param in ("redis", "postgres"):
        return str(request.getfixturevalue(f"{request.param}_url"))
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'feeds.db'}"


@pytest.mark.parametrize("url", ["memory", "sqlite"], indirect=True)
async def test_schedules_of_the_same_instant_fire_once_each(url: str) -> None:
    """Ten thousand take longer."""
    feeds = Feeds(Tidemill(url))
    await feeds.run(spread=0.0)
    if IS_TIMED:
        assert max(feeds.ran.values()) < 5 * max(1, COUNT / 1000)


async def test_schedules_one_after_another_fire_once_each(url: str) -> None:
    feeds = Feeds(Tidemill(url))
    await feeds.run(spread=COUNT / 500)
    if IS_TIMED:
        assert max(feeds.late) < 1
