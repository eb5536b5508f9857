"""A store that gives the verbs no more than they ask for, row by row, keeps every contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import TypeVar

import pytest

from tests.engine.store import LookingStore
from tidemill.contract.store import Store
from tidemill.engine.plans import Plan
from tidemill.engine.records import Records
from tidemill.stores.memory import MemoryStore
from tidemill.testing.conformance import *  # noqa: F403 - the suite is meant to be taken whole
from tidemill.testing.conformance.driver import Driver
from tidemill.testing.conformance.fixtures import Arrive, MakeStore
from tidemill.testing.conformance.lockstep import arrive_in_memory, run_lockstep

T = TypeVar("T")


@pytest.fixture
def make_store() -> MakeStore:
    return LookingStore


@pytest.fixture
def arrive() -> Arrive:
    async def arrive(store: Store, job: str, task: str, payload: bytes, options: bytes) -> None:
        assert isinstance(store, MemoryStore)
        store.arrive(job, task, payload, options)

    return arrive


class StingyStore(LookingStore):
    """Of every order it gives one, and every other commit is refused once."""

    usual = 1

    async def step(self, plan: Plan, verb: Callable[[Records], T], *, repeatable: bool = True) -> T:
        self._turns = not getattr(self, "_turns", False)
        self.refusals[:] = [True] * self._turns
        return await super().step(plan, verb, repeatable=repeatable)


def test_lockstep_with_memory() -> None:
    run_lockstep(LookingStore, arrive_in_memory)


def test_lockstep_of_a_store_that_has_to_be_asked_for_everything() -> None:
    run_lockstep(StingyStore, arrive_in_memory)


async def test_i5_a_claim_that_is_tried_again_has_a_fence_of_its_own(store: Store, drive: Driver) -> None:
    """Else a job that was claimed and given back between the tries would be claimed with a lower one."""
    assert isinstance(store, LookingStore)
    await drive.add("a")
    store.refusals[:] = [True]
    with store.verb() as records:
        given = counted_from(records)
        await drive.take_one()
    assert next(given) == 3, "two were given for one claim"


def counted_from(records: Records) -> Iterator[int]:
    """Fences that were asked for."""
    fences, real = count(1), records.next_fence
    records.next_fence = lambda: (next(fences), real())[1]  # type: ignore[method-assign]
    return fences
