"""Conformance tests for `claim`: fences, repeated claims, limits, pauses, expiry and claims by id."""

from __future__ import annotations

import pytest

from tidemill.core.operator_changes import CancelJobs
from tidemill.core.outcomes import JobRelease, RetryLater
from tidemill.core.queues import QueueSettings
from tidemill.core.states import State
from tidemill.core.unique_keys import Unique
from tidemill.testing.conformance.fixtures import LEASE_SECONDS, SAMPLE_ERROR, StoreDriver, ids, new_job


class TestClaim:
    async def test_j32_fences_grow_and_claim_ids_are_unique(self, driver: StoreDriver) -> None:
        await driver.add(*"abcd")
        first, second = await driver.take(limit=2), await driver.take("x", limit=2)
        assert len({job.fence for job in first}) == 1
        assert second[0].fence > first[0].fence > 0
        claims = {first[0].claim, second[0].claim}
        assert len(claims) == 2
        assert 0 not in claims

    async def test_j32_claiming_again_takes_a_new_identity(self, driver: StoreDriver) -> None:
        await driver.add("a")
        first = await driver.take_one()
        await driver.settle(first, JobRelease())
        second = await driver.take_one()
        assert second.fence > first.fence
        assert second.claim != first.claim

    async def test_j32_marks_the_job_as_running(self, driver: StoreDriver) -> None:
        await driver.add("a")
        driver.clock.advance(3.0)
        claimed = await driver.take_one()
        job = await driver.job("a")
        assert (job.state, job.worker, job.number) == (State.RUNNING, "w", 1)
        assert (job.fence, job.claim) == (claimed.fence, claimed.claim)
        assert (job.started, job.lease) == (driver.clock.wall(), driver.clock.boot() + LEASE_SECONDS)

    async def test_j32_a_claim_returns_everything_a_run_needs(self, driver: StoreDriver) -> None:
        sent = new_job("a", key="k", priority=3, timeout=7.0, trace="00-ab")
        await driver.add(sent)
        claimed = await driver.take_one()
        assert (claimed.id, claimed.queue, claimed.task) == ("a", "q", sent.task)
        assert (claimed.payload, claimed.lane, claimed.priority) == (sent.payload, "k", 3)
        assert (claimed.timeout, claimed.trace, claimed.attempt) == (7.0, "00-ab", 1)
        assert (claimed.crashes, claimed.suspect, claimed.generation) == (0, False, 0)

    async def test_j38_a_claim_reports_when_the_next_job_is_due(self, driver: StoreDriver) -> None:
        await driver.add(new_job("a", delay=10.0), new_job("b", delay=4.0))
        await driver.add(new_job("c", delay=7.0), queue="p")
        assert (await driver.claim(shares=(("q", 1), ("p", 1)))).next_due == pytest.approx(4.0)
        assert (await driver.claim(shares=(("p", 1),))).next_due == pytest.approx(7.0)
        assert (await driver.claim(shares=(("empty", 1),))).next_due is None

    async def test_j36_j38_the_due_time_of_a_successor_of_an_expired_job_is_reported(
        self, driver: StoreDriver
    ) -> None:
        unique = Unique("u", "rerun")
        await driver.add(new_job("a", unique=unique, expires=5.0))
        claimed = await driver.take_one()
        await driver.add(new_job("b", unique=unique, delay=20.0))
        await driver.settle(claimed, JobRelease())
        driver.clock.advance(6.0)
        found = await driver.claim()
        assert found.jobs == []
        assert found.next_due == pytest.approx(14.0)

    async def test_j38_more_only_when_open_jobs_are_left(self, driver: StoreDriver) -> None:
        await driver.add(*"abc")
        assert (await driver.claim(limit=2)).more
        assert not (await driver.claim(limit=2)).more
        await driver.store.declare({"q": QueueSettings(concurrency=3)})
        await driver.add("d")
        assert not (await driver.claim(limit=0)).more

    async def test_j2_a_running_job_is_not_claimed_again(self, driver: StoreDriver) -> None:
        await driver.add("a")
        await driver.take()
        assert await driver.take("x") == []


class TestRepeatedClaim:
    async def test_j33_the_same_number_returns_the_same_jobs(self, driver: StoreDriver) -> None:
        await driver.add(*"abcd")
        first = await driver.take(limit=2)
        repeated = await driver.take(limit=2, number=1)
        assert repeated == first
        assert ids(await driver.take(limit=9)) == ["c", "d"]

    async def test_j33_jobs_settled_in_between_are_left_out(self, driver: StoreDriver) -> None:
        await driver.add(*"abc")
        first, *rest = await driver.take()
        await driver.settle(first)
        assert await driver.take(number=1) == rest

    async def test_j33_jobs_that_another_worker_claimed_are_left_out(self, driver: StoreDriver) -> None:
        await driver.add(*"ab")
        first, second = await driver.take()
        await driver.settle(first, JobRelease())
        await driver.take("x")
        assert await driver.take(number=1) == [second]

    async def test_j33_a_claim_that_found_nothing_finds_nothing_again(self, driver: StoreDriver) -> None:
        assert await driver.take() == []
        await driver.add("a")
        assert await driver.take(number=1) == []
        assert ids(await driver.take()) == ["a"]

    async def test_j33_a_late_duplicate_of_an_old_claim_takes_nothing(self, driver: StoreDriver) -> None:
        await driver.add(*"abc")
        first = await driver.take(limit=1)
        await driver.take(limit=1)
        assert await driver.take(limit=9, number=1) == first
        assert await driver.state("c") is State.READY

    async def test_j33_a_silent_worker_that_holds_jobs_stays_known(self, driver: StoreDriver) -> None:
        """Each claim of a worker has a number. A claim repeated with the same number returns the same jobs,
        even after hours without a heartbeat and after a prune."""
        await driver.add("a")
        request = driver.request("w")
        (job,) = (await driver.store.claim(request)).jobs
        driver.clock.advance(3 * 3600)
        await driver.store.prune()
        (repeated,) = (await driver.store.claim(request)).jobs
        assert (repeated.id, repeated.fence, repeated.claim) == (job.id, job.fence, job.claim)

    async def test_j33_numbers_are_each_workers_own(self, driver: StoreDriver) -> None:
        await driver.add(*"ab")
        assert ids(await driver.take("w", limit=1, number=1)) == ["a"]
        assert ids(await driver.take("x", limit=1, number=1)) == ["b"]

    async def test_j33_with_settle_too(self, driver: StoreDriver) -> None:
        await driver.add(*"ab")
        request = driver.request(limit=1)
        first = (await driver.store.settle([], request)).claims
        repeated = (await driver.store.settle([], request)).claims
        assert first is not None
        assert repeated is not None
        assert repeated.jobs == first.jobs


class TestClaimByIds:
    async def test_j37_each_id_is_claimed_blocked_or_gone(self, driver: StoreDriver) -> None:
        await driver.add("a", "b", "c", "d", new_job("later", delay=60.0))
        await driver.settle((await driver.take(named=["a"]))[0])
        await driver.take(named=["b"])
        claims = await driver.claim(named=["d", "a", "b", "later", "c", "never"])
        assert ids(claims.jobs) == ["d", "c"]
        assert claims.blocked == ("b", "later")
        assert claims.missing == ("a", "never")

    async def test_j37_a_job_that_has_come_due_is_claimed(self, driver: StoreDriver) -> None:
        await driver.add(new_job("a", delay=5.0))
        driver.clock.advance(5.0)
        assert ids(await driver.take(named=["a"])) == ["a"]

    async def test_j37_paused_or_at_a_limit_is_blocked(self, driver: StoreDriver) -> None:
        settings = QueueSettings(concurrency=2, key_concurrency=1)
        await driver.store.declare({"q": settings})
        await driver.add(new_job("a", key="k"), new_job("b", key="k"), "c", "d")
        claims = await driver.claim(named="abcd")
        assert (ids(claims.jobs), claims.blocked) == (["a", "c"], ("b", "d"))
        await driver.add("e", queue="p")
        await driver.store.pause("p")
        assert (await driver.claim(named="e")).blocked == ("e",)

    async def test_j37_no_more_than_the_limit(self, driver: StoreDriver) -> None:
        await driver.add(*"abc")
        claims = await driver.claim(named="abc", limit=2)
        assert (ids(claims.jobs), claims.blocked) == (["a", "b"], ("c",))

    async def test_j36_j37_an_expired_job_is_gone(self, driver: StoreDriver) -> None:
        await driver.add(new_job("a", expires=1.0))
        driver.clock.advance(1.0)
        assert (await driver.claim(named="a")).missing == ("a",)
        assert await driver.state("a") is State.CANCELLED

    async def test_j33_j37_repeated_by_number(self, driver: StoreDriver) -> None:
        await driver.add(*"ab")
        first = await driver.take(named="ab")
        assert await driver.take(named="ab", number=1) == first


class TestClaimLimits:
    async def test_j35_running_jobs_of_a_queue(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(concurrency=2)})
        await driver.add(*"abcd")
        first = await driver.take()
        assert ids(first) == ["a", "b"]
        assert await driver.take("x") == []
        await driver.settle(first[0], RetryLater(9.0, SAMPLE_ERROR))
        assert ids(await driver.take("x")) == ["c"]

    async def test_j35_the_second_round_keeps_the_limit(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(concurrency=3)})
        await driver.add(*"abcdef")
        assert ids(await driver.take(shares=(("q", 2),), limit=6)) == ["a", "b", "c"]

    async def test_j35_running_jobs_of_a_key(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(key_concurrency=1)})
        await driver.add(*[new_job(f"{key}{n}", key=key) for key in "ab" for n in range(2)], "1", "2")
        first = await driver.take()
        assert ids(first) == ["a0", "b0", "1", "2"]
        assert not (await driver.claim()).more
        await driver.settle(first[1])
        assert ids(await driver.take()) == ["b1"]

    async def test_j35_a_cancel_and_a_reclaim_free_capacity(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(concurrency=1, key_concurrency=1)})
        await driver.add(*[new_job(job, key="k") for job in "abc"])
        await driver.take()
        await driver.amend(CancelJobs(), "a")
        assert ids(await driver.take()) == ["b"]
        await driver.store.reclaim(["w"])
        assert ids(await driver.take("x")) == ["b"]

    async def test_j35_a_full_lane_holds_back_only_itself(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(key_concurrency=1)})
        await driver.add(*[new_job(f"a{n}", key="a", priority=0) for n in range(200)], new_job("b", key="b"))
        assert ids(await driver.take()) == ["a0", "b"]


class TestClaimPause:
    async def test_j34_q3_nothing_starts_and_running_jobs_go_on(self, driver: StoreDriver) -> None:
        await driver.add(*"ab")
        job = await driver.take_one()
        await driver.store.pause("q", reason="maintenance")
        claims = await driver.claim()
        assert (claims.jobs, claims.more, claims.next_due) == ([], False, None)
        assert await driver.settle(job) == "ok"
        await driver.store.resume("q")
        assert ids(await driver.take()) == ["b"]

    async def test_j34_j38_a_pause_with_a_time_ends_by_itself(self, driver: StoreDriver) -> None:
        await driver.add("a")
        await driver.store.pause("q", until=driver.clock.wall() + 60)
        assert (await driver.claim()).next_due == pytest.approx(60.0)
        driver.clock.advance(59.0)
        assert await driver.take() == []
        driver.clock.advance(1.0)
        assert ids(await driver.take()) == ["a"]

    async def test_j34_a_pause_does_not_affect_other_queues(self, driver: StoreDriver) -> None:
        await driver.add("a")
        await driver.add("b", queue="p")
        await driver.store.pause("q")
        assert ids(await driver.take(shares=(("q", 1), ("p", 1)))) == ["b"]

    async def test_j34_a_paused_queue_takes_jobs(self, driver: StoreDriver) -> None:
        await driver.store.pause("q")
        await driver.add("a", new_job("b", delay=1.0))
        driver.clock.advance(2.0)
        assert await driver.take() == []
        await driver.store.resume("q")
        assert ids(await driver.take()) == ["a", "b"]


class TestJobExpiry:
    async def test_j36_cancelled_instead_of_started(self, driver: StoreDriver) -> None:
        await driver.add(new_job("a", expires=5.0), "b")
        driver.clock.advance(5.0)
        assert ids(await driver.take()) == ["b"]
        job = await driver.job("a")
        assert (job.state, job.reason, job.attempts) == (State.CANCELLED, "expired", 0)

    async def test_j36_the_successor_of_an_expired_job_starts_in_the_same_claim(
        self, driver: StoreDriver
    ) -> None:
        unique = Unique("u", "rerun")
        await driver.add(new_job("a", unique=unique, expires=5.0))
        job = await driver.take_one()
        await driver.add(new_job("b", unique=unique))
        await driver.settle(job, JobRelease())
        driver.clock.advance(5.0)
        assert ids(await driver.take()) == ["b"]

    async def test_j36_a_job_starts_until_its_expiry(self, driver: StoreDriver) -> None:
        await driver.add(new_job("a", expires=5.0))
        driver.clock.advance(4.999)
        assert ids(await driver.take()) == ["a"]

    async def test_j36_a_running_job_does_not_expire(self, driver: StoreDriver) -> None:
        await driver.add(new_job("a", expires=5.0))
        job = await driver.take_one()
        driver.clock.advance(6.0)
        await driver.store.prune()
        assert await driver.settle(job) == "ok"
        assert await driver.state("a") is State.DONE

    async def test_j36_the_jobs_behind_expired_ones_are_found(self, driver: StoreDriver) -> None:
        await driver.add(*[new_job(f"{n:03}", expires=1.0) for n in range(150)], "last")
        driver.clock.advance(1.0)
        assert ids(await driver.take(limit=1)) == ["last"]
