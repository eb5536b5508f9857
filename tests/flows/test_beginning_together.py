"""Flows that begin at the same time share calls to the store; nobody's trouble is another's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from tests.flows.support import Studio
from tidemill import FlowHandle, Tidemill
from tidemill.client import beginnings
from tidemill.core.courses import Advance, Advanced
from tidemill.errors import StoreFull, StoreUnavailable
from tidemill.stores.memory import MemoryStore
from tidemill.testing.kits import AsyncKit


class Line:
    """Between the client and its store. Calls wait until it is `open`; the next is answered by `error`."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.error: Exception | None = None
        self.asked = asyncio.Event()


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    line, inner = Line(), MemoryStore.advance

    async def advance(self: MemoryStore, advances: Sequence[Advance]) -> list[Advanced]:
        line.calls.append([one.id for one in advances])
        line.asked.set()
        await line.open.wait()
        error, line.error = line.error, None
        if error is not None:
            raise error
        return await inner(self, advances)

    monkeypatch.setattr(MemoryStore, "advance", advance)
    yield line
    line.open.set()


def begin(app: Tidemill, studio: Studio, key: str) -> asyncio.Task[FlowHandle]:
    flow = app.flow("dub", key=key)
    flow.add(studio.extract, key)
    return asyncio.create_task(flow.enqueue())


async def begin_behind_one(
    app: Tidemill, studio: Studio, line: Line, *keys: str
) -> list[asyncio.Task[FlowHandle]]:
    """The first is under way, and the line is closed behind it until somebody opens it."""
    line.open.clear()
    first = begin(app, studio, "first")
    await line.asked.wait()
    others = [begin(app, studio, key) for key in keys]
    await asyncio.sleep(0)
    return [first, *others]


@pytest.mark.usefixtures("kit")
async def test_who_comes_while_a_call_is_under_way_goes_with_the_next(
    app: Tidemill, studio: Studio, line: Line
) -> None:
    begun = await begin_behind_one(app, studio, line, *map(str, range(100)))
    line.open.set()
    handles = await asyncio.gather(*begun)
    assert [len(call) for call in line.calls] == [1, 100]
    assert not any(handle.existing for handle in handles)


async def test_each_is_answered_for_itself(app: Tidemill, studio: Studio, kit: AsyncKit, line: Line) -> None:
    begun = await begin_behind_one(app, studio, line, "twin", "twin", "other")
    line.open.set()
    handles = await asyncio.gather(*begun)
    assert [handle.existing for handle in handles] == [False, False, True, False]
    await kit.run_until_idle()
    assert studio.ran == ["extract"] * 3


@pytest.mark.usefixtures("kit")
async def test_one_that_is_cancelled_takes_nobody_with_it(app: Tidemill, studio: Studio, line: Line) -> None:
    line.open.clear()
    first, second = begin(app, studio, "first"), begin(app, studio, "second")
    await line.asked.wait()
    first.cancel()
    await asyncio.sleep(0)
    line.open.set()
    assert not (await second).existing
    with pytest.raises(asyncio.CancelledError):
        await first


@pytest.mark.usefixtures("kit")
async def test_what_the_store_refuses_reaches_all_who_were_in_the_call(
    app: Tidemill, studio: Studio, line: Line
) -> None:
    begun = await begin_behind_one(app, studio, line, *map(str, range(3)))
    line.error = StoreFull("no room")
    line.open.set()
    answers = await asyncio.gather(*begun, return_exceptions=True)
    assert isinstance(answers[0], StoreFull)
    assert all(isinstance(answer, FlowHandle) for answer in answers[1:])


async def test_after_an_outage_each_begins_once(
    app: Tidemill, studio: Studio, kit: AsyncKit, line: Line
) -> None:
    line.error = StoreUnavailable("away")
    handles = await asyncio.gather(*(begin(app, studio, f"film-{number}") for number in range(5)))
    assert not any(handle.existing for handle in handles)
    await kit.run_until_idle()
    assert len(studio.ran) == 5


@pytest.mark.usefixtures("kit")
async def test_a_store_that_says_nothing_is_asked_again(
    app: Tidemill, studio: Studio, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beginnings, "ATTEMPT", 0.01)
    line.open.clear()
    begun = begin(app, studio, "first")
    while len(line.calls) < 3:
        line.asked.clear()
        await line.asked.wait()
    line.open.set()
    assert not (await begun).existing


@pytest.mark.usefixtures("kit")
async def test_a_call_takes_no_more_jobs_than_a_step_may(
    app: Tidemill, studio: Studio, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beginnings, "JOBS_AT_ONCE", 4)
    begun = await begin_behind_one(app, studio, line, *map(str, range(10)))
    line.open.set()
    await asyncio.gather(*begun)
    assert [len(call) for call in line.calls] == [1, 4, 4, 2]
