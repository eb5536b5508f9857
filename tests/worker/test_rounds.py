"""What a worker with nothing to do asks of a server, and how soon a leader that died is replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest
from msgspec.structs import replace

from tests.servers.postgres import Postgres
from tests.servers.proxy import Link, Proxy
from tests.servers.redis import Redis
from tests.worker.bench import Bench, Virtually
from tidemill import Tidemill
from tidemill.contract.coordinator import Led
from tidemill.stores.memory import MemoryStore
from tidemill.telemetry.events import ChoreBroke, ClocksParted
from tidemill.testing import VirtualLoop
from tidemill.worker.reclaimer import Reclaimer

SETTLED, WINDOW = 2.5, 8.0
MOST = 2.0
"""Requests a second: of ten workers a server notices nothing."""


class Counting(Proxy):
    """`asked`: how many times a client sent something, but to prepare a statement, which it does once."""

    asked = 0

    async def _questions(self, link: Link) -> None:
        while data := await link.asked():
            self.asked += data[:1] != b"P"
            link.ask(data)
        link.no_more_questions()


async def asked_per_second(url: str, port: int) -> float:
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
            before = proxy.asked
            await asyncio.sleep(WINDOW)
            asked = proxy.asked - before
            worker.stop()
            await running
    return asked / WINDOW


@pytest.mark.alone
async def test_an_idle_worker_asks_twice_a_second_at_most(
    redis_server: Redis, redis_url: str, postgres_server: Postgres, postgres_url: str
) -> None:
    """Both at once, in real time: nothing is waited for, the time itself is what is measured."""
    rates = await asyncio.gather(
        asked_per_second(redis_url, redis_server.port),
        asked_per_second(postgres_url, postgres_server.port),
    )
    assert 0.5 < min(rates) <= max(rates) <= MOST, rates


def test_an_idle_worker_asks_nothing_but_for_work_its_duties_and_its_leases(virtually: Virtually) -> None:
    """Over an hour, on a store that counts."""
    asked: dict[str, int] = {}

    class Counted(MemoryStore):
        def __getattribute__(self, name: str) -> Any:
            if name in ("agenda", "arrivals", "read_clock", "reclaim", "claim", "settle", "lead", "extend"):
                asked[name] = asked.get(name, 0) + 1
            return super().__getattribute__(name)

    async def scenario(bench: Bench) -> None:
        store = Counted(clock=bench.clock)
        worker = bench.worker(store=await store.open())
        running = bench.start(worker)
        await asyncio.sleep(3600)
        worker.stop()
        await running
        looks = {name: count for name, count in asked.items() if name in ("agenda", "arrivals", "read_clock")}
        assert sum(looks.values()) <= 3600 / 10, looks
        assert sum(asked.values()) <= 3600 * MOST, asked
        assert asked["lead"] >= 1700

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
        asked = 0

        async def lead(self, duties: Sequence[str], worker: str, lease: float) -> Led:
            self.asked += 1
            led = await super().lead(duties, worker, lease)
            return replace(led, dues={}) if self.asked < 3 else led

    async def scenario(bench: Bench) -> None:
        worker = bench.worker(store=await Broken(clock=bench.clock).open())
        running = bench.start(worker)
        await asyncio.sleep(10)
        worker.stop()
        await running
        assert [event.chore for event in bench.told(ChoreBroke)] == ["lead", "lead"]

    virtually(scenario)


def test_who_cannot_do_it_passes_a_duty_on_to_who_asks_next(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        workers = [bench.worker() for _ in range(2)]
        running = [bench.start(worker) for worker in workers]
        await asyncio.sleep(1)
        [one] = [worker for worker in workers if worker.id == leader(bench, "flows")]
        crew: Any = one._crew
        await crew._rounds.leader.pass_on(crew._advancer.duty)
        await asyncio.sleep(5)
        assert leader(bench, "flows") not in (None, one.id)
        for worker in workers:
            worker.stop()
        await asyncio.gather(*running)

    virtually(scenario)


def test_i26_a_look_that_took_long_says_nothing_about_the_clocks(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        reclaimer, time = Reclaimer(bench.store, 30, bench.emitter()), asyncio.get_running_loop().time
        reclaimer.watch(await bench.store.read_clock(), time())
        asked = time()
        await asyncio.sleep(4)  # the store was away
        reclaimer.watch(await bench.store.read_clock(), asked)
        reclaimer.watch(await bench.store.read_clock(), time())
        assert bench.told(ClocksParted) == []

    virtually(scenario)


def leader(bench: Bench, duty: str = "reclaim") -> str | None:
    with bench.store.verb() as records:
        found = records.leaders.get(duty)
    return None if found is None else found.worker
