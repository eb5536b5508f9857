"""Kills and stops at random moments lose nothing and let no stale holder in (I1, I6)."""

import os
from pathlib import Path

import pytest

from tests.chaos.fire import Fire

SECONDS = float(os.environ.get("TIDEMILL_CHAOS_SECONDS", "12"))
SEED = int(os.environ.get("TIDEMILL_CHAOS_SEED", "1"))
RATE = float(os.environ.get("TIDEMILL_CHAOS_RATE", "150"))


@pytest.mark.timeout(3 * SECONDS + 200)
@pytest.mark.alone
async def test_kills_and_stops_lose_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fire = Fire(tmp_path, SEED, per_second=RATE)
    report = await fire.burn(SECONDS)
    with capsys.disabled():
        print(f"\nseed {SEED}, {SECONDS:.0f} s: {report}")
    assert report.witness.accepted
    assert not report.missing
    assert not report.witness.stale_writes_accepted()
    assert report.witness.refused > 0, "no stale write was tried: the faults were too tame to show anything"
    assert set(report.counts) == {"done"}
    assert report.counts["done"] >= len(report.witness.accepted)  # type: ignore[index]
