"""Conformance tests for the order in which jobs are claimed (priority, lanes, queue shares), and for backlogs
and job positions."""

from __future__ import annotations

import pytest

from tidemill.contract.jobs import MAX_PROMOTED_PER_CLAIM
from tidemill.contract.reader import MAX_AHEAD_COUNTED, Backlog
from tidemill.core.operator_changes import CancelJobs, ReprioritiseJobs
from tidemill.core.outcomes import JobRelease, Outcome, RetryLater, SmallerBatch, Snooze
from tidemill.core.queues import QueueSettings, Retention
from tidemill.core.states import State
from tidemill.testing.conformance.fixtures import SAMPLE_ERROR, StoreDriver, ids, new_job


class TestClaimOrder:
    async def test_j31_by_priority_then_due_then_age(self, driver: StoreDriver) -> None:
        await driver.add(
            new_job("late", delay=2.0),
            new_job("soon", delay=1.0),
            new_job("c"),
            new_job("d"),
            new_job("a", priority=1),
        )
        await driver.add(new_job("b", priority=2))
        driver.clock.advance(3.0)
        assert ids(await driver.take()) == ["a", "b", "c", "d", "soon", "late"]

    async def test_j31_the_limit_cuts_the_order(self, driver: StoreDriver) -> None:
        await driver.add(*"abcde")
        assert ids(await driver.take(limit=2)) == ["a", "b"]
        assert ids(await driver.take(limit=2)) == ["c", "d"]
        assert ids(await driver.take(limit=2)) == ["e"]

    @pytest.mark.parametrize("outcome", [JobRelease(), SmallerBatch("2")])
    async def test_j43_a_job_given_back_keeps_its_place(
        self, driver: StoreDriver, outcome: JobRelease | SmallerBatch
    ) -> None:
        await driver.add(*"abc")
        await driver.settle(await driver.take_one(), outcome)
        assert ids(await driver.take()) == ["a", "b", "c"]

    async def test_j43_a_returned_or_reclaimed_job_keeps_its_place(self, driver: StoreDriver) -> None:
        await driver.add(*"abc")
        await driver.take(limit=1)
        await driver.beat()
        assert ids(await driver.take("x", limit=1)) == ["a"]
        await driver.store.reclaim(["x"])
        assert ids(await driver.take()) == ["a", "b", "c"]

    async def test_j31_a_retry_queues_by_its_new_due_time(self, driver: StoreDriver) -> None:
        await driver.add("a")
        await driver.settle(await driver.take_one(), RetryLater(5.0, SAMPLE_ERROR))
        driver.clock.advance(1.0)
        await driver.add("b")
        driver.clock.advance(9.0)
        assert ids(await driver.take()) == ["b", "a"]

    async def test_j31_a_snooze_without_delay_goes_behind_older_due_times(self, driver: StoreDriver) -> None:
        await driver.add(*"ab")
        job = await driver.take_one()
        driver.clock.advance(1.0)
        await driver.settle(job, Snooze(0.0))
        assert ids(await driver.take()) == ["b", "a"]

    async def test_j31_a_new_priority_counts_at_once(self, driver: StoreDriver) -> None:
        await driver.add(*"abc")
        await driver.amend(ReprioritiseJobs(0), "c")
        assert ids(await driver.take()) == ["c", "a", "b"]

    async def test_j30_promotes_a_bounded_number_oldest_due_first(self, driver: StoreDriver) -> None:
        jobs = [new_job(f"{n:04}", delay=1.0 + n % 2) for n in range(MAX_PROMOTED_PER_CLAIM + 10)]
        await driver.add(*jobs)
        driver.clock.advance(5.0)
        claims = await driver.claim(limit=1)
        assert ids(claims.jobs) == ["0000"]
        assert claims.next_due == 0.0
        counts = (await driver.store.counts())["q"]
        assert counts[State.SCHEDULED] == 10
        assert (await driver.job(jobs[-1].id)).state is State.SCHEDULED
        assert (await driver.job(jobs[-2].id)).state is State.READY


class TestLanes:
    async def test_j31_lanes_take_turns(self, driver: StoreDriver) -> None:
        await driver.add(
            *[new_job(f"a{n}", key="a") for n in range(4)], *[new_job(f"b{n}", key="b") for n in range(2)]
        )
        assert ids(await driver.take()) == ["a0", "b0", "a1", "b1", "a2", "a3"]

    async def test_j31_turns_go_on_across_claims(self, driver: StoreDriver) -> None:
        await driver.add(*[new_job(f"{key}{n}", key=key) for key in "abc" for n in range(3)])
        taken = [(await driver.take_one()).id for _ in range(9)]
        assert taken == ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2"]

    async def test_j31_urgency_comes_before_turns(self, driver: StoreDriver) -> None:
        await driver.add(new_job("b", key="b"), *[new_job(f"a{n}", key="a", priority=1) for n in range(3)])
        assert ids(await driver.take()) == ["a0", "a1", "a2", "b"]

    async def test_j31_jobs_without_a_key_are_one_lane(self, driver: StoreDriver) -> None:
        await driver.add("1", "2", "3", new_job("k", key="k"))
        assert ids(await driver.take()) == ["1", "k", "2", "3"]

    async def test_j31_a_new_lane_does_not_overtake_those_waiting(self, driver: StoreDriver) -> None:
        await driver.add(*[new_job(f"{key}{n}", key=key) for key in "ab" for n in range(2)])
        assert (await driver.take_one()).id == "a0"
        await driver.add(new_job("c0", key="c"))
        assert ids(await driver.take()) == ["b0", "a1", "c0", "b1"]

    async def test_j31_many_lanes_cost_one_turn_each(self, driver: StoreDriver) -> None:
        await driver.add(*[new_job(f"{key:03}.{n}", key=f"{key:03}") for key in range(50) for n in range(2)])
        first = ids(await driver.take(limit=50))
        assert first == [f"{key:03}.0" for key in range(50)]
        assert ids(await driver.take()) == [f"{key:03}.1" for key in range(50)]

    async def test_j31_expired_jobs_do_not_hide_the_lanes_behind_them(self, driver: StoreDriver) -> None:
        await driver.add(
            new_job("a0", key="a", priority=1, expires=1.0),
            new_job("a1", key="a", priority=9),
            new_job("b0", key="b", priority=2, expires=1.0),
            new_job("b1", key="b", priority=9),
            new_job("c0", key="c", priority=5),
        )
        driver.clock.advance(2.0)
        assert ids(await driver.take(limit=1)) == ["c0"]


class TestQueueShares:
    async def test_j39_shares_are_filled_first_and_then_the_rest_in_order(self, driver: StoreDriver) -> None:
        await driver.add(*"abcde")
        await driver.add(*"vwxyz", queue="p")
        taken = await driver.take(shares=(("p", 2), ("q", 1)), limit=5)
        assert ids(taken) == ["v", "w", "a", "x", "y"]

    async def test_j39_an_empty_queue_leaves_its_share_to_others(self, driver: StoreDriver) -> None:
        await driver.add(*"abc")
        assert ids(await driver.take(shares=(("p", 2), ("q", 1)), limit=3)) == ["a", "b", "c"]

    async def test_j39_only_the_queues_named(self, driver: StoreDriver) -> None:
        await driver.add("a")
        assert await driver.take(shares=(("p", 5),)) == []

    async def test_j32_both_rounds_are_one_claim(self, driver: StoreDriver) -> None:
        await driver.add(*"abc")
        taken = await driver.take(shares=(("q", 1),), limit=3)
        assert len({(job.fence, job.claim) for job in taken}) == 1


EMPTY_BACKLOG = Backlog(oldest_ready=None, next_due=None, retrying=0, last_ended=None)


class TestBacklog:
    async def test_r8_an_unknown_queue_has_an_empty_backlog(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings()})
        assert await driver.store.backlog("never") == await driver.store.backlog("q") == EMPTY_BACKLOG

    async def test_r8_the_oldest_ready_in_any_lane_and_priority(self, driver: StoreDriver) -> None:
        start = driver.clock.wall()
        lanes = (None, "k", "l")
        for seconds, (key, priority) in enumerate((key, priority) for key in lanes for priority in (9, 5, 1)):
            driver.clock.advance(1.0)
            await driver.add(
                new_job(f"{seconds}", key=key, priority=priority), new_job(f"{seconds}+", key=key)
            )
        await driver.add("other", queue="p")
        for seconds in range(9):
            assert (await driver.store.backlog("q")).oldest_ready == start + seconds + 1
            await driver.amend(CancelJobs(), f"{seconds}", f"{seconds}+")
        assert (await driver.store.backlog("q")).oldest_ready is None

    async def test_r8_a_job_could_start_since_it_was_due(self, driver: StoreDriver) -> None:
        start = driver.clock.wall()
        await driver.add(new_job("a", delay=5.0))
        assert (await driver.store.backlog("q")).next_due == start + 5
        driver.clock.advance(60.0)
        late = await driver.store.backlog("q")
        assert (late.oldest_ready, late.next_due) == (None, start + 5)
        await driver.take(limit=0)
        promoted = await driver.store.backlog("q")
        assert (promoted.oldest_ready, promoted.next_due) == (start + 5, None)

    async def test_r8_retrying_counts_jobs_that_have_run(self, driver: StoreDriver) -> None:
        await driver.add("a", "b", "c", new_job("later", delay=9.0))
        outcomes: tuple[Outcome, ...] = (
            RetryLater(9.0, SAMPLE_ERROR),
            RetryLater(0.0, SAMPLE_ERROR),
            Snooze(9.0),
        )
        for job, outcome in zip(await driver.take(), outcomes, strict=True):
            await driver.settle(job, outcome)
        assert (await driver.store.backlog("q")).retrying == 1
        await driver.amend(CancelJobs(), "a")
        assert (await driver.store.backlog("q")).retrying == 0

    async def test_r8_the_last_end_is_known_after_pruning(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(keep_done=Retention(count=0))})
        await driver.ended("a")
        ended = driver.clock.wall()
        driver.clock.advance(200.0)
        await driver.add("b")
        await driver.settle(await driver.take_one(), RetryLater(0.0, SAMPLE_ERROR))
        assert (await driver.store.backlog("q")).last_ended == ended
        await driver.store.prune()
        assert (await driver.store.backlog("q")).last_ended == ended // 60 * 60
        await driver.amend(CancelJobs(), "b")
        assert (await driver.store.backlog("q")).last_ended == driver.clock.wall()


class TestJobPosition:
    async def test_r9_by_the_order_of_the_lane(self, driver: StoreDriver) -> None:
        await driver.add(
            *"ab", new_job("urgent", priority=1), new_job("elsewhere", key="k"), new_job("late", priority=9)
        )
        await driver.add("p", queue="p")
        ahead = {
            name: await driver.store.ahead(name) for name in ("urgent", "a", "b", "late", "elsewhere", "p")
        }
        assert ahead == {"urgent": 0, "a": 1, "b": 2, "late": 3, "elsewhere": 0, "p": 0}
        await driver.take(limit=3)
        assert [await driver.store.ahead(name) for name in ("urgent", "b", "late")] == [None, 0, 1]

    async def test_r9_a_job_that_is_not_ready_has_no_position(self, driver: StoreDriver) -> None:
        await driver.add(new_job("later", delay=9.0))
        await driver.ended("done")
        assert [await driver.store.ahead(name) for name in ("later", "done", "never")] == [None] * 3

    async def test_r9_positions_are_counted_up_to_a_limit(self, driver: StoreDriver) -> None:
        await driver.add(*[new_job(f"{n}") for n in range(MAX_AHEAD_COUNTED + 2)])
        assert await driver.store.ahead(f"{MAX_AHEAD_COUNTED - 1}") == MAX_AHEAD_COUNTED - 1
        assert await driver.store.ahead(f"{MAX_AHEAD_COUNTED + 1}") == MAX_AHEAD_COUNTED
