"""Batch policies compared with their definitions."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core import needs
from tidemill.core.batching import (
    MAX_BATCH_ITEMS,
    BatchPolicy,
    call_needs,
    group_by_call,
    largest_fitting_count,
    max_call_jobs,
    seconds_until_full,
)
from tidemill.core.forecast.backlog import sample_size
from tidemill.core.jobs import JobGroup, NewJob, job_lane, problem_with_group
from tidemill.core.needs import Need, is_batch_lane, lane_key

NOW = 1_000.0


class Item(msgspec.Struct, frozen=True):
    tokens: float = 10.0
    due: float = NOW
    crashes: int = 0
    part: str = ""

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need("m", None, {"tokens": self.tokens}), Need("n", None, {"tokens": self.tokens / 2}))


rules = st.builds(
    BatchPolicy,
    max_items=st.integers(1, 6),
    linger=st.sampled_from((0.0, 5.0, 60.0)),
    max_units=st.sampled_from(({}, {}, {"tokens": 25.0}, {"tokens": 100.0, "requests": 1.0})),
)
items = st.builds(
    Item,
    tokens=st.sampled_from((0.0, 10.0, 30.0)),
    due=st.sampled_from((NOW - 70.0, NOW - 5.0, NOW - 1.0, NOW, NOW + 3600.0)),
    crashes=st.sampled_from((0, 0, 0, 1)),
)


@given(rules, st.lists(items, min_size=1, max_size=8))
def test_b3_a_call_is_the_longest_prefix_that_its_policy_allows(
    rule: BatchPolicy, waiting: list[Item]
) -> None:
    def allowed(count: int) -> bool:
        taken = waiting[:count]
        if count == 1:
            return True
        tokens = sum(item.tokens for item in taken)
        return (
            count <= rule.max_items
            and not any(item.crashes for item in taken)
            and tokens <= rule.max_units.get("tokens", tokens)
        )

    best = max(count for count in range(1, len(waiting) + 1) if all(map(allowed, range(1, count + 1))))
    assert max_call_jobs(rule, waiting) == best


@given(rules, st.lists(items, min_size=1, max_size=6))
def test_b2_no_lane_waits_longer_than_its_linger(rule: BatchPolicy, waiting: list[Item]) -> None:
    """A lane waits only if more jobs may join."""
    waiting = waiting[: rule.max_items]
    wait = seconds_until_full(rule, waiting, NOW)
    assert 0 <= wait <= rule.linger
    if wait:
        assert max_call_jobs(rule, waiting) == len(waiting) < rule.max_items
        assert wait == pytest.approx(min(item.due for item in waiting) + rule.linger - NOW)


@given(st.integers(1, 200), st.integers(0, 200))
def test_b3_the_largest_fitting_count_needs_few_checks(count: int, fitting: int) -> None:
    checked: list[int] = []

    def fits(jobs: int) -> bool:
        checked.append(jobs)
        return jobs <= fitting

    assert largest_fitting_count(count, fits) == min(count, fitting)
    assert len(checked) <= 2 + count.bit_length()
    if fitting == 0:
        assert len(checked) <= 2, "a pool that is full is not asked again and again"


def test_b4_implied_costs_count_once_per_call() -> None:
    rule = BatchPolicy(max_items=9, call={"m": {"tokens": 50, "requests": 1}})
    needs = call_needs(rule, [Item(10), Item(20)])
    assert needs == (Need("m", None, {"tokens": 80, "requests": 1}), Need("n", None, {"tokens": 15}))


def test_b1_pools_named_in_another_order_are_the_same_pools() -> None:
    class Turned(Item, frozen=True):
        @property
        def needs(self) -> tuple[Need, ...]:
            return super().needs[::-1]

    first, second = Item(10), Turned(20)
    assert call_needs(BatchPolicy(max_items=2), [first, second])[0] == Need("m", None, {"tokens": 30})
    assert needs.pool_group(first.needs) == needs.pool_group(second.needs)


def test_b1_batch_lanes_have_distinct_names() -> None:
    job = NewJob(id="a", task="embed", payload=b"{}", key="k")
    lane = job_lane(msgspec.structs.replace(job, batching=BatchPolicy(max_items=2)))
    assert is_batch_lane(lane)
    assert lane_key(lane) == "k"
    pooled = job_lane(msgspec.structs.replace(job, needs=(Need("m"),)))
    assert not is_batch_lane(job_lane(job))
    assert not is_batch_lane(pooled)
    assert len({lane, pooled, job_lane(job), needs.lane_name("k", (), "embed", "1")}) == 4


class Placed(msgspec.Struct, frozen=True):
    call: str
    priority: int
    due: float
    seq: int


def test_b5_jobs_of_a_call_stay_together_and_others_keep_their_order() -> None:
    jobs = [Placed("x", 5, 0, 1), Placed("", 5, 0, 2), Placed("y", 5, 0, 3), Placed("x", 1, 0, 4)]
    assert [job.seq for job in group_by_call(jobs)] == [4, 1, 2, 3]


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        (BatchPolicy(max_items=0), "max_items"),
        (BatchPolicy(max_items=MAX_BATCH_ITEMS + 1), "max_items"),
        (BatchPolicy(max_items=2, linger=-1), "linger"),
        (BatchPolicy(max_items=2, linger=float("inf")), "linger"),
        (BatchPolicy(max_items=2, max_units={"tokens": 0}), "max_units"),
        (BatchPolicy(max_items=2, call={"m": {"tokens": -1}}), "call"),
        (BatchPolicy(max_items=2, call={"m": {"tokens": 1}}), "call"),
    ],
)
def test_j13_an_invalid_policy_is_refused(rule: BatchPolicy, field: str) -> None:
    job = NewJob(id="a", task="embed", payload=b"{}", batching=rule)
    problem = problem_with_group(JobGroup("q", (job,)))
    assert problem is not None
    assert problem.startswith(f"{field}: ")


def test_j13_a_batch_task_has_no_separator_in_its_name() -> None:
    job = NewJob(id="a", task="em\x1fbed", payload=b"{}", batching=BatchPolicy(max_items=2))
    assert "task" in (problem_with_group(JobGroup("q", (job,))) or "")


@pytest.mark.parametrize(("amount", "good"), [(0.0, True), (1.5, True), (-0.1, False), (float("inf"), False)])
def test_the_cost_of_a_call_is_0_or_more(amount: float, good: bool) -> None:
    assert (BatchPolicy(max_items=2, call={"m": {"tokens": amount}}).problem() is None) is good


@pytest.mark.parametrize(("lanes", "jobs"), [(0, 1000), (1, 1000), (10, 100), (200, 5), (10**6, 5)])
def test_with_many_lanes_fewer_jobs_of_each_are_sampled(lanes: int, jobs: int) -> None:
    assert sample_size(lanes) == jobs


def test_a_key_must_not_contain_the_lane_separator() -> None:
    problem = problem_with_group(JobGroup("q", (NewJob(id="a", task="t", payload=b"{}", key="a\x1fb"),)))
    assert problem == "key: must not hold the character U+001F (job 'a')"
