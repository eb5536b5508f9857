"""The quota drains over real HTTP: four worker processes on one store, a provider whose minute takes 2 s."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.quotas.drain_setups import DrainSetup, setup_for
from tests.quotas.http_tasks import SCALE, scaled
from tests.quotas.worker_processes import WorkerProcesses, await_jobs
from tidemill import Retention, Tidemill
from tidemill.clock import SystemClock
from tidemill.core.checkpoints import Checkpoint
from tidemill.core.filters import Filter
from tidemill.testing.simulator import SimulatedProvider, SimulatorServer

PROCESSES = 4
SEEDS = int(os.environ.get("TIDEMILL_HTTP_SEEDS", "1"))
"""3 in `make chaos`."""
CALLS = {"openai": 100, "anthropic": 60, "unknown": 10, "concurrent": 60, "rolling": 90}
"""Calls by account: a few windows of each suffice in real time, and a real day is too long."""

pytestmark = [pytest.mark.alone, pytest.mark.timeout(180)]


@pytest.fixture
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Returns the URL of the store that a test names, SQLite by default."""
    name = getattr(request, "param", "sqlite")
    return f"sqlite:///{tmp_path / 'jobs.db'}" if name == "sqlite" else request.getfixturevalue(f"{name}_url")


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("name", CALLS)
async def test_i14_nothing_is_refused_lost_or_paid_twice(
    name: str, seed: int, store_url: str, tmp_path: Path
) -> None:
    """For every account and seed. Prints the duration."""
    setup = _short(name, seed)
    provider = _provider(setup, seed)
    async with (
        SimulatorServer(provider) as server,
        _fleet(tmp_path, store_url, server.url, name, seed) as fleet,
    ):
        began = provider.now
        states = await fleet.drained(setup.calls)
        print(f"{setup.name}: {setup.calls} calls, T = {provider.now - began:.1f} s of the provider's time")
    assert provider.request_log.refused == []
    assert provider.request_log.duplicate_payments() == {}
    assert states == {"done": setup.calls}
    assert len(provider.request_log.bills) == setup.calls


@pytest.mark.parametrize(
    ("store_url", "how"),
    [("sqlite", "retry"), ("sqlite", "park"), ("redis", "retry"), ("postgres", "park")],
    indirect=["store_url"],
)
async def test_i14_i18_with_kills(store_url: str, how: str, tmp_path: Path) -> None:
    """Kills up to eight processes during their calls and after them.

    A call with an unknown outcome is paid for again at most when it is retried, and not at all when it
    is parked."""
    setup = replace(setup_for("rolling", 3), calls=100)
    provider = _provider(setup, 3, latency=(6.0, 12.0))
    async with (
        SimulatorServer(provider) as server,
        _fleet(tmp_path, store_url, server.url, "rolling", 3, how=how) as fleet,
    ):
        killing = asyncio.create_task(fleet.kill_now_and_then(provider, times=8))
        states = await fleet.drained(setup.calls)
        await killing
        steps = await fleet.steps()
    bills = Counter(bill.mark for bill in provider.request_log.bills)
    assert len(fleet.kills) >= 4
    assert provider.request_log.refused == []
    assert len(steps) == setup.calls
    if how == "park":
        assert states["done"] + states["unknown outcome"] == setup.calls
        assert states["unknown outcome"] > 0, "or nothing was tried here"
        for mark, step in steps.items():
            assert bills[mark] == 1 if step.kept else bills[mark] <= 1
        assert sum(step.kept is not None for step in steps.values()) == states["done"]
    else:
        assert states == {"done": setup.calls}
        assert sum(step.unknown for step in steps.values()) > 0, "or nothing was tried here"
        for mark, step in steps.items():
            assert step.kept is not None
            assert 1 <= bills[mark] <= 1 + step.unknown


class HttpFleet:
    """A fleet; `app` only enqueues and inspects."""

    def __init__(self, app: Tidemill, ask: Any, processes: WorkerProcesses) -> None:
        self._app, self._ask, self._processes = app, ask, processes
        self.kills: list[float] = []
        self._ended = False

    async def kill_now_and_then(self, provider: SimulatedProvider, times: int) -> None:
        """Kills a process while calls are in flight and starts another, up to `times` times. Stops after
        the last call."""
        chance = random.Random(7)
        for _ in range(times):
            before = len(provider.request_log.arrivals)
            while len(provider.request_log.arrivals) == before:
                if self._ended:
                    return
                await asyncio.sleep(0.02)
            await asyncio.sleep(chance.uniform(0, 0.3))
            self.kills.append(provider.now)
            await self._processes.kill(chance.randrange(PROCESSES))
            await self._processes.start()

    async def drained(self, jobs: int) -> Counter[str]:
        await self._app.enqueue_many(self._ask.job(number) for number in range(jobs))
        states = await await_jobs(self._app, jobs, self._processes)
        self._ended = True
        return states

    async def steps(self) -> dict[str, Checkpoint]:
        """Returns the stored checkpoint of each job's paid step, by its mark at the provider."""
        found = {}
        async for job in self._app.inspect.each(Filter()):
            [step] = await self._app.store.checkpoints(job.id)
            found[str(msgspec.json.decode(job.payload)["number"])] = step
        return found


@asynccontextmanager
async def _fleet(
    folder: Path, store: str, url: str, name: str, seed: int, *, how: str = "plain"
) -> AsyncIterator[HttpFleet]:
    setup = setup_for(name, seed)
    app = Tidemill(store)
    app.queue("default", crash_limit=50, keep_done=Retention(), keep_failed=Retention())

    @app.task(name="ask", pool=app.pool("api", *map(scaled, setup.limits)), cost=setup.cost)
    async def ask(number: int) -> None: ...

    variables = {
        "FOLDER": str(folder),
        "STORE": store,
        "URL": url,
        "SETUP": name,
        "SEED": str(seed),
        "PAYMENT": how,
    }
    environment = {f"QUOTA_{word}": value for word, value in variables.items()}
    async with app:
        processes = WorkerProcesses("tests.quotas.http_worker", environment, folder / "output.txt")
        try:
            await processes.start(PROCESSES)
            yield HttpFleet(app, ask, processes)
        finally:
            await processes.stop()


def _short(name: str, seed: int) -> DrainSetup:
    return replace(setup_for(name, seed), calls=CALLS[name])


def _provider(setup: DrainSetup, seed: int, latency: tuple[float, float] | None = None) -> SimulatedProvider:
    options = replace(setup.options, jitter=0.0, latency=latency or setup.options.latency)
    return SimulatedProvider(
        setup.dialect, setup.quotas, options, clock=SystemClock(), seed=seed, scale=SCALE
    )
