"""The store did what it was asked, and nobody heard: who ended a flow tells it all the same, and once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from tests.flows.support import Studio, dub, state
from tidemill import Tidemill
from tidemill.core.courses import Advance, Advanced, Kind
from tidemill.core.graph_state import ENDED, FlowState
from tidemill.errors import StoreUnavailable
from tidemill.flows.doubts import Doubts
from tidemill.flows.sweeping import sweep
from tidemill.stores.memory import MemoryStore
from tidemill.telemetry.events import FlowEnded
from tidemill.testing.kits import AsyncKit

Lose = Callable[[bool], list[Advance]]


@pytest.fixture
def told(app: Tidemill) -> list[FlowEnded]:
    told: list[FlowEnded] = []
    app.on(FlowEnded)(told.append)
    return told


@pytest.fixture
def lose(monkeypatch: pytest.MonkeyPatch) -> Lose:
    """The next advance that ends a flow is not answered: because the reply is lost, or, `unasked`, the
    request. What was lost is listed."""

    def begin(unasked: bool) -> list[Advance]:
        inner = MemoryStore.advance
        lost: list[Advance] = []

        async def advance(self: MemoryStore, advances: Sequence[Advance]) -> list[Advanced]:
            ends = [one for one in advances if one.next is not None and one.next.state in ENDED]
            if lost or not ends:
                return await inner(self, advances)
            lost.extend(ends)
            if not unasked:
                await inner(self, advances)
            raise StoreUnavailable("no answer came")

        monkeypatch.setattr(MemoryStore, "advance", advance)
        return lost

    return begin


@pytest.mark.parametrize("unasked", [False, True], ids=["the reply", "the request"])
async def test_of_the_advance_that_ends_a_flow(
    app: Tidemill, studio: Studio, kit: AsyncKit, told: list[FlowEnded], *, lose: Lose, unasked: bool
) -> None:
    lost = lose(unasked)
    handle = await dub(app, studio)
    await kit.run_for(60, check=False)
    assert len(lost) == 1, "the fault did not happen"
    assert await state(handle) is FlowState.DONE
    assert [(one.flow, one.state) for one in told] == [("dub/v", "done")]


async def test_what_somebody_else_ended_the_same_way_is_not_told_again(
    app: Tidemill, studio: Studio, kit: AsyncKit, lose: Lose
) -> None:
    """Both looked at the same ends. The request of the first got lost, and the second was answered."""
    told: list[str] = []
    flow = app.flow("dub", key="v")
    flow.add(studio.extract, video="v")
    await flow.enqueue()
    studio.broken.add("extract")
    await app.inspect.cancel("dub/v/extract/0")
    lost = lose(True)
    doubts = Doubts("first")
    with pytest.raises(StoreUnavailable):
        await sweep(app.store, app.tasks, doubts=doubts, tell=lambda *_: told.append("first"))
    await doubts.settle(app.store, lambda *_: told.append("first"))
    assert (len(lost), told, doubts.flows) == (1, [], ["dub/v"]), "it may still be under way"
    await sweep(app.store, app.tasks, doubts=Doubts("second"), tell=lambda *_: told.append("second"))
    await doubts.settle(app.store, lambda *_: told.append("first"))
    assert (told, doubts.flows) == (["second"], [])


async def test_of_the_advance_that_arrives_after_all(
    app: Tidemill, studio: Studio, kit: AsyncKit, lose: Lose
) -> None:
    """It was still as before when its sender looked, and is sent again: the first of the two is taken."""
    told: list[str] = []
    await dub(app, studio)
    await app.inspect.cancel("dub/v/extract/0")
    lost, doubts = lose(True), Doubts("first")
    with pytest.raises(StoreUnavailable):
        await sweep(app.store, app.tasks, doubts=doubts)
    await app.store.advance(lost)
    await sweep(app.store, app.tasks, ["dub/v"], doubts=doubts, tell=lambda *_: told.append("swept"))
    await doubts.settle(app.store, lambda *_: told.append("settled"))
    assert (told, doubts.flows) == (["settled"], [])


@pytest.mark.parametrize("unasked", [False, True], ids=["the reply", "the request"])
async def test_of_a_cancel(
    app: Tidemill, studio: Studio, kit: AsyncKit, told: list[FlowEnded], *, lose: Lose, unasked: bool
) -> None:
    handle = await dub(app, studio)
    lost = lose(unasked)
    assert await handle.cancel("enough")
    assert len(lost) == 1
    assert [(one.flow, one.state) for one in told] == [("dub/v", "cancelled")]


async def test_of_a_cancel_that_another_writer_forestalled(
    app: Tidemill, studio: Studio, kit: AsyncKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is lost, and the next revision of the flow is not the cancel that was asked for."""
    handle = await dub(app, studio)
    inner, lost = MemoryStore.advance, list[Advance]()

    async def advance(self: MemoryStore, advances: Sequence[Advance]) -> list[Advanced]:
        [one] = advances
        if lost or one.next is None or one.next.state is not FlowState.CANCELLED:
            return await inner(self, advances)
        lost.append(one)
        [course] = await self.courses(Kind.FLOW, [one.id])
        assert course is not None
        touched = replace(one.next, state=course.state, record=course.record)
        assert (await inner(self, [replace(one, next=touched)]))[0].done
        raise StoreUnavailable("no answer came")

    monkeypatch.setattr(MemoryStore, "advance", advance)
    assert await handle.cancel("enough")
    assert len(lost) == 1
    assert await state(handle) is FlowState.CANCELLED
    await kit.run_for(60, check=False)
    assert studio.ran == []


async def test_of_a_flow_that_ends_as_it_begins(
    app: Tidemill, studio: Studio, kit: AsyncKit, told: list[FlowEnded], lose: Lose
) -> None:
    lost = lose(False)
    flow = app.flow("dub", key="v")
    flow.map(studio.speak, line=[])
    handle = await flow.enqueue()
    assert (len(lost), handle.existing) == (1, False)
    assert [(one.flow, one.state) for one in told] == [("dub/v", "done")]


async def test_of_the_advance_a_worker_is_stopped_in(
    app: Tidemill, studio: Studio, told: list[FlowEnded], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves when its last job is settled, and the end of that job's flow is under way."""
    inner = MemoryStore.advance
    async with app:
        worker = app.worker(heartbeat_thread=False, isolation=False)

        async def advance(self: MemoryStore, advances: Sequence[Advance]) -> list[Advanced]:
            answers = await inner(self, advances)
            if any(one.next is not None and one.next.state in ENDED for one in advances):
                worker.stop()
                await asyncio.Event().wait()
            return answers

        monkeypatch.setattr(MemoryStore, "advance", advance)
        await dub(app, studio)
        await worker.run()
    assert [(one.flow, one.state) for one in told] == [("dub/v", "done")]
