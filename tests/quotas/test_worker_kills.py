"""A process is killed at every point between claim, start, send and settle."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from tests.quotas.fleet import Fleet, MakeStore, MissingReply, in_memory, run_fleet
from tidemill import Context, Limit, Tidemill
from tidemill.contract.pools import PoolView
from tidemill.core.claims import ClaimRequest, Settlement, SettleResult
from tidemill.stores.memory import MemoryStore
from tidemill.testing.clocks import VirtualClock
from tidemill.testing.simulator import CallableProvider, GlmDialect, Quota, SimulatorOptions, SimulatorRequest
from tidemill.testing.virtual_processes import current_process, kill_current_process

POINTS = ["claimed", "started", "sent", "answered", "settling", "settled"]
JOBS = 7
ROUNDS = 2 if "TIDEMILL_CHAOS_SECONDS" not in os.environ else 10
"""On stores other than memory; 10 in `make chaos`."""
MINUTE = 60.0
TOKENS = "tokens per minute"


class ProcessKiller:
    """Kills the process that reaches a point for the n-th time, once; the other process continues."""

    def __init__(self, point: str, nth: int) -> None:
        self._point, self._left = point, nth
        self.killed = 0

    async def at(self, point: str) -> None:
        if point != self._point or self.killed or current_process() is None:
            return
        self._left -= 1
        if self._left < 0:
            self.killed += 1
            await kill_current_process()


def _kill_around_store(store: Any, reaper: ProcessKiller) -> Any:
    """Wraps the store: a process may die before and after each verb."""
    real = store.settle

    async def settle(settlements: list[Settlement], request: ClaimRequest | None = None) -> SettleResult:
        if settlements:
            await reaper.at("settling")
        settled: SettleResult = await real(settlements, request)
        if settlements:
            await reaper.at("settled")
        if settled.claims is not None and settled.claims.jobs:
            await reaper.at("claimed")
        return settled

    store.settle = settle
    return store


def _run_with_kill(
    point: str, nth: int, make: MakeStore
) -> tuple[CallableProvider, ProcessKiller, PoolView, PoolView]:
    """Returns the provider, the killer, the pool after all jobs have ended, and the pool after all windows
    have passed."""

    async def scenario() -> tuple[CallableProvider, ProcessKiller, PoolView, PoolView]:
        reaper = ProcessKiller(point, nth % 5)
        quotas = (Quota.rolling("requests", 5), Quota.bucket("tokens", 3_000), Quota.concurrent(2))
        options = SimulatorOptions(jitter=0.5, latency=(0.5, 3.0))
        provider = CallableProvider(GlmDialect(), quotas, options, clock=VirtualClock(), seed=nth)

        def write(app: Tidemill) -> Any:
            pool = app.pool(
                "api",
                Limit.requests(5, per="minute"),
                Limit.tokens(3_000, per="minute", shape="bucket", charge="completed"),
                Limit.concurrent(2),
            )

            @app.task(name="ask", pool=pool, cost={"tokens": 900})
            async def ask(ctx: Context, number: int) -> None:
                await reaper.at("started")
                body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
                sizes = {"x-input-tokens": "200", "x-output-tokens": "300"}
                sent = SimulatorRequest(
                    "/api/paas/v4/chat/completions", body, {"x-job": str(number), **sizes}
                )
                calling = asyncio.create_task(provider.call(sent))
                await asyncio.sleep(0.2)
                await reaper.at("sent")
                answer = await calling
                await reaper.at("answered")
                if answer.status >= 400:
                    raise MissingReply(answer)
                ctx.used((answer.status, answer.headers, answer.body))

            if app.store is not fleet_store[0]:
                _kill_around_store(app.store, reaper)
            return ask

        fleet_store: list[Any] = [None]

        def make_store(*given: Any) -> Any:
            fleet_store[0] = make(*given)
            return fleet_store[0]

        fleet = Fleet(write, make_store, seed=nth)
        async with fleet.app as app:
            await app.enqueue_many(fleet.task.job(number) for number in range(JOBS))
            fleet.start(2, lease=6.0, reclaim_every=2.0, concurrency=2)
            while await fleet.live() and fleet.clock.boot() < 20 * MINUTE:
                await asyncio.sleep(3)
                assert await _miscounted(app.store) == ()
            assert await fleet.live() == 0
            await asyncio.sleep(10)
            [after] = await app.store.pools()
            await asyncio.sleep(75)
            [later] = await app.store.pools()
        return provider, reaper, after, later

    return run_fleet(scenario(), seed=nth)


@pytest.mark.parametrize("point", POINTS)
def test_i14_nothing_leaks_and_nothing_is_given_away_twice(point: str) -> None:
    """ "Kill at every point between claim, start, send and settle, 20 times: nothing leaks, nothing is given
    away twice." Each time at another call, with other delays."""
    killed = sum(_check(point, nth, in_memory) for nth in range(20))
    assert killed == 20, "or nothing was tried here"


@pytest.mark.parametrize("point", POINTS)
def test_i14_on_other_stores_too(point: str, make_persistent: MakeStore) -> None:
    assert sum(_check(point, nth, make_persistent) for nth in range(ROUNDS)) == ROUNDS


async def _miscounted(store: Any) -> tuple[str, ...]:
    """Returns the differences between an account's units in flight and its reservations."""
    if not isinstance(store, MemoryStore):
        found: tuple[str, ...] = await store.check()
        return found
    books = store._shared.records.pool_ledger
    known = books.accounts.get(("api", None))
    kept = [one.reservation for held in books.reserved.values() for one in held]
    counts = {} if known is None else known.state.held
    reserved = sum(one.held.get(TOKENS, 0.0) for one in kept)
    return () if counts.get(TOKENS, 0.0) == reserved else (f"{counts} but {reserved} are reserved",)


def _check(point: str, nth: int, make: MakeStore) -> int:
    provider, reaper, after, later = _run_with_kill(point, nth, make)
    request_log = provider.request_log
    assert request_log.refused == [], (point, nth)
    assert request_log.max_units_in_window("requests", MINUTE) <= 5
    assert len({bill.mark for bill in request_log.bills}) == JOBS
    assert len(request_log.bills) <= JOBS + 2 * reaper.killed, "two were under way at most"
    assert after.reservations == 0
    assert {limit.name: limit.used for limit in after.limits}["calls at once"] == 0
    assert all(limit.used == pytest.approx(0) for limit in later.limits)
    return reaper.killed
