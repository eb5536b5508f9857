"""In what order jobs are claimed: priorities, lanes, shares."""

# ruff: noqa: S101, PLR2004 - a test suite asserts, and its numbers are its data
from __future__ import annotations

import pytest

from tidemill.contract.jobs import PROMOTE_AT_ONCE
from tidemill.core.changes import Reprioritise
from tidemill.core.outcomes import Release, Retrying, Snooze, Split
from tidemill.core.states import State
from tidemill.testing.conformance.driver import OOPS, Driver, ids, new


class TestOrder:
    async def test_j31_by_priority_then_due_then_age(self, drive: Driver) -> None:
        await drive.add(
            new("late", delay=2.0), new("soon", delay=1.0), new("c"), new("d"), new("a", priority=1)
        )
        await drive.add(new("b", priority=2))
        drive.clock.advance(3.0)
        assert ids(await drive.take()) == ["a", "b", "c", "d", "soon", "late"]

    async def test_j31_the_limit_cuts_the_order(self, drive: Driver) -> None:
        await drive.add(*"abcde")
        assert ids(await drive.take(limit=2)) == ["a", "b"]
        assert ids(await drive.take(limit=2)) == ["c", "d"]
        assert ids(await drive.take(limit=2)) == ["e"]

    @pytest.mark.parametrize("outcome", [Release(), Split("2")])
    async def test_j43_a_job_given_back_keeps_its_place(
        self, drive: Driver, outcome: Release | Split
    ) -> None:
        await drive.add(*"abc")
        await drive.settle(await drive.take_one(), outcome)
        assert ids(await drive.take()) == ["a", "b", "c"]

    async def test_j43_a_returned_or_reclaimed_job_keeps_its_place(self, drive: Driver) -> None:
        await drive.add(*"abc")
        await drive.take(limit=1)
        await drive.beat()
        assert ids(await drive.take("x", limit=1)) == ["a"]
        await drive.store.reclaim(["x"])
        assert ids(await drive.take()) == ["a", "b", "c"]

    async def test_j31_a_retry_queues_by_its_new_due_time(self, drive: Driver) -> None:
        await drive.add("a")
        await drive.settle(await drive.take_one(), Retrying(5.0, OOPS))
        drive.clock.advance(1.0)
        await drive.add("b")
        drive.clock.advance(9.0)
        assert ids(await drive.take()) == ["b", "a"]

    async def test_j31_a_snooze_without_delay_goes_behind_older_due_times(self, drive: Driver) -> None:
        await drive.add(*"ab")
        job = await drive.take_one()
        drive.clock.advance(1.0)
        await drive.settle(job, Snooze(0.0))
        assert ids(await drive.take()) == ["b", "a"]

    async def test_j31_a_new_priority_counts_at_once(self, drive: Driver) -> None:
        await drive.add(*"abc")
        await drive.amend(Reprioritise(0), "c")
        assert ids(await drive.take()) == ["c", "a", "b"]

    async def test_j30_promotes_a_bounded_number_oldest_due_first(self, drive: Driver) -> None:
        jobs = [new(f"{n:04}", delay=1.0 + n % 2) for n in range(PROMOTE_AT_ONCE + 10)]
        await drive.add(*jobs)
        drive.clock.advance(5.0)
        claims = await drive.claim(limit=1)
        assert ids(claims.jobs) == ["0000"]
        assert claims.next_due == 0.0
        counts = (await drive.store.counts())["q"]
        assert counts[State.SCHEDULED] == 10
        assert (await drive.job(jobs[-1].id)).state is State.SCHEDULED
        assert (await drive.job(jobs[-2].id)).state is State.READY


class TestLanes:
    async def test_j31_lanes_take_turns(self, drive: Driver) -> None:
        await drive.add(
            *[new(f"a{n}", key="a") for n in range(4)], *[new(f"b{n}", key="b") for n in range(2)]
        )
        assert ids(await drive.take()) == ["a0", "b0", "a1", "b1", "a2", "a3"]

    async def test_j31_turns_go_on_across_claims(self, drive: Driver) -> None:
        await drive.add(*[new(f"{key}{n}", key=key) for key in "abc" for n in range(3)])
        taken = [(await drive.take_one()).id for _ in range(9)]
        assert taken == ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2"]

    async def test_j31_urgency_comes_before_turns(self, drive: Driver) -> None:
        await drive.add(new("b", key="b"), *[new(f"a{n}", key="a", priority=1) for n in range(3)])
        assert ids(await drive.take()) == ["a0", "a1", "a2", "b"]

    async def test_j31_jobs_without_a_key_are_one_lane(self, drive: Driver) -> None:
        await drive.add("1", "2", "3", new("k", key="k"))
        assert ids(await drive.take()) == ["1", "k", "2", "3"]

    async def test_j31_a_new_lane_does_not_overtake_those_waiting(self, drive: Driver) -> None:
        await drive.add(*[new(f"{key}{n}", key=key) for key in "ab" for n in range(2)])
        assert (await drive.take_one()).id == "a0"
        await drive.add(new("c0", key="c"))
        assert ids(await drive.take()) == ["b0", "a1", "c0", "b1"]

    async def test_j31_many_lanes_cost_one_turn_each(self, drive: Driver) -> None:
        await drive.add(*[new(f"{key:03}.{n}", key=f"{key:03}") for key in range(50) for n in range(2)])
        first = ids(await drive.take(limit=50))
        assert first == [f"{key:03}.0" for key in range(50)]
        assert ids(await drive.take()) == [f"{key:03}.1" for key in range(50)]

    async def test_j31_expired_heads_do_not_hide_lanes_behind_them(self, drive: Driver) -> None:
        await drive.add(
            new("a0", key="a", priority=1, expires=1.0),
            new("a1", key="a", priority=9),
            new("b0", key="b", priority=2, expires=1.0),
            new("b1", key="b", priority=9),
            new("c0", key="c", priority=5),
        )
        drive.clock.advance(2.0)
        assert ids(await drive.take(limit=1)) == ["c0"]


class TestShares:
    async def test_j39_every_share_then_what_is_left_in_order(self, drive: Driver) -> None:
        await drive.add(*"abcde")
        await drive.add(*"vwxyz", queue="p")
        taken = await drive.take(shares=(("p", 2), ("q", 1)), limit=5)
        assert ids(taken) == ["v", "w", "a", "x", "y"]

    async def test_j39_an_empty_queue_leaves_its_share_to_others(self, drive: Driver) -> None:
        await drive.add(*"abc")
        assert ids(await drive.take(shares=(("p", 2), ("q", 1)), limit=3)) == ["a", "b", "c"]

    async def test_j39_only_the_queues_named(self, drive: Driver) -> None:
        await drive.add("a")
        assert await drive.take(shares=(("p", 5),)) == []

    async def test_j32_both_rounds_are_one_claim(self, drive: Driver) -> None:
        await drive.add(*"abc")
        taken = await drive.take(shares=(("q", 1),), limit=3)
        assert len({(job.fence, job.claim) for job in taken}) == 1
