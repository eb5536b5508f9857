"""Many schedules at once, on a real clock (S5). `make chaos` takes ten thousand."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from tidemill import Tidemill
from tidemill.schedules.schedule import Outcome
from tidemill.telemetry.events import ScheduleFired, ScheduleSkipped

COUNT = int(os.environ.get("TIDEMILL_SCHEDULES", "1000"))
pytestmark = pytest.mark.alone


class Feeds:
    def __init__(self, url: str) -> None:
        self.app = Tidemill(url)
        self.late: dict[str, float] = {}
        self.ran: dict[int, float] = {}
        self.all_ran = asyncio.Event()

        @self.app.on(ScheduleFired)
        def fired(event: ScheduleFired) -> None:
            self.late[event.schedule] = self.app.clock.wall() - event.tick  # by now its job is in the store

        @self.app.task(name="refresh")
        async def refresh(feed: int, due: float) -> None:
            self.ran[feed] = self.app.clock.wall() - due
            if len(self.ran) == COUNT:
                self.all_ran.set()

        self.refresh = refresh

    async def run(self, spread: float) -> None:
        """All are due within `spread` seconds."""
        async with self.app:
            start = self.app.clock.wall() + 1 + COUNT / 1000
            rows: list[Any] = []
            for feed in range(COUNT):
                due = start + spread * feed / COUNT
                rows.append((f"feed-{feed}", self.refresh.job(feed, due), {"every": 3600, "start": due}))
            await self.app.schedules.upsert_many(rows)
            worker = self.app.worker(concurrency=50)
            running = asyncio.create_task(worker.run())
            await asyncio.wait_for(self.all_ran.wait(), 60)
            worker.stop()
            await running


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A server is started for who asks for it."""
    if request.param in ("redis", "postgres"):
        return str(request.getfixturevalue(f"{request.param}_url"))
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'feeds.db'}"


@pytest.mark.parametrize("url", ["memory", "sqlite"], indirect=True)
async def test_s5_a_thousand_feeds_start_within_five_seconds(url: str) -> None:
    """All of them at the same instant; ten thousand take their time."""
    feeds = Feeds(url)
    await feeds.run(spread=0.0)
    assert len(feeds.late) == COUNT
    assert max(feeds.ran.values()) < 5 * max(1, COUNT / 1000)


async def test_jobs_are_in_the_store_within_a_second_of_their_time(url: str) -> None:
    feeds = Feeds(url)
    skipped: list[ScheduleSkipped] = []
    feeds.app.on(ScheduleSkipped)(skipped.append)
    await feeds.run(spread=COUNT / 500)
    assert max(feeds.late.values()) < 1
    assert [event for event in skipped if event.reason != Outcome.OVERLAP] == []
