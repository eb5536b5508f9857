"""A store that gives the verbs no more than they ask for, row by row, keeps every contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from tests.engine.store import LookingStore
from tidemill.contract.store import Store
from tidemill.engine.plans import Plan
from tidemill.engine.records import Records
from tidemill.stores.memory import MemoryStore
from tidemill.testing.conformance import *  # noqa: F403 - the suite is meant to be taken whole
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

    async def _run(self, plan: Plan, verb: Callable[[Records], T]) -> T:
        self._turns = not getattr(self, "_turns", False)
        self.refusals[:] = [True] * self._turns
        return await super()._run(plan, verb)


def test_lockstep_with_memory() -> None:
    run_lockstep(LookingStore, arrive_in_memory)


def test_lockstep_of_a_store_that_has_to_be_asked_for_everything() -> None:
    run_lockstep(StingyStore, arrive_in_memory)
