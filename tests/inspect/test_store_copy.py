"""Copying a store: an interrupted copy continues, and changes during the copy are reported (U5 to U7)."""

from __future__ import annotations

import pytest

from tidemill.core.documents import Advance, DocumentKind, DocumentUpdate
from tidemill.core.filters import Filter
from tidemill.core.jobs import JobGroup
from tidemill.errors import ConfigurationError
from tidemill.inspect import store_copy
from tidemill.inspect.store_copy import copy_store
from tidemill.stores.memory import MemoryStore
from tidemill.testing.clocks import ManualClock
from tidemill.testing.conformance.fixtures import StoreDriver, ids, new_job


class Interrupted(Exception):
    pass


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def source(clock: ManualClock) -> MemoryStore:
    store = await MemoryStore(clock=clock).open()
    await StoreDriver(store, clock).ended(*(f"old{number}" for number in range(5)))
    await StoreDriver(store, clock).add(*(f"new{number}" for number in range(5)))
    clock.advance(60.0)
    return store


def create_document(kind: DocumentKind, id_: str) -> Advance:
    return Advance(
        kind=kind, id=id_, expected=0, next=DocumentUpdate(name="dub", state="running", record=b"{}")
    )


async def order(store: MemoryStore) -> list[str]:
    return ids((await store.find(Filter(), 100)).jobs)


async def test_an_interrupted_copy_is_resumed(
    source: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_copy, "JOBS_PER_READ", 3)
    target = await MemoryStore(clock=clock).open()

    def stop(done: int) -> None:
        if done == 6:
            raise Interrupted

    with pytest.raises(Interrupted):
        await copy_store(source, target, on_progress=stop)
    assert len(await order(target)) == 6
    progress: list[int] = []
    copied = await copy_store(source, target, resume=True, on_progress=progress.append)
    assert (copied.jobs, copied.differences, progress) == (10, (), [3, 6, 9, 10])
    assert await order(target) == await order(source)
    assert await target.history("q", 0.0) == await source.history("q", 0.0)


async def test_flows_schedules_and_records_are_copied_page_by_page(
    source: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_copy, "DOCUMENTS_PER_READ", 2)
    for number in range(5):
        await source.advance([create_document(kind, f"c{number}") for kind in DocumentKind])
    target = await MemoryStore(clock=clock).open()
    copied = await copy_store(source, target)
    assert (copied.flows, copied.schedules, copied.records, copied.differences) == (5, 5, 5, ())
    for kind in DocumentKind:
        assert await target.find_documents(kind) == await source.find_documents(kind)


async def test_a_flow_created_during_the_copy_is_reported(source: MemoryStore, clock: ManualClock) -> None:
    target = await MemoryStore(clock=clock).open()
    await target.advance([create_document(DocumentKind.FLOW, "f")])
    with pytest.raises(ConfigurationError, match="it has flows"):
        await copy_store(source, target)
    copied = await copy_store(source, target, resume=True)
    assert copied.differences == ("there are 0 running flows in the source and 1 in the target",)


async def test_transactions_stay_small(
    source: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_copy, "MAX_BYTES_PER_WRITE", 30)
    progress: list[int] = []
    await copy_store(source, await MemoryStore(clock=clock).open(), on_progress=progress.append)
    assert progress == [2, 4, 6, 8, 10]


async def test_jobs_added_or_removed_during_the_copy_are_reported(
    source: MemoryStore, clock: ManualClock
) -> None:
    target = await MemoryStore(clock=clock).open()

    def meanwhile(_done: int) -> None:
        target.blocking.insert([JobGroup("other", (new_job("x"),))])

    copied = await copy_store(source, target, on_progress=meanwhile)
    assert copied.differences == ("queue 'other' has 0 ready jobs in the source and 1 in the target",)
