"""Kills and stops of workers fail no job with paid calls, and no call is billed needlessly (I8, I18).

Handlers use `ctx.state`, paid steps and a real SDK client against the simulated provider."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.chaos_run import ChaosRun
from tests.chaos.chaos_stores import STORES, ChaosStore, create_store
from tidemill.clock import SystemClock
from tidemill.testing.simulator import (
    OpenAIDialect,
    Quota,
    SimulatedProvider,
    SimulatorOptions,
    SimulatorServer,
)

SECONDS = min(60.0, float(os.environ.get("TIDEMILL_CHAOS_SECONDS", "10")))
SEED = int(os.environ.get("TIDEMILL_CHAOS_SEED", "1"))
AT_LENGTH = STORES if "TIDEMILL_CHAOS_SECONDS" in os.environ else STORES[:1]
RATE = 8.0
"""Jobs per second of each of two producers. Suspects run alone, so a higher rate would build up a backlog
of them."""


@pytest.mark.parametrize("store", AT_LENGTH)
@pytest.mark.timeout(3 * SECONDS + 240)
@pytest.mark.alone
async def test_kills_and_stops_fail_no_paid_job(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = SimulatorOptions(latency=(0.3, 1.5))
    provider = SimulatedProvider(
        OpenAIDialect(), (Quota.rolling("requests", 1_000_000),), options, clock=SystemClock()
    )
    with create_store(store, tmp_path) as burning:
        async with SimulatorServer(provider) as server:
            monkeypatch.setenv("CHAOS_PROVIDER", f"{server.url}/v1")
            fire = ChaosRun(
                tmp_path,
                ChaosStore(burning.url),
                SEED,
                per_second=RATE,
                concurrency=8,
                programs=("tests.chaos.paid_worker", "tests.chaos.paid_producer"),
                is_shown=lambda witness: witness.apart > 0,
            )
            report = await fire.run(SECONDS)
    witness, jobs = report.witness, len(report.witness.accepted)
    bills = Counter(bill.mark for bill in provider.request_log.bills)
    unknown = sum(witness.unknown.values())
    with capsys.disabled():
        print(f"\n{store}, seed {SEED}, {SECONDS:.0f} s: {report}")
        print(f"  in a child {witness.apart}, bills {bills.total()}, jobs {jobs}, unknown {unknown}")
    assert not report.missing
    assert set(report.counts) == {"done"}
    assert witness.apart, "no job ran in a child process: the faults were too tame to show anything"
    dear = {job: bill for job, bill in bills.items() if bill > 1 + witness.unknown[job or ""]}
    assert not dear
