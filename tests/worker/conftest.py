from __future__ import annotations

import pytest

from tests.worker.bench import Bench, Scenario, Virtually
from tidemill.stores.memory import MemoryStore
from tidemill.testing.clocks import SeededEntropy, VirtualClock
from tidemill.testing.virtual_loop import run_virtual


@pytest.fixture
def virtually() -> Virtually:
    """Runs a scenario on a fresh bench in virtual time."""

    def run(scenario: Scenario) -> None:
        async def main() -> None:
            clock = VirtualClock()
            store = await MemoryStore(clock=clock, entropy=SeededEntropy(2)).open()
            await scenario(Bench(store, clock))

        run_virtual(main())

    return run
