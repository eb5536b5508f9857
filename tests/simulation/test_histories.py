"""Checks I1 to I11, I13 to I16, I19, I20, I22, I23, I26 over seeded histories of a whole fleet.

tests/schedules covers I12, which is about schedules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.faults import PROFILES
from tests.simulation.history import SimulationResult, run_history

TRACE_LINES = 120


def test_histories_break_no_invariant(seeds: range, request: pytest.FixtureRequest) -> None:
    for seed in seeds:
        verdict = run_history(seed)
        if request.config.getoption("seed", default=None) is not None:
            print(verdict.trace.render())
        if verdict.violation is not None:
            pytest.fail(_story(verdict), pytrace=False)


def test_a_seed_replays_the_same_history_in_another_process() -> None:
    """The order of string sets differs per process; nothing may depend on it."""
    script = "from tests.simulation.history import run_history\nprint(run_history({}).trace.render())"
    for seed in (0, 2, 8):
        other = subprocess.run(
            [sys.executable, "-c", script.format(seed)],
            env={"PYTHONHASHSEED": "12345"},
            check=True,
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert run_history(seed).trace.render() + "\n" == other.stdout


def test_the_faults_really_happen() -> None:
    """A simulator that never produces a stale write proves nothing about stale writes."""
    wanted = {
        "settle ok", "settle again", "settle stale", "extend refused", "returned",
        "revoked by reclaim", "revoked by amend", "claimed alone", "failed poison",
        "cancelled expired", "cancelled replaced", "RetryLater", "Snooze", "JobRelease", "Crash",
        "_kill", "_pause", "_drain", "_storm", "_step_clock",
        "provider: well", "provider: rate", "provider: stated", "provider: overload", "probed",
    }  # fmt: skip
    for seed in range(40):
        wanted.difference_update(+run_history(seed, PROFILES[0]).seen)
        if not wanted:
            return
    pytest.fail(f"never happened: {', '.join(sorted(wanted))}")


def _story(verdict: SimulationResult) -> str:
    lines = verdict.trace.render().splitlines()
    return "\n".join(
        [
            f"seed {verdict.seed} ({verdict.profile}): {verdict.violation}",
            f"replay it with: pytest tests/simulation --seed={verdict.seed}",
            *lines[-TRACE_LINES:],
        ]
    )
