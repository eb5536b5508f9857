"""Pages and counts that stop at the scan limit say so."""

from __future__ import annotations

import pytest

from tests.inspect.support import ManualWorker
from tidemill import Inspector, Task, Tidemill
from tidemill.core.filters import Filter
from tidemill.core.jobs import Error
from tidemill.core.outcomes import FinalFailure, RetryLater, Success
from tidemill.core.states import State
from tidemill.errors import ConfigurationError
from tidemill.inspect import jobs
from tidemill.inspect.queues import RELOAD_SECONDS
from tidemill.inspect.views import JobCount
from tidemill.testing import ManualClock

Refresh = Task[[str], None]
OOPS = Error("ValueError", "oops")


async def test_a_partial_page_says_so_and_has_a_cursor(app_inspector: Inspector, refresh: Refresh) -> None:
    first = (await refresh.enqueue("oak")).id
    for _ in range(9):
        await refresh.enqueue("elm")
    page = await app_inspector.find(Filter(text="oak"), scan_limit=4)
    assert (page.jobs, page.partial) == ((), True)
    page = await app_inspector.find(Filter(text="oak"), scan_limit=6, cursor=page.cursor)
    assert ([job.id for job in page.jobs], page.partial, page.cursor) == ([first], False, None)
    assert [job.id for job in (await app_inspector.find(Filter(text="oak"), scan_limit=None)).jobs] == [first]


async def test_a_count_that_stops_says_so(app_inspector: Inspector, refresh: Refresh) -> None:
    for number in range(10):
        await refresh.using(tags=["odd"] if number % 2 else []).enqueue("a")
    assert await app_inspector.count(Filter(tag="odd"), scan_limit=4) == JobCount(2, more=True)
    assert await app_inspector.count(Filter(tag="odd"), scan_limit=10) == JobCount(5)
    assert await app_inspector.count(Filter(tag="none"), scan_limit=4) == JobCount(0, more=True)
    assert await app_inspector.count(Filter(tag="odd"), scan_limit=None) == JobCount(5)
    assert await app_inspector.count(Filter(states=(State.READY,)), scan_limit=1) == JobCount(10), (
        "counted by the store"
    )


async def test_a_count_stops_at_its_maximum(
    app_inspector: Inspector, refresh: Refresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "MAX_COUNTED_JOBS", 3)
    for _ in range(5):
        await refresh.using(tags=["x"]).enqueue("a")
    assert await app_inspector.count(Filter(tag="x")) == JobCount(3, more=True)


def test_a_count_as_text() -> None:
    assert [str(count) for count in (JobCount(0), JobCount(3), JobCount(3, more=True))] == [
        "0",
        "3",
        "3 or more",
    ]
    assert [bool(count) for count in (JobCount(0), JobCount(1), JobCount(0, more=True))] == [
        False,
        True,
        True,
    ]


async def test_the_scan_limit_must_be_positive(app_inspector: Inspector) -> None:
    with pytest.raises(ConfigurationError, match="scan_limit: must be 1 or more"):
        await app_inspector.find(Filter(), scan_limit=0)
    with pytest.raises(ConfigurationError, match="scan_limit: must be 1 or more"):
        await app_inspector.count(Filter(text="a"), scan_limit=0)


async def test_i28_cached_counters_equal_a_recount(
    app: Tidemill, app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker, clock: ManualClock
) -> None:
    for pause in (1.0, 60.0, 59.0, 3600.0, 86_000.0, 30.0, RELOAD_SECONDS, 500.0):
        for _ in range(3):
            await refresh.enqueue("a")
        await manual_worker.run(Success(), FinalFailure(OOPS), RetryLater(10_000.0, OOPS))
        assert await app_inspector.queues(cached=True) == await app_inspector.queues()
        assert await app_inspector.queue("feeds", cached=True) == await app_inspector.queue("feeds")
        assert (await app_inspector.overview(cached=True)).queues == (await app_inspector.overview()).queues
        clock.advance(pause)
