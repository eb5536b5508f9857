"""`db copy` underneath: what is interrupted goes on, what changes meanwhile is told (U5 to U7)."""

from __future__ import annotations

import pytest

from tidemill.core.courses import Advance, Kind, Next
from tidemill.core.filters import Filter
from tidemill.core.job import Group
from tidemill.errors import ConfigurationError
from tidemill.inspect import copying
from tidemill.inspect.copying import copy
from tidemill.stores.memory import MemoryStore
from tidemill.testing.conformance.driver import Driver, ids, new
from tidemill.testing.manual import ManualClock


class Interrupted(Exception):
    pass


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def source(clock: ManualClock) -> MemoryStore:
    store = await MemoryStore(clock=clock).open()
    await Driver(store, clock).ended(*(f"old{number}" for number in range(5)))
    await Driver(store, clock).add(*(f"new{number}" for number in range(5)))
    clock.advance(60.0)
    return store


def begins(kind: Kind, id_: str) -> Advance:
    return Advance(kind=kind, id=id_, expected=0, next=Next(name="dub", state="running", record=b"{}"))


async def order(store: MemoryStore) -> list[str]:
    return ids((await store.find(Filter(), 100)).jobs)


async def test_an_interrupted_copy_goes_on(
    source: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "JOBS_AT_ONCE", 3)
    target = await MemoryStore(clock=clock).open()

    def stop(done: int) -> None:
        if done == 6:
            raise Interrupted

    with pytest.raises(Interrupted):
        await copy(source, target, tell=stop)
    assert len(await order(target)) == 6
    told: list[int] = []
    copied = await copy(source, target, resume=True, tell=told.append)
    assert (copied.jobs, copied.differences, told) == (10, (), [3, 6, 9, 10])
    assert await order(target) == await order(source)
    assert await target.history("q", 0.0) == await source.history("q", 0.0)


async def test_flows_schedules_and_records_come_page_by_page(
    source: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "COURSES_AT_ONCE", 2)
    for number in range(5):
        await source.advance([begins(kind, f"c{number}") for kind in Kind])
    target = await MemoryStore(clock=clock).open()
    copied = await copy(source, target)
    assert (copied.flows, copied.schedules, copied.records, copied.differences) == (5, 5, 5, ())
    for kind in Kind:
        assert await target.find_courses(kind) == await source.find_courses(kind)


async def test_a_flow_that_came_meanwhile_is_told(source: MemoryStore, clock: ManualClock) -> None:
    target = await MemoryStore(clock=clock).open()
    await target.advance([begins(Kind.FLOW, "f")])
    with pytest.raises(ConfigurationError, match="it has flows"):
        await copy(source, target)
    copied = await copy(source, target, resume=True)
    assert copied.differences == ("there are 0 running flows in the source and 1 in the target",)


async def test_no_step_is_a_large_one(
    source: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "BYTES_AT_ONCE", 30)
    told: list[int] = []
    await copy(source, await MemoryStore(clock=clock).open(), tell=told.append)
    assert told == [2, 4, 6, 8, 10]


async def test_what_comes_or_goes_meanwhile_is_told(source: MemoryStore, clock: ManualClock) -> None:
    target = await MemoryStore(clock=clock).open()

    def meanwhile(_done: int) -> None:
        target.blocking.insert([Group("other", (new("x"),))])

    copied = await copy(source, target, tell=meanwhile)
    assert copied.differences == ("queue 'other' has 0 ready jobs in the source and 1 in the target",)
