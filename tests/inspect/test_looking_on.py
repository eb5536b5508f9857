"""Pages and counts that end before everything was looked at, and say so."""

from __future__ import annotations

import pytest

from tests.inspect.support import Hand
from tidemill import Inspector, Task, Tidemill
from tidemill.core.filters import Filter
from tidemill.core.job import Error
from tidemill.core.outcomes import Done, Fail, Retrying
from tidemill.core.states import State
from tidemill.errors import ConfigurationError
from tidemill.inspect import bulk
from tidemill.inspect.days import READ_AGAIN
from tidemill.inspect.views import Count
from tidemill.testing import ManualClock

Refresh = Task[[str], None]
OOPS = Error("ValueError", "oops")


async def test_a_search_that_stops_says_so_and_goes_on(look: Inspector, refresh: Refresh) -> None:
    first = (await refresh.enqueue("oak")).id
    for _ in range(9):
        await refresh.enqueue("elm")
    page = await look.find(Filter(text="oak"), looks=4)
    assert (page.jobs, page.partial) == ((), True)
    page = await look.find(Filter(text="oak"), looks=6, cursor=page.cursor)
    assert ([job.id for job in page.jobs], page.partial, page.cursor) == ([first], False, None)
    assert [job.id for job in (await look.find(Filter(text="oak"), looks=None)).jobs] == [first]


async def test_a_count_that_stops_says_so(look: Inspector, refresh: Refresh) -> None:
    for number in range(10):
        await refresh.using(tags=["odd"] if number % 2 else []).enqueue("a")
    assert await look.count(Filter(tag="odd"), looks=4) == Count(2, more=True)
    assert await look.count(Filter(tag="odd"), looks=10) == Count(5)
    assert await look.count(Filter(tag="none"), looks=4) == Count(0, more=True)
    assert await look.count(Filter(tag="odd"), looks=None) == Count(5)
    assert await look.count(Filter(states=(State.READY,)), looks=1) == Count(10), "counted by the store"


async def test_no_more_are_counted_than_are_quickly_read(
    look: Inspector, refresh: Refresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "COUNTED", 3)
    for _ in range(5):
        await refresh.using(tags=["x"]).enqueue("a")
    assert await look.count(Filter(tag="x")) == Count(3, more=True)


def test_how_a_count_reads() -> None:
    assert [str(count) for count in (Count(0), Count(3), Count(3, more=True))] == ["0", "3", "3 or more"]
    assert [bool(count) for count in (Count(0), Count(1), Count(0, more=True))] == [False, True, True]


async def test_looks_must_be_some(look: Inspector) -> None:
    with pytest.raises(ConfigurationError, match="looks: must be 1 or more"):
        await look.find(Filter(), looks=0)
    with pytest.raises(ConfigurationError, match="looks: must be 1 or more"):
        await look.count(Filter(text="a"), looks=0)


async def test_i28_a_display_that_asks_sparingly_shows_what_a_recount_shows(
    app: Tidemill, look: Inspector, refresh: Refresh, hand: Hand, clock: ManualClock
) -> None:
    for pause in (1.0, 60.0, 59.0, 3600.0, 86_000.0, 30.0, READ_AGAIN, 500.0):
        for _ in range(3):
            await refresh.enqueue("a")
        await hand.run(Done(), Fail(OOPS), Retrying(10_000.0, OOPS))
        assert await look.queues(sparing=True) == await look.queues()
        assert await look.queue("feeds", sparing=True) == await look.queue("feeds")
        assert (await look.overview(sparing=True)).queues == (await look.overview()).queues
        clock.advance(pause)
