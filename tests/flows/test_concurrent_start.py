"""Flows that start at the same time share store calls; an error of one does not affect the others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from tests.flows.support import Studio
from tidemill import FlowHandle, Tidemill
from tidemill.client import enqueuer
from tidemill.core.documents import Advance, AdvanceResult
from tidemill.errors import StoreFull, StoreUnavailable
from tidemill.stores.memory import MemoryStore
from tidemill.testing.kit import AsyncKit


class StoreGate:
    """Stands before the store. Calls wait until it is `open`; the next call raises `error`."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.error: Exception | None = None
        self.called = asyncio.Event()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreGate]:
    gate, inner = StoreGate(), MemoryStore.advance

    async def advance(self: MemoryStore, advances: Sequence[Advance]) -> list[AdvanceResult]:
        gate.calls.append([one.id for one in advances])
        gate.called.set()
        await gate.open.wait()
        error, gate.error = gate.error, None
        if error is not None:
            raise error
        return await inner(self, advances)

    monkeypatch.setattr(MemoryStore, "advance", advance)
    yield gate
    gate.open.set()


def start_flow(app: Tidemill, studio: Studio, key: str) -> asyncio.Task[FlowHandle]:
    flow = app.flow("dub", key=key)
    flow.add(studio.extract, key)
    return asyncio.create_task(flow.enqueue())


async def start_behind_one(
    app: Tidemill, studio: Studio, gate: StoreGate, *keys: str
) -> list[asyncio.Task[FlowHandle]]:
    """Starts one flow and the others behind it; the gate stays closed until the test opens it."""
    gate.open.clear()
    first = start_flow(app, studio, "first")
    await gate.called.wait()
    others = [start_flow(app, studio, key) for key in keys]
    await asyncio.sleep(0)
    return [first, *others]


@pytest.mark.usefixtures("kit")
async def test_flows_that_arrive_during_a_call_share_the_next(
    app: Tidemill, studio: Studio, gate: StoreGate
) -> None:
    started = await start_behind_one(app, studio, gate, *map(str, range(100)))
    gate.open.set()
    handles = await asyncio.gather(*started)
    assert [len(call) for call in gate.calls] == [1, 100]
    assert not any(handle.existing for handle in handles)


async def test_each_flow_gets_its_own_reply(
    app: Tidemill, studio: Studio, kit: AsyncKit, gate: StoreGate
) -> None:
    started = await start_behind_one(app, studio, gate, "twin", "twin", "other")
    gate.open.set()
    handles = await asyncio.gather(*started)
    assert [handle.existing for handle in handles] == [False, False, True, False]
    await kit.run_until_idle()
    assert studio.ran == ["extract"] * 3


@pytest.mark.usefixtures("kit")
async def test_a_cancelled_caller_does_not_affect_the_others(
    app: Tidemill, studio: Studio, gate: StoreGate
) -> None:
    gate.open.clear()
    first, second = start_flow(app, studio, "first"), start_flow(app, studio, "second")
    await gate.called.wait()
    first.cancel()
    await asyncio.sleep(0)
    gate.open.set()
    assert not (await second).existing
    with pytest.raises(asyncio.CancelledError):
        await first


@pytest.mark.usefixtures("kit")
async def test_a_refusal_reaches_every_flow_of_the_call(
    app: Tidemill, studio: Studio, gate: StoreGate
) -> None:
    started = await start_behind_one(app, studio, gate, *map(str, range(3)))
    gate.error = StoreFull("no room")
    gate.open.set()
    answers = await asyncio.gather(*started, return_exceptions=True)
    assert isinstance(answers[0], StoreFull)
    assert all(isinstance(answer, FlowHandle) for answer in answers[1:])


async def test_after_an_outage_each_flow_starts_once(
    app: Tidemill, studio: Studio, kit: AsyncKit, gate: StoreGate
) -> None:
    gate.error = StoreUnavailable("away")
    handles = await asyncio.gather(*(start_flow(app, studio, f"film-{number}") for number in range(5)))
    assert not any(handle.existing for handle in handles)
    await kit.run_until_idle()
    assert len(studio.ran) == 5


@pytest.mark.usefixtures("kit")
async def test_a_call_without_a_reply_is_repeated(
    app: Tidemill, studio: Studio, gate: StoreGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enqueuer, "ATTEMPT_TIMEOUT_SECONDS", 0.01)
    gate.open.clear()
    started = start_flow(app, studio, "first")
    while len(gate.calls) < 3:
        gate.called.clear()
        await gate.called.wait()
    gate.open.set()
    assert not (await started).existing


@pytest.mark.usefixtures("kit")
async def test_a_call_takes_no_more_jobs_than_an_advance_may(
    app: Tidemill, studio: Studio, gate: StoreGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enqueuer, "MAX_JOBS_PER_ADVANCE", 4)
    started = await start_behind_one(app, studio, gate, *map(str, range(10)))
    gate.open.set()
    await asyncio.gather(*started)
    assert [len(call) for call in gate.calls] == [1, 4, 4, 2]
