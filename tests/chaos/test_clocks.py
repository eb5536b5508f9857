"""Workers' clocks are wrong by five minutes and the server's clock is stepped by an hour, under load:
leases and windows hold (I26)."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager

import pytest

from tests.servers.postgres import Postgres
from tidemill import Filter, Limit, State, Tidemill
from tidemill.clock import SystemClock
from tidemill.contract.store import Store
from tidemill.stores.postgres import PostgresStore
from tidemill.stores.redis import RedisStore

HOUR, MINUTES = 3600.0, 300.0
EVERY = 2.0
"""Seconds between two steps. Each worker contacts the server in between: without the first correction it
cannot recognise the next step."""
LEASE = 3.0

pytestmark = pytest.mark.alone


class WrongClock(SystemClock):
    def __init__(self, by: float) -> None:
        super().__init__()
        self._by = by

    def wall(self) -> float:
        return super().wall() + self._by


class SteppedServer:
    """A server with a stepped clock. A test cannot set the machine's clock, but both stores let a test add
    an offset to the server's time."""

    def __init__(self, make: Callable[[], Store], step: Callable[[float], None]) -> None:
        self.make, self._step = make, step
        self.steps = 0

    async def step_clock_periodically(self) -> None:
        for by in itertools.cycle([HOUR, -HOUR, -HOUR, HOUR]):
            await asyncio.sleep(EVERY)
            await asyncio.to_thread(self._step, by)
            self.steps += 1


@contextmanager
def on_redis(url: str) -> Iterator[SteppedServer]:
    ahead = 0.0

    def step(by: float) -> None:
        nonlocal ahead
        ahead += by

    yield SteppedServer(lambda: RedisStore(url, skew=lambda: ahead), step)


@contextmanager
def on_postgres(url: str, server: Postgres) -> Iterator[SteppedServer]:
    with server.client() as client:

        def step(by: float) -> None:
            client.execute("UPDATE tidemill.clock SET skew = skew + %s", [by])

        yield SteppedServer(lambda: PostgresStore(url), step)


@pytest.fixture(params=["redis", "postgres"])
def server(request: pytest.FixtureRequest) -> Iterator[SteppedServer]:
    url = request.getfixturevalue(f"{request.param}_url")
    place = (
        on_redis(url)
        if request.param == "redis"
        else on_postgres(url, request.getfixturevalue("postgres_server"))
    )
    with place as stepped:
        yield stepped


class Fleet:
    """Two workers: the clock of one is five minutes early, of the other five minutes late."""

    def __init__(self, server: SteppedServer, write: Callable[[Tidemill], object]) -> None:
        self.apps = [Tidemill(store=server.make(), clock=WrongClock(by)) for by in (MINUTES, -MINUTES)]
        self.tasks = [write(app) for app in self.apps]
        self._server = server

    async def run(self, jobs: int, done: Callable[[], int]) -> None:
        async with AsyncExitStack() as opened, asyncio.TaskGroup() as group:
            workers = []
            for app in self.apps:
                await opened.enter_async_context(app)
                workers.append(app.worker(concurrency=20, lease=LEASE, poll=0.5, reclaim_every=0.3))
            stepping = group.create_task(self._server.step_clock_periodically())
            running = [group.create_task(worker.run()) for worker in workers]
            async with asyncio.timeout(40):
                while done() < jobs:  # noqa: ASYNC110 - the test needs real clocks
                    await asyncio.sleep(0.05)
                for worker in workers:
                    worker.stop()
                await asyncio.wait(running)
            stepping.cancel()


@pytest.mark.timeout(90)
async def test_leases_hold(server: SteppedServer) -> None:
    """Some jobs run longer than a lease; none is reclaimed from its worker."""
    runs: Counter[int] = Counter()
    done: set[int] = set()

    def write(app: Tidemill) -> object:
        @app.task(name="work")
        async def work(number: int) -> None:
            runs[number] += 1
            await asyncio.sleep(3 * EVERY if number % 20 == 0 else 0.02)
            done.add(number)

        return work

    fleet = Fleet(server, write)
    async with fleet.apps[0] as app:
        await app.enqueue_many(fleet.tasks[0].job(number) for number in range(200))  # type: ignore[attr-defined]
    await fleet.run(200, lambda: len(done))
    async with fleet.apps[0] as app:
        jobs = (await app.store.find(Filter(), limit=500)).jobs
    assert set(runs.values()) == {1}
    assert {(job.state, job.attempts, job.crashes) for job in jobs} == {(State.DONE, 1, 0)}
    assert len(jobs) == 200
    assert server.steps >= 2


@pytest.mark.timeout(90)
async def test_i14_windows_hold(server: SteppedServer) -> None:
    amount, window = 20, 2.0
    calls: list[float] = []

    def write(app: Tidemill) -> object:
        @app.task(name="ask", pool=app.pool("api", Limit.requests(amount, per=window)))
        async def ask(number: int) -> None:
            assert number >= 0
            calls.append(asyncio.get_running_loop().time())

        return ask

    fleet = Fleet(server, write)
    async with fleet.apps[0] as app:
        await app.enqueue_many(fleet.tasks[0].job(number) for number in range(4 * amount))  # type: ignore[attr-defined]
    await fleet.run(4 * amount, lambda: len(calls))
    for first, last in zip(calls, calls[amount:], strict=False):
        assert last - first >= window
    assert calls[-1] - calls[0] < 10 * window, "no step stops them either"
    assert server.steps >= 2
