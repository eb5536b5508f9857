"""The store took an advance and its reply was lost: the worker that ended the flow still emits the end,
once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from tests.flows.support import Studio, dub, state
from tidemill import Tidemill
from tidemill.core.documents import Advance, AdvanceResult, DocumentKind
from tidemill.core.flow_progress import FINAL_FLOW_STATES, FlowState
from tidemill.errors import StoreUnavailable
from tidemill.flows.advance_pass import AdvancePass, UnconfirmedAdvances
from tidemill.stores.memory import MemoryStore
from tidemill.telemetry.events import FlowEnded
from tidemill.testing.kit import AsyncKit

LoseReply = Callable[[bool], list[Advance]]


@pytest.fixture
def ended(app: Tidemill) -> list[FlowEnded]:
    ended: list[FlowEnded] = []
    app.on(FlowEnded)(ended.append)
    return ended


@pytest.fixture
def lose_reply(monkeypatch: pytest.MonkeyPatch) -> LoseReply:
    """Loses the next advance that ends a flow: its reply, or with `is_request` the request. Returns the lost
    advances."""

    def start(is_request: bool) -> list[Advance]:
        inner = MemoryStore.advance
        lost: list[Advance] = []

        async def advance(self: MemoryStore, advances: Sequence[Advance]) -> list[AdvanceResult]:
            ends = [one for one in advances if one.next is not None and one.next.state in FINAL_FLOW_STATES]
            if lost or not ends:
                return await inner(self, advances)
            lost.extend(ends)
            if not is_request:
                await inner(self, advances)
            raise StoreUnavailable("no answer came")

        monkeypatch.setattr(MemoryStore, "advance", advance)
        return lost

    return start


@pytest.mark.parametrize("is_request", [False, True], ids=["the reply", "the request"])
async def test_a_lost_advance_that_ends_a_flow_emits_its_end_once(
    app: Tidemill,
    studio: Studio,
    kit: AsyncKit,
    ended: list[FlowEnded],
    *,
    lose_reply: LoseReply,
    is_request: bool,
) -> None:
    lost = lose_reply(is_request)
    handle = await dub(app, studio)
    await kit.run_for(60, check=False)
    assert len(lost) == 1, "the fault did not happen"
    assert await state(handle) is FlowState.DONE
    assert [(one.flow, one.state) for one in ended] == [("dub/v", "done")]


async def test_a_flow_that_another_worker_ended_is_not_emitted_again(
    app: Tidemill, studio: Studio, kit: AsyncKit, lose_reply: LoseReply
) -> None:
    """Both read the same changes. The request of the first was lost, the second got its reply."""
    ended: list[str] = []
    flow = app.flow("dub", key="v")
    flow.add(studio.extract, video="v")
    await flow.enqueue()
    studio.broken.add("extract")
    await app.inspect.cancel("dub/v/extract/0")
    lost = lose_reply(True)
    unconfirmed = UnconfirmedAdvances("first")
    first = AdvancePass(
        app.store, app.tasks, unconfirmed=unconfirmed, listener=lambda *_: ended.append("first")
    )
    with pytest.raises(StoreUnavailable):
        await first.run()
    await first.resolve_unconfirmed()
    assert (len(lost), ended, unconfirmed.flows) == (1, [], ["dub/v"]), "it may still be under way"
    second = AdvancePass(
        app.store,
        app.tasks,
        unconfirmed=UnconfirmedAdvances("second"),
        listener=lambda *_: ended.append("second"),
    )
    await second.run()
    await first.resolve_unconfirmed()
    assert (ended, unconfirmed.flows) == (["second"], [])


async def test_an_advance_that_arrives_late_is_emitted_once(
    app: Tidemill, studio: Studio, kit: AsyncKit, lose_reply: LoseReply
) -> None:
    """The flow was unchanged when the sender checked, so it is sent again; the store takes the first of the
    two."""
    ended: list[str] = []
    await dub(app, studio)
    await app.inspect.cancel("dub/v/extract/0")
    lost, unconfirmed = lose_reply(True), UnconfirmedAdvances("first")
    with pytest.raises(StoreUnavailable):
        await AdvancePass(app.store, app.tasks, unconfirmed=unconfirmed).run()
    await app.store.advance(lost)
    again = AdvancePass(
        app.store, app.tasks, unconfirmed=unconfirmed, listener=lambda *_: ended.append("resolved")
    )
    await again.run(["dub/v"])
    await again.resolve_unconfirmed()
    assert (ended, unconfirmed.flows) == (["resolved"], [])


@pytest.mark.parametrize("is_request", [False, True], ids=["the reply", "the request"])
async def test_a_lost_cancel_emits_the_end_once(
    app: Tidemill,
    studio: Studio,
    kit: AsyncKit,
    ended: list[FlowEnded],
    *,
    lose_reply: LoseReply,
    is_request: bool,
) -> None:
    handle = await dub(app, studio)
    lost = lose_reply(is_request)
    assert await handle.cancel("enough")
    assert len(lost) == 1
    assert [(one.flow, one.state) for one in ended] == [("dub/v", "cancelled")]


async def test_a_lost_cancel_is_repeated_after_another_write(
    app: Tidemill, studio: Studio, kit: AsyncKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is lost, and the next revision of the flow is not the requested cancel."""
    handle = await dub(app, studio)
    inner, lost = MemoryStore.advance, list[Advance]()

    async def advance(self: MemoryStore, advances: Sequence[Advance]) -> list[AdvanceResult]:
        [one] = advances
        if lost or one.next is None or one.next.state is not FlowState.CANCELLED:
            return await inner(self, advances)
        lost.append(one)
        [document] = await self.documents(DocumentKind.FLOW, [one.id])
        assert document is not None
        changed = replace(one.next, state=document.state, record=document.record)
        assert (await inner(self, [replace(one, next=changed)]))[0].done
        raise StoreUnavailable("no answer came")

    monkeypatch.setattr(MemoryStore, "advance", advance)
    assert await handle.cancel("enough")
    assert len(lost) == 1
    assert await state(handle) is FlowState.CANCELLED
    await kit.run_for(60, check=False)
    assert studio.ran == []


async def test_a_lost_start_of_a_flow_without_work_emits_its_end_once(
    app: Tidemill, studio: Studio, kit: AsyncKit, ended: list[FlowEnded], lose_reply: LoseReply
) -> None:
    lost = lose_reply(False)
    flow = app.flow("dub", key="v")
    flow.map(studio.speak, line=[])
    handle = await flow.enqueue()
    assert (len(lost), handle.existing) == (1, False)
    assert [(one.flow, one.state) for one in ended] == [("dub/v", "done")]


async def test_a_worker_stopped_during_an_advance_emits_the_end(
    app: Tidemill, studio: Studio, ended: list[FlowEnded], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker stops after its last job is settled, while the end of that job's flow is being sent."""
    inner = MemoryStore.advance
    async with app:
        worker = app.worker(heartbeat_thread=False, isolation=False)

        async def advance(self: MemoryStore, advances: Sequence[Advance]) -> list[AdvanceResult]:
            answers = await inner(self, advances)
            if any(one.next is not None and one.next.state in FINAL_FLOW_STATES for one in advances):
                worker.stop()
                await asyncio.Event().wait()
            return answers

        monkeypatch.setattr(MemoryStore, "advance", advance)
        await dub(app, studio)
        await worker.run()
    assert [(one.flow, one.state) for one in ended] == [("dub/v", "done")]
