"""The quota benchmark counts rightly, its rules are what it says, and a small race of our own is run."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.quota.accounts import ACCOUNTS, LATENCY
from benchmarks.quota.contender_run import run_contender
from benchmarks.quota.contenders import CONTENDERS
from benchmarks.quota.contenders.simple_limiters import FixedWindowLimiter, TokenBucketLimiter
from benchmarks.quota.report import row
from benchmarks.quota.results import QuotaResult, compute_result, paid_twice

from tidemill.testing.simulator import BillEntry, RefusalCause, RefusalEntry, RequestEntry, RequestLog

OURS = CONTENDERS[0]


def _books(*bills: tuple[str, float, float, bool], refused: int = 0) -> RequestLog:
    """Bills as job, arrival, end, and whether the caller got the answer."""
    request_log = RequestLog()
    for mark, arrived, at, answered in bills:
        request_log.arrivals.append(
            RequestEntry(at=arrived, mark=mark, scope="", units={}, admitted=True, external=False)
        )
        request_log.bills.append(
            BillEntry(
                at=at,
                arrived=arrived,
                mark=mark,
                scope="",
                input_tokens=1,
                output_tokens=1,
                answered=answered,
            )
        )
    for _ in range(refused):
        request_log.refusals.append(
            RefusalEntry(at=0.0, mark="a", scope="", reason=RefusalCause.RATE, quotas=(), external=False)
        )
    return request_log


def test_time_runs_from_the_first_arrival_to_the_last_job_s_first_answer() -> None:
    request_log = _books(("a", 10.0, 14.0, True), ("b", 20.0, 24.0, True), ("a", 30.0, 34.0, True), refused=3)
    assert compute_result(request_log, 2, best=7.0) == QuotaResult(
        jobs=2, drained=2, refused=3, paid_twice=1, seconds=14.0, best=7.0
    )
    assert compute_result(request_log, 2, best=7.0).ratio == 2.0


def test_a_job_without_its_answer_is_not_drained() -> None:
    request_log = _books(("a", 0.0, 4.0, True), ("b", 1.0, 5.0, False))
    reached = compute_result(request_log, 2, best=4.0)
    assert (reached.drained, reached.seconds, reached.ratio) == (1, None, None)
    assert row(reached) == "1 of 2 | 0 | 0 | - | -"


def test_only_a_call_after_the_answer_is_a_double_payment() -> None:
    """I13, I26: after an answer that was lost nobody could know; two at once are two at once."""
    lost = _books(("a", 0.0, 4.0, False), ("a", 5.0, 9.0, True))
    assert paid_twice(lost) == 0
    again = _books(("a", 0.0, 4.0, True), ("a", 5.0, 9.0, True), ("a", 10.0, 14.0, False))
    assert paid_twice(again) == 2


@pytest.mark.parametrize("dialect", ACCOUNTS)
def test_the_one_rate_of_a_simple_limiter_is_the_strictest_limit(dialect: str) -> None:
    """Or the peers would be measured at a rate nobody would choose."""
    account = ACCOUNTS[dialect]
    units = {"requests": 1, **account.units}
    rates = [
        quota.amount / units[quota.unit] / quota.per
        for quota in account.quotas
        if quota.per and units.get(quota.unit)
    ]
    assert account.jobs_per_window / account.window == pytest.approx(min(rates))
    assert account.best(600) == pytest.approx(account.best(1200) / 2, rel=0.12), "the limits bind"
    assert account.best(1) == LATENCY


def test_the_fixed_window_lets_twice_the_limit_through_at_its_border() -> None:
    rule = FixedWindowLimiter(3, 10.0)
    assert [rule.wait(0.0), rule.wait(9.9), rule.wait(9.9)] == [0.0, 0.0, 0.0]
    assert rule.wait(9.9) == pytest.approx(0.1)
    assert [rule.wait(10.0) for _ in range(4)] == [0.0, 0.0, 0.0, 10.0]


def test_the_bucket_is_as_large_as_the_limit() -> None:
    rule = TokenBucketLimiter(3, 10.0)
    assert [rule.wait(0.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert rule.wait(0.0) == pytest.approx(10 / 3)
    assert rule.wait(10 / 3 + 1e-6) == 0.0


async def test_our_own_row_over_http(tmp_path: Path) -> None:
    """Four processes, real HTTP: the books show every job answered and none paid for twice (I14)."""
    reached, request_log = (await run_contender(OURS, ["glm"], jobs=20, scale=30.0, seed=1, folder=tmp_path))[
        "glm"
    ]
    assert (reached.drained, reached.paid_twice) == (20, 0)
    assert max(_under_way(request_log)) <= 5
    assert reached.seconds is not None
    assert reached.seconds >= reached.best


def _under_way(request_log: RequestLog) -> list[int]:
    """How many calls were being answered whenever one arrived."""
    return [
        sum(other.arrived <= one.arrived < other.at for other in request_log.bills)
        for one in request_log.bills
    ]
