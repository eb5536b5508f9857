"""Kills and stops at random moments lose no job and accept no stale write (I1, I6, I26)."""

import os
from pathlib import Path

import pytest

from tests.chaos.chaos_run import ChaosRun
from tests.chaos.chaos_stores import STORES, create_store

SECONDS = float(os.environ.get("TIDEMILL_CHAOS_SECONDS", "10"))
SEED = int(os.environ.get("TIDEMILL_CHAOS_SEED", "1"))
RATE = float(os.environ.get("TIDEMILL_CHAOS_RATE", "150"))
"""Jobs per second of each of two producers."""
CONCURRENCY = int(os.environ.get("TIDEMILL_CHAOS_CONCURRENCY", "20"))


@pytest.mark.parametrize("store", STORES)
@pytest.mark.timeout(3 * SECONDS + 240)
@pytest.mark.alone
async def test_kills_and_stops_lose_nothing(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hits workers, producers and the server; workers of a server also have wrong clocks."""
    with create_store(store, tmp_path) as burning:
        fire = ChaosRun(tmp_path, burning, SEED, per_second=RATE, concurrency=CONCURRENCY)
        report = await fire.run(SECONDS)
    with capsys.disabled():
        print(f"\n{store}, seed {SEED}, {SECONDS:.0f} s: {report}")
    assert report.witness.accepted
    assert not report.missing
    assert not report.witness.stale_writes_accepted()
    assert report.witness.refused > 0, "no stale write was tried: the faults were too tame to show anything"
    assert set(report.counts) == {"done"}
    assert report.counts["done"] >= len(report.witness.accepted)  # type: ignore[index]
