"""Sharing slots among queues: by weight over time, and no slot stays empty."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.claims import QueueWeights


def play(weights: QueueWeights, slots: int, ready: dict[str, int]) -> list[str]:
    """Serves one claim as a store does: every share in order, then the rest, in order."""
    shares = weights.shares(slots)
    got: list[str] = []
    for share in shares:
        count = min(share.jobs, ready[share.queue], slots - len(got))
        got += [share.queue] * count
        ready[share.queue] -= count
    for share in shares:
        count = min(ready[share.queue], slots - len(got))
        got += [share.queue] * count
        ready[share.queue] -= count
    weights.served(got)
    return got


@given(
    parts=st.dictionaries(st.sampled_from("abcd"), st.integers(1, 9), min_size=2),
    slots=st.lists(st.integers(1, 7), min_size=1, max_size=5),
)
def test_busy_queues_get_their_share_over_many_claims(parts: dict[str, int], slots: list[int]) -> None:
    weights, got = QueueWeights(parts), Counter[str]()
    for number in range(400):
        got.update(play(weights, slots[number % len(slots)], dict.fromkeys(parts, 10**6)))
    total, whole = sum(got.values()), sum(parts.values())
    for queue, weight in parts.items():
        assert abs(got[queue] - total * weight / whole) <= 2 * whole


@given(
    parts=st.dictionaries(st.sampled_from("abcd"), st.integers(1, 9), min_size=1),
    strict=st.booleans(),
    rounds=st.lists(
        st.tuples(st.integers(1, 8), st.lists(st.integers(0, 5), min_size=4, max_size=4)), max_size=20
    ),
)
def test_no_slot_stays_empty_while_a_queue_has_work(
    parts: dict[str, int], strict: bool, rounds: list[tuple[int, list[int]]]
) -> None:
    weights = QueueWeights(parts, strict=strict)
    for slots, lengths in rounds:
        ready = {queue: lengths["abcd".index(queue)] for queue in parts}
        waiting = sum(ready.values())
        assert len(play(weights, slots, ready)) == min(slots, waiting)


@given(
    parts=st.dictionaries(st.sampled_from("abcd"), st.integers(1, 9), min_size=1),
    slots=st.integers(0, 50),
    strict=st.booleans(),
)
def test_every_queue_has_one_share(parts: dict[str, int], slots: int, strict: bool) -> None:
    shares = QueueWeights(parts, strict=strict).shares(slots)
    assert sorted(share.queue for share in shares) == sorted(parts)


def test_strict_order_serves_the_first_queue_first() -> None:
    weights = QueueWeights({"urgent": 1, "rest": 9}, strict=True)
    assert play(weights, 3, {"urgent": 2, "rest": 5}) == ["urgent", "urgent", "rest"]
    assert play(weights, 3, {"urgent": 5, "rest": 5}) == ["urgent"] * 3


def test_an_idle_queue_does_not_accumulate_turns() -> None:
    weights = QueueWeights({"busy": 1, "idle": 1})
    for _ in range(100):
        play(weights, 1, {"busy": 10, "idle": 0})
    got = Counter[str]()
    for _ in range(10):
        got.update(play(weights, 1, {"busy": 10, "idle": 10}))
    assert got["busy"] >= 4


@pytest.mark.parametrize("slots", [16, 192, 193, 300, 1000, 16_000])
def test_large_claims_are_divided_by_weight_too_q5(slots: int) -> None:
    parts = {"podcast": 10, "rss": 5, "default": 1}
    granted = {share.queue: share.jobs for share in QueueWeights(parts).shares(slots)}
    assert sum(granted.values()) == slots
    for queue, weight in parts.items():
        assert abs(granted[queue] - slots * weight / 16) <= 1
