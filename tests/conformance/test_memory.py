"""The memory store fulfils the contracts."""

from __future__ import annotations

import pytest

from tidemill.contract.store import Store
from tidemill.stores.memory import MemoryStore
from tidemill.testing.conformance import *  # noqa: F403 - the suite is meant to be taken whole
from tidemill.testing.conformance.fixtures import Arrive, MakeStore


@pytest.fixture
def make_store() -> MakeStore:
    return lambda clock, entropy: MemoryStore(clock=clock, entropy=entropy)


@pytest.fixture
def arrive() -> Arrive:
    async def arrive(store: Store, job: str, task: str, payload: bytes, options: bytes) -> None:
        assert isinstance(store, MemoryStore)
        store.arrive(job, task, payload, options)

    return arrive
