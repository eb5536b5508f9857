"""The rule of batches against the sentences that define it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core import needs
from tidemill.core.batching import MOST_ITEMS, Batching, by_calls, longest, needs_of_call, prefix, ripe_in
from tidemill.core.demand import sampled
from tidemill.core.job import Group, NewJob, lane_of, problem_with
from tidemill.core.needs import Need, is_of_batches, key_of

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
    Batching,
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
def test_b3_a_call_is_the_longest_prefix_its_rule_allows(rule: Batching, waiting: list[Item]) -> None:
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
    assert prefix(rule, waiting) == best


@given(rules, st.lists(items, min_size=1, max_size=6))
def test_b2_no_lane_waits_longer_than_it_may(rule: Batching, waiting: list[Item]) -> None:
    """And waits at all only for company it may have."""
    waiting = waiting[: rule.max_items]
    wait = ripe_in(rule, waiting, NOW)
    assert 0 <= wait <= rule.linger
    if wait:
        assert prefix(rule, waiting) == len(waiting) < rule.max_items
        assert wait == pytest.approx(min(item.due for item in waiting) + rule.linger - NOW)


@given(st.integers(1, 200), st.integers(0, 200))
def test_b3_the_most_that_fit_are_found_by_few_questions(count: int, fitting: int) -> None:
    asked: list[int] = []

    def fits(jobs: int) -> bool:
        asked.append(jobs)
        return jobs <= fitting

    assert longest(count, fits) == min(count, fitting)
    assert len(asked) <= 2 + count.bit_length()
    if fitting == 0:
        assert len(asked) <= 2, "a pool that is full is not asked again and again"


def test_b4_a_call_costs_once_what_every_call_costs() -> None:
    rule = Batching(max_items=9, call={"m": {"tokens": 50, "requests": 1}})
    asked = needs_of_call(rule, [Item(10), Item(20)])
    assert asked == (Need("m", None, {"tokens": 80, "requests": 1}), Need("n", None, {"tokens": 15}))


def test_b1_pools_named_in_another_order_are_the_same_pools() -> None:
    class Turned(Item, frozen=True):
        @property
        def needs(self) -> tuple[Need, ...]:
            return super().needs[::-1]

    first, second = Item(10), Turned(20)
    assert needs_of_call(Batching(max_items=2), [first, second])[0] == Need("m", None, {"tokens": 30})
    assert needs.group_of(first.needs) == needs.group_of(second.needs)


def test_b1_lanes_of_batches_are_told_apart_by_their_names() -> None:
    job = NewJob(id="a", task="embed", payload=b"{}", key="k")
    lane = lane_of(msgspec.structs.replace(job, batching=Batching(max_items=2)))
    assert is_of_batches(lane)
    assert key_of(lane) == "k"
    pooled = lane_of(msgspec.structs.replace(job, needs=(Need("m"),)))
    assert not is_of_batches(lane_of(job))
    assert not is_of_batches(pooled)
    assert len({lane, pooled, lane_of(job), needs.lane_of("k", (), "embed", "1")}) == 4


class Placed(msgspec.Struct, frozen=True):
    call: str
    priority: int
    due: float
    seq: int


def test_b5_calls_are_kept_together_and_the_others_where_they_are() -> None:
    jobs = [Placed("x", 5, 0, 1), Placed("", 5, 0, 2), Placed("y", 5, 0, 3), Placed("x", 1, 0, 4)]
    assert [job.seq for job in by_calls(jobs)] == [4, 1, 2, 3]


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        (Batching(max_items=0), "max_items"),
        (Batching(max_items=MOST_ITEMS + 1), "max_items"),
        (Batching(max_items=2, linger=-1), "linger"),
        (Batching(max_items=2, linger=float("inf")), "linger"),
        (Batching(max_items=2, max_units={"tokens": 0}), "max_units"),
        (Batching(max_items=2, call={"m": {"tokens": -1}}), "call"),
        (Batching(max_items=2, call={"m": {"tokens": 1}}), "call"),
    ],
)
def test_j13_a_rule_that_cannot_work_is_refused(rule: Batching, field: str) -> None:
    job = NewJob(id="a", task="embed", payload=b"{}", batching=rule)
    problem = problem_with(Group("q", (job,)))
    assert problem is not None
    assert problem.startswith(f"{field}: ")


def test_j13_a_task_of_batches_has_no_separator_in_its_name() -> None:
    job = NewJob(id="a", task="em\x1fbed", payload=b"{}", batching=Batching(max_items=2))
    assert "task" in (problem_with(Group("q", (job,))) or "")


@pytest.mark.parametrize(("amount", "good"), [(0.0, True), (1.5, True), (-0.1, False), (float("inf"), False)])
def test_what_a_call_costs_beside_its_items_is_0_or_more(amount: float, good: bool) -> None:
    assert (Batching(max_items=2, call={"m": {"tokens": amount}}).problem() is None) is good


@pytest.mark.parametrize(("lanes", "jobs"), [(0, 1000), (1, 1000), (10, 100), (200, 5), (10**6, 5)])
def test_of_many_lanes_fewer_jobs_each_are_looked_at(lanes: int, jobs: int) -> None:
    assert sampled(lanes) == jobs


def test_a_key_must_not_hold_what_separates_the_parts_of_a_lane() -> None:
    told = problem_with(Group("q", (NewJob(id="a", task="t", payload=b"{}", key="a\x1fb"),)))
    assert told == "key: must not hold the character U+001F (job 'a')"
