"""An application on a memory store with a manual clock."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tidemill import Tidemill
from tidemill.stores.memory import MemoryStore
from tidemill.testing.clocks import ManualClock, SeededEntropy


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest_asyncio.fixture
async def app(clock: ManualClock) -> AsyncIterator[Tidemill]:
    entropy = SeededEntropy(3)
    app = Tidemill(store=MemoryStore(clock, entropy), clock=clock, entropy=entropy)
    async with app:
        yield app
