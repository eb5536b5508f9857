"""The fixtures of the suite. `make_store` and `arrive` are the store author's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from tidemill.clock import Clock, Entropy
from tidemill.contract.store import Store
from tidemill.testing.conformance.driver import Driver
from tidemill.testing.manual import ManualClock, SeededEntropy

MakeStore = Callable[[Clock, Entropy], Store]
"""(clock, entropy) → a new and empty store, not yet opened."""

Arrive = Callable[[Store, str, str, bytes, bytes], Awaitable[None]]
"""(store, id, task, payload, options): write a request as an outsider would."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def entropy() -> SeededEntropy:
    return SeededEntropy(1)


@pytest_asyncio.fixture
async def store(make_store: MakeStore, clock: ManualClock, entropy: SeededEntropy) -> AsyncIterator[Store]:
    opened = await make_store(clock, entropy).open()
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def drive(store: Store, clock: ManualClock) -> AsyncIterator[Driver]:
    driver = Driver(store, clock)
    yield driver
    await driver.store.close()
