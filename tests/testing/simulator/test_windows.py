"""Tidemill's windows checked by the simulator, which shares no code with them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidemill.testing.simulator
from tidemill.core.calendars import Day
from tidemill.core.limits import Limit, Per, ShapeName
from tidemill.core.windows import Guards, Instant, new_window
from tidemill.testing.simulator import Quota, SimulatorOptions, optimal_drain_seconds
from tidemill.testing.simulator.account import SimulatedAccount
from tidemill.testing.simulator.http_messages import SimulatorCall
from tidemill.testing.simulator.quotas import to_ticks

GUARDS = Guards()
ZONE = "America/Los_Angeles"
SUMMER_ENDS = 1_793_516_400.0  # 2026-11-01 00:00 in Los Angeles, a day of 25 hours


def pair(shape: str, amount: int, per: float) -> tuple[Limit, Quota]:
    """Returns the same quota as a user declares it and as the provider counts it."""
    window: Per = Day(ZONE) if shape == "day" else per
    declared: ShapeName = "bucket" if shape == "bucket" else "rolling"
    limit = Limit.tokens(amount, per=window, shape=declared)
    if shape == "day":
        return limit, Quota.day("tokens", amount, zone=ZONE)
    return limit, Quota(unit="tokens", amount=amount, shape=shape, per=per)  # type: ignore[arg-type]


def sent(limit: Limit, costs: list[int], wall: float) -> list[float]:
    """Sends each call as soon as the window allows it; returns the times."""
    window, now, times = new_window(limit), 0.0, []
    for cost in costs:
        while (wait := window.wait(limit, cost, Instant(wall + now, now), GUARDS)) > 0:
            now += wait + 1e-6
        window, _ = window.taken(limit, cost, Instant(wall + now, now), GUARDS)
        times.append(now)
    return times


def refusals(quota: Quota, calls: list[tuple[float, int]], wall: float) -> int:
    account = SimulatedAccount([quota], SimulatorOptions(), wall=wall)
    for at, cost in sorted(calls):
        account.arrive(SimulatorCall(kind="chat", model="m", input_tokens=cost), to_ticks(at))
    return len(account.request_log.refusals)


@settings(max_examples=200)
@given(
    shape=st.sampled_from(["rolling", "bucket", "day"]),
    amount=st.integers(1, 12),
    per=st.sampled_from([0.4, 1.0, 2.0, 60.0]),
    shares=st.lists(st.floats(0, 1), min_size=1, max_size=30),
    delays=st.lists(st.sampled_from([0.0, 0.25, 0.5]), min_size=30, max_size=30),
    before_midnight=st.sampled_from([0.0, 3.0, 5.2, 5.7, 400.0]),
)
def test_calls_that_the_windows_allow_are_never_refused(
    *,
    shape: str,
    amount: int,
    per: float,
    shares: list[float],
    delays: list[float],
    before_midnight: float,
) -> None:
    limit, quota = pair(shape, amount, per)
    wall = SUMMER_ENDS - before_midnight
    most = int(new_window(limit).room(limit, Instant(43_200.0, 0.0), GUARDS))
    costs = [max(1, round(share * most)) for share in shares]
    times = sent(limit, costs, wall)
    calls = [(at + delay, cost) for at, delay, cost in zip(times, delays, costs, strict=False)]
    assert refusals(quota, calls, wall) == 0


@pytest.mark.parametrize(
    ("shape", "amount", "per", "most"),
    [
        ("rolling", 10, 60.0, 1.05),
        ("rolling", 1, 2.0, 1.05),
        ("bucket", 10, 60.0, 1.03),
        ("bucket", 1, 60.0, 1.03),
        ("bucket", 1, 1.0, 1.03),
        ("bucket", 2, 1.0, 1.03),
        ("day", 10, 0.0, 1.03),
    ],
)
def test_they_are_nearly_as_fast_as_can_be(shape: str, amount: int, per: float, most: float) -> None:
    limit, quota = pair(shape, amount, per)
    times = sent(limit, [1] * 12 * amount, SUMMER_ENDS)
    best = optimal_drain_seconds([quota], 12 * amount, cost={"tokens": 1}, wall=SUMMER_ENDS)
    assert 1.0 <= times[-1] / best <= most


FOLDER = Path(tidemill.testing.simulator.__file__).parent


def test_nothing_is_borrowed_from_the_core() -> None:
    files = list(FOLDER.rglob("*.py"))
    assert len(files) > 15
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            ours = [name for name in names if name.startswith("tidemill")]
            allowed = ("tidemill.testing.simulator", "tidemill.clock", "tidemill.testing.virtual_loop")
            assert all(name.startswith(allowed) for name in ours), (file.name, ours)
