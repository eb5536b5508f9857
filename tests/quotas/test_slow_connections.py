"""A provider delays some connections by a second: longer than the jitter, and still without a refusal."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.quotas.slow_connection_tasks import AMOUNT, WINDOW
from tests.quotas.slow_tls import PATTERNS, SlowTLS
from tests.quotas.worker_processes import WorkerProcesses, await_jobs
from tests.servers.certificates import Certificate
from tidemill import Limit, Retention, Tidemill
from tidemill.clock import SystemClock
from tidemill.testing.simulator import (
    OpenAIDialect,
    Quota,
    SimulatedProvider,
    SimulatorOptions,
    SimulatorServer,
    optimal_drain_seconds,
)

PROCESSES = 3
RUNS = int(os.environ.get("TIDEMILL_SLOW_CONNECTION_RUNS", "0"))
"""3 in `make chaos`, of 140 calls each; otherwise one short run."""
CALLS = 140 if RUNS else 60
LATENCY = 0.1
SHORT_RUN = 1.5
"""In a short run, the delay of the last call alone is a tenth of the time."""

pytestmark = [pytest.mark.alone, pytest.mark.timeout(180)]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("run", range(RUNS or 1))
async def test_i14_requests_that_leave_late_are_not_refused(run: int, pattern: str, tmp_path: Path) -> None:
    """Checks regular and bursty delays.

    If every window has equally many late calls, a pool that ignores them may be lucky. In bursts it is
    not: ten late calls and twenty of the next window arrive in one window."""
    quotas = [Quota.rolling("requests", AMOUNT, per=WINDOW)]
    options = SimulatorOptions(jitter=0.0, latency=(LATENCY, LATENCY))
    provider = SimulatedProvider(OpenAIDialect(), quotas, options, clock=SystemClock(), seed=run)
    async with (
        SimulatorServer(provider) as server,
        SlowTLS(Certificate(tmp_path).context(), int(server.url.rpartition(":")[2]), pattern) as front,
    ):
        states = await _drained(f"sqlite:///{tmp_path / 'jobs.db'}", front.url, tmp_path / "output.txt")
    took = provider.request_log.arrivals[-1].at - provider.request_log.arrivals[0].at + LATENCY
    best = optimal_drain_seconds(quotas, CALLS, latency=LATENCY)
    print(f"{CALLS} calls, {front.delayed} late: T = {took:.1f} s, T/T_opt = {took / best:.3f}")
    assert provider.request_log.refused == []
    assert states == {"done": CALLS}
    assert front.delayed >= CALLS // 10
    assert took / best <= (1.2 if RUNS and pattern == "every tenth" else SHORT_RUN)


async def _drained(store: str, url: str, output: Path) -> Counter[str]:
    """Drains with worker processes; this application only enqueues and inspects."""
    app = Tidemill(store)
    app.queue("default", keep_done=Retention(), keep_failed=Retention())

    @app.task(name="ask", pool=app.pool("api", Limit.requests(AMOUNT, per=WINDOW)))
    async def ask(number: int) -> None: ...

    async with app:
        processes = WorkerProcesses(
            "tests.quotas.slow_connection_tasks", {"SLOW_STORE": store, "SLOW_URL": url}, output
        )
        try:
            await processes.start(PROCESSES)
            await app.enqueue_many(ask.job(number) for number in range(CALLS))
            return await await_jobs(app, CALLS, processes)
        finally:
            await processes.stop()
