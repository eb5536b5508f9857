"""A store that gives verbs only the rows they ask for, one by one, keeps every contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import TypeVar

import pytest

from tests.engine.store import PrefetchStore
from tidemill.contract.store import Store
from tidemill.engine.read_sets import ReadSet
from tidemill.engine.records import Records
from tidemill.stores.memory import MemoryStore
from tidemill.testing.conformance import *  # noqa: F403 - the suite is meant to be taken whole
from tidemill.testing.conformance.fixtures import Arrive, MakeStore, StoreDriver
from tidemill.testing.conformance.lockstep import arrive_in_memory, run_lockstep

T = TypeVar("T")


@pytest.fixture
def make_store() -> MakeStore:
    return PrefetchStore


@pytest.fixture
def arrive() -> Arrive:
    async def arrive(store: Store, job: str, task: str, payload: bytes, options: bytes) -> None:
        assert isinstance(store, MemoryStore)
        store.arrive(job, task, payload, options)

    return arrive


class StingyStore(PrefetchStore):
    """Returns one key of every order, and refuses every other commit once."""

    usual = 1

    async def step(self, plan: ReadSet, verb: Callable[[Records], T], *, repeatable: bool = True) -> T:
        self._turns = not getattr(self, "_turns", False)
        self.refusals[:] = [True] * self._turns
        return await super().step(plan, verb, repeatable=repeatable)


def test_lockstep_with_memory() -> None:
    run_lockstep(PrefetchStore, arrive_in_memory)


def test_lockstep_of_a_store_that_loads_row_by_row() -> None:
    run_lockstep(StingyStore, arrive_in_memory)


async def test_i5_a_claim_that_is_tried_again_gets_a_new_fence(store: Store, driver: StoreDriver) -> None:
    """Otherwise a job that was claimed and given back between the tries would get a lower fence."""
    assert isinstance(store, PrefetchStore)
    await driver.add("a")
    store.refusals[:] = [True]
    with store.verb() as records:
        given = counted_from(records)
        await driver.take_one()
    assert next(given) == 3, "two were given for one claim"


def counted_from(records: Records) -> Iterator[int]:
    """Yields the allocated fences."""
    fences, real = count(1), records.next_fence
    records.next_fence = lambda: (next(fences), real())[1]  # type: ignore[method-assign]
    return fences
