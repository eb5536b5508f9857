"""The requests of an idle worker, and how soon a dead leader is replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest
from msgspec.structs import replace

from tests.servers.postgres import Postgres
from tests.servers.proxy import Proxy, ProxyConnection
from tests.servers.redis import Redis
from tests.worker.bench import Bench, Virtually
from tidemill import Tidemill
from tidemill.contract.coordination import Leadership
from tidemill.stores.memory import MemoryStore
from tidemill.telemetry.events import ClockSkewDetected, MaintenanceCrashed
from tidemill.testing import VirtualLoop
from tidemill.worker.reclaimer import Reclaimer

SETTLED, WINDOW = 2.5, 8.0
MOST = 2.0
"""Requests per second; a server does not notice ten such workers."""


class Counting(Proxy):
    """`asked` counts the requests of a client, except preparing a statement, which happens once."""

    requests = 0

    async def _questions(self, link: ProxyConnection) -> None:
        while data := await link.read_request():
            self.requests += data[:1] != b"P"
            link.ask(data)
        link.no_more_questions()


async def requests_per_second(url: str, port: int) -> float:
    async with Counting(port) as proxy:
        app = Tidemill(url.replace(f":{port}", f":{proxy.port}"))

        @app.task(name="note")
        async def note() -> None: ...

        async with app:
            handle = await note.enqueue()
            worker = app.worker()
            running = asyncio.create_task(worker.run())
            await handle.result(timeout=60)
            await asyncio.sleep(SETTLED)
            before = proxy.requests
            await asyncio.sleep(WINDOW)
            requests = proxy.requests - before
            worker.stop()
            await running
    return requests / WINDOW


@pytest.mark.alone
async def test_an_idle_worker_sends_at_most_two_requests_per_second(
    redis_server: Redis, redis_url: str, postgres_server: Postgres, postgres_url: str
) -> None:
    """Both stores at once, in real time: the test measures time itself."""
    rates = await asyncio.gather(
        requests_per_second(redis_url, redis_server.port),
        requests_per_second(postgres_url, postgres_server.port),
    )
    assert 0.5 < min(rates) <= max(rates) <= MOST, rates


def test_an_idle_worker_only_claims_leads_and_renews(virtually: Virtually) -> None:
    """Over an hour, on a store that counts."""
    calls: dict[str, int] = {}

    class Counted(MemoryStore):
        def __getattribute__(self, name: str) -> Any:
            if name in ("worklist", "arrivals", "read_clock", "reclaim", "claim", "settle", "lead", "extend"):
                calls[name] = calls.get(name, 0) + 1
            return super().__getattribute__(name)

    async def scenario(bench: Bench) -> None:
        store = Counted(clock=bench.clock)
        worker = bench.worker(store=await store.open())
        running = bench.start(worker)
        await asyncio.sleep(3600)
        worker.stop()
        await running
        expected = {
            name: count for name, count in calls.items() if name in ("worklist", "arrivals", "read_clock")
        }
        assert sum(expected.values()) <= 3600 / 10, expected
        assert sum(calls.values()) <= 3600 * MOST, calls
        assert calls["lead"] >= 1700

    virtually(scenario)


def test_s5_a_leader_that_died_is_replaced_within_five_seconds(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        loop = cast("VirtualLoop", asyncio.get_running_loop())
        first, _ = loop.spawn("first", bench.worker().run())
        await asyncio.sleep(0.3)
        second = bench.worker()
        running = bench.start(second)
        for pause in (1.0, 0.9, 1.3):
            await asyncio.sleep(10 + pause)
            assert leader(bench) != second.id
        first.kill()
        died = loop.time()
        while leader(bench) != second.id:  # noqa: ASYNC110 - in virtual time looking costs nothing
            await asyncio.sleep(0.05)
        assert loop.time() - died < 5
        second.stop()
        await running

    virtually(scenario)


def test_a_store_that_answers_nonsense_ends_no_worker(virtually: Virtually) -> None:
    class Broken(MemoryStore):
        requests = 0

        async def lead(self, duties: Sequence[str], worker: str, lease: float) -> Leadership:
            self.requests += 1
            led = await super().lead(duties, worker, lease)
            return replace(led, dues={}) if self.requests < 3 else led

    async def scenario(bench: Bench) -> None:
        worker = bench.worker(store=await Broken(clock=bench.clock).open())
        running = bench.start(worker)
        await asyncio.sleep(10)
        worker.stop()
        await running
        assert [event.operation for event in bench.events_of(MaintenanceCrashed)] == ["lead", "lead"]

    virtually(scenario)


def test_a_handed_over_service_goes_to_the_next_worker_that_asks(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        workers = [bench.worker() for _ in range(2)]
        running = [bench.start(worker) for worker in workers]
        await asyncio.sleep(1)
        [one] = [worker for worker in workers if worker.id == leader(bench, "flows")]
        runtime: Any = one._runtime
        await runtime._maintenance.leader.hand_over(runtime._maintenance.advancer.service)
        await asyncio.sleep(5)
        assert leader(bench, "flows") not in (None, one.id)
        for worker in workers:
            worker.stop()
        await asyncio.gather(*running)

    virtually(scenario)


def test_i26_a_slow_clock_reading_is_ignored(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        reclaimer, time = Reclaimer(bench.store, 30, bench.emitter()), asyncio.get_running_loop().time
        reclaimer.watch(await bench.store.read_clock(), time())
        requested = time()
        await asyncio.sleep(4)  # an outage of the store
        reclaimer.watch(await bench.store.read_clock(), requested)
        reclaimer.watch(await bench.store.read_clock(), time())
        assert bench.events_of(ClockSkewDetected) == []

    virtually(scenario)


def leader(bench: Bench, service: str = "reclaim") -> str | None:
    with bench.store.verb() as records:
        found = records.leaders.get(service)
    return None if found is None else found.worker
