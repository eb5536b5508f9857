"""The queries of a page cost the same with any number of jobs (R3, R8, R11). The test counts SQLite's
steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.stores.page_queries import LIMIT, PAGE_FILTERS, SCAN_LIMIT, fill
from tests.stores.sqlite.conftest import group
from tidemill.core.claims import ClaimRequest, QueueShare, Settlement
from tidemill.core.filters import Filter
from tidemill.core.outcomes import Success
from tidemill.stores.sqlite import SqliteStore, find
from tidemill.stores.sqlite.connection import ReadConnection
from tidemill.testing.clocks import ManualClock

FEW, MANY = 2000, 8000


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lowers the limits, so that thousands of jobs behave like millions."""
    monkeypatch.setattr(find, "MAX_NEWEST_JOBS", SCAN_LIMIT)
    monkeypatch.setattr(find, "MAX_COLLECTED_JOBS", 1500)


async def steps(connection: ReadConnection, ask: Callable[[], Awaitable[Any]]) -> int:
    await ask()  # connects, and prepares
    count = 0

    def counted() -> bool:
        nonlocal count
        count += 1
        return False

    opened = connection._connection
    assert opened is not None
    opened.set_progress_handler(counted, 1)
    await ask()
    opened.set_progress_handler(None)
    return count


async def costs(path: Path, jobs: int) -> dict[str, int]:
    store = await SqliteStore(path / f"{jobs}.db").open()
    await fill(store, jobs)
    found = {
        name: await steps(store._searches, lambda wanted=wanted: store.find(wanted, LIMIT, None, SCAN_LIMIT))  # type: ignore[misc]
        for name, wanted in PAGE_FILTERS.items()
    }
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "counts": store.counts,
        "backlog": lambda: store.backlog("busy"),
        "workers": store.workers,
        "history": lambda: store.history("busy", 0.0),
    }
    found |= {name: await steps(store._reads, ask) for name, ask in calls.items()}
    await store.close()
    return found


async def test_r3_r8_r11_a_page_costs_the_same_with_four_times_as_many_jobs(tmp_path: Path) -> None:
    few, many = await costs(tmp_path, FEW), await costs(tmp_path, MANY)
    dearer = {name: (few[name], many[name]) for name in few if many[name] > 1.3 * few[name] + 500}
    assert not dearer


async def test_r11_jobs_beyond_the_time_bound_are_not_read(path: Path) -> None:
    """`until` is exclusive: jobs that ended exactly then do not count against `scan_limit`."""
    clock = ManualClock()
    store = await SqliteStore(path, clock=clock).open()
    await _end(store, 1, "before-1", "before-2")
    clock.advance(10)
    await _end(store, 2, *(f"at-{number}" for number in range(5)))
    page = await store.find(Filter(time="finished", until=clock.wall()), limit=2, scan_limit=3)
    assert ([job.id for job in page.jobs], page.partial) == (["before-2", "before-1"], False)
    await store.close()


async def _end(store: SqliteStore, number: int, *ids: str) -> None:
    await store.insert([group(*ids)])
    request = ClaimRequest(worker="w", number=number, shares=(QueueShare("default", 9),), limit=9, lease=30.0)
    jobs = (await store.claim(request)).jobs
    await store.settle([Settlement(job.id, job.fence, job.claim, Success()) for job in jobs])
