"""A quota is used up and every process is killed: the closure of the pool is in the store."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.quotas.worker_processes import WorkerProcesses, await_jobs
from tidemill import Limit, Tidemill
from tidemill.clock import SystemClock
from tidemill.contract.pools import PoolView
from tidemill.core.filters import Filter
from tidemill.testing.simulator import GlmDialect, Quota, SimulatedProvider, SimulatorOptions, SimulatorServer

ALLOWED, JOBS, PROCESSES = 30, 55, 4
PERIOD = 10.0
"""Seconds from the first call: enough time to kill and start four processes."""

pytestmark = [pytest.mark.alone, pytest.mark.timeout(120)]


async def test_i15_i16_every_process_is_killed_while_the_pool_is_closed(tmp_path: Path) -> None:
    """No worker calls before the time that the provider stated, one job probes alone, and no refusal costs
    an attempt."""
    clock = SystemClock()
    quota = Quota.period("requests", ALLOWED, per=PERIOD)
    provider = SimulatedProvider(
        GlmDialect(), [quota], SimulatorOptions(jitter=0.0, latency=(0.1, 0.3)), clock=clock, seed=3
    )
    app = Tidemill(f"sqlite:///{tmp_path / 'jobs.db'}")

    @app.task(name="ask", pool=app.pool("api", Limit.requests(60, per=2.0)))
    async def ask(number: int) -> None: ...

    async with SimulatorServer(provider) as server, app:
        environment = {"QUOTA_FOLDER": str(tmp_path), "QUOTA_URL": server.url}
        processes = WorkerProcesses(
            "tests.quotas.exhausted_quota_worker", environment, tmp_path / "output.txt"
        )
        try:
            await app.enqueue_many(ask.job(number) for number in range(JOBS))
            await processes.start(PROCESSES)
            closed = await _closed(app, processes)
            await processes.stop()
            killed = provider.now
            [closure] = closed.closures
            assert closure.until is not None
            opens = killed + closure.until - clock.wall()
            assert opens > killed + 1, "or nothing was closed when they were killed"
            await processes.start(PROCESSES)
            states = await await_jobs(app, JOBS, processes)
        finally:
            await processes.stop()
        found = await app.store.find(Filter(), limit=JOBS)
    later = [arrival for arrival in provider.request_log.arrivals if arrival.at > killed]
    assert later[0].at >= opens
    [tried] = provider.request_log.bills_for_job(str(later[0].mark))
    assert later[1].at >= tried.at, "one job tries alone, and the others wait for its answer"
    assert all(refusal.at < killed for refusal in provider.request_log.refused)
    assert states == {"done": JOBS}
    assert {job.attempts for job in found.jobs} == {1}
    assert len(provider.request_log.bills) == JOBS


async def _closed(app: Tidemill, processes: WorkerProcesses) -> PoolView:
    """Waits until the pool is closed and no call is in flight; returns the pool."""
    while True:
        for view in await app.store.pools():
            if view.closures and view.reservations == 0:
                return view
        processes.check()
        await asyncio.sleep(0.05)
