"""claim: identity, repetition, limits, pauses, expiry, by ids."""

# ruff: noqa: S101, PLR2004 - a test suite asserts, and its numbers are its data
from __future__ import annotations

import pytest

from tidemill.core.changes import Cancel
from tidemill.core.outcomes import Release, Retrying
from tidemill.core.queues import QueueSettings
from tidemill.core.states import State
from tidemill.core.uniqueness import Unique
from tidemill.testing.conformance.driver import LEASE, OOPS, Driver, ids, new


class TestClaim:
    async def test_j32_one_growing_fence_and_a_claim_id_nobody_else_has(self, drive: Driver) -> None:
        await drive.add(*"abcd")
        first, second = await drive.take(limit=2), await drive.take("x", limit=2)
        assert len({job.fence for job in first}) == 1
        assert second[0].fence > first[0].fence > 0
        claims = {first[0].claim, second[0].claim}
        assert len(claims) == 2
        assert 0 not in claims

    async def test_j32_claiming_again_takes_a_new_identity(self, drive: Driver) -> None:
        await drive.add("a")
        first = await drive.take_one()
        await drive.settle(first, Release())
        second = await drive.take_one()
        assert second.fence > first.fence
        assert second.claim != first.claim

    async def test_j32_marks_the_job_as_running(self, drive: Driver) -> None:
        await drive.add("a")
        drive.clock.advance(3.0)
        claimed = await drive.take_one()
        job = await drive.job("a")
        assert (job.state, job.worker, job.number) == (State.RUNNING, "w", 1)
        assert (job.fence, job.claim) == (claimed.fence, claimed.claim)
        assert (job.started, job.lease) == (drive.clock.wall(), drive.clock.boot() + LEASE)

    async def test_j32_hands_over_what_a_run_needs(self, drive: Driver) -> None:
        sent = new("a", key="k", priority=3, timeout=7.0, trace="00-ab")
        await drive.add(sent)
        claimed = await drive.take_one()
        assert (claimed.id, claimed.queue, claimed.task) == ("a", "q", sent.task)
        assert (claimed.payload, claimed.lane, claimed.priority) == (sent.payload, "k", 3)
        assert (claimed.timeout, claimed.trace, claimed.attempt) == (7.0, "00-ab", 1)
        assert (claimed.crashes, claimed.suspect, claimed.generation) == (0, False, 0)

    async def test_j38_tells_the_time_of_the_next_job(self, drive: Driver) -> None:
        await drive.add(new("a", delay=10.0), new("b", delay=4.0))
        await drive.add(new("c", delay=7.0), queue="p")
        assert (await drive.claim(shares=(("q", 1), ("p", 1)))).next_due == pytest.approx(4.0)
        assert (await drive.claim(shares=(("p", 1),))).next_due == pytest.approx(7.0)
        assert (await drive.claim(shares=(("empty", 1),))).next_due is None

    async def test_j36_j38_so_is_that_of_a_job_which_an_expired_one_made_room_for(
        self, drive: Driver
    ) -> None:
        unique = Unique("u", "rerun")
        await drive.add(new("a", unique=unique, expires=5.0))
        claimed = await drive.take_one()
        await drive.add(new("b", unique=unique, delay=20.0))
        await drive.settle(claimed, Release())
        drive.clock.advance(6.0)
        found = await drive.claim()
        assert found.jobs == []
        assert found.next_due == pytest.approx(14.0)

    async def test_j38_more_only_when_open_jobs_are_left(self, drive: Driver) -> None:
        await drive.add(*"abc")
        assert (await drive.claim(limit=2)).more
        assert not (await drive.claim(limit=2)).more
        await drive.store.declare({"q": QueueSettings(concurrency=3)})
        await drive.add("d")
        assert not (await drive.claim(limit=0)).more

    async def test_j2_a_running_job_is_nobody_elses(self, drive: Driver) -> None:
        await drive.add("a")
        await drive.take()
        assert await drive.take("x") == []


class TestRepeatedClaim:
    async def test_j33_the_same_number_returns_the_same_jobs(self, drive: Driver) -> None:
        await drive.add(*"abcd")
        first = await drive.take(limit=2)
        again = await drive.take(limit=2, number=1)
        assert again == first
        assert ids(await drive.take(limit=9)) == ["c", "d"]

    async def test_j33_what_was_settled_meanwhile_is_left_out(self, drive: Driver) -> None:
        await drive.add(*"abc")
        first, *rest = await drive.take()
        await drive.settle(first)
        assert await drive.take(number=1) == rest

    async def test_j33_what_was_claimed_anew_by_another_is_left_out(self, drive: Driver) -> None:
        await drive.add(*"ab")
        first, second = await drive.take()
        await drive.settle(first, Release())
        await drive.take("x")
        assert await drive.take(number=1) == [second]

    async def test_j33_a_claim_that_found_nothing_finds_nothing_again(self, drive: Driver) -> None:
        assert await drive.take() == []
        await drive.add("a")
        assert await drive.take(number=1) == []
        assert ids(await drive.take()) == ["a"]

    async def test_j33_a_late_double_of_an_old_claim_takes_nothing(self, drive: Driver) -> None:
        await drive.add(*"abc")
        first = await drive.take(limit=1)
        await drive.take(limit=1)
        assert await drive.take(limit=9, number=1) == first
        assert await drive.state("c") is State.READY

    async def test_j33_a_worker_that_holds_jobs_is_remembered_however_long_it_is_silent(
        self, drive: Driver
    ) -> None:
        """Its number was used: a claim that it repeats after hours finds the jobs of that number."""
        await drive.add("a")
        request = drive.request("w")
        (job,) = (await drive.store.claim(request)).jobs
        drive.clock.advance(3 * 3600)
        await drive.store.prune()
        (again,) = (await drive.store.claim(request)).jobs
        assert (again.id, again.fence, again.claim) == (job.id, job.fence, job.claim)

    async def test_j33_numbers_are_each_workers_own(self, drive: Driver) -> None:
        await drive.add(*"ab")
        assert ids(await drive.take("w", limit=1, number=1)) == ["a"]
        assert ids(await drive.take("x", limit=1, number=1)) == ["b"]

    async def test_j33_with_settle_too(self, drive: Driver) -> None:
        await drive.add(*"ab")
        request = drive.request(limit=1)
        first = (await drive.store.settle([], request)).claims
        again = (await drive.store.settle([], request)).claims
        assert first is not None
        assert again is not None
        assert again.jobs == first.jobs


class TestClaimByIds:
    async def test_j37_claimed_blocked_or_gone(self, drive: Driver) -> None:
        await drive.add("a", "b", "c", "d", new("later", delay=60.0))
        await drive.settle((await drive.take(named=["a"]))[0])
        await drive.take(named=["b"])
        claims = await drive.claim(named=["d", "a", "b", "later", "c", "never"])
        assert ids(claims.jobs) == ["d", "c"]
        assert claims.blocked == ("b", "later")
        assert claims.gone == ("a", "never")

    async def test_j37_a_job_that_has_come_due_is_claimed(self, drive: Driver) -> None:
        await drive.add(new("a", delay=5.0))
        drive.clock.advance(5.0)
        assert ids(await drive.take(named=["a"])) == ["a"]

    async def test_j37_paused_or_at_a_limit_is_blocked(self, drive: Driver) -> None:
        settings = QueueSettings(concurrency=2, key_concurrency=1)
        await drive.store.declare({"q": settings})
        await drive.add(new("a", key="k"), new("b", key="k"), "c", "d")
        claims = await drive.claim(named="abcd")
        assert (ids(claims.jobs), claims.blocked) == (["a", "c"], ("b", "d"))
        await drive.add("e", queue="p")
        await drive.store.pause("p")
        assert (await drive.claim(named="e")).blocked == ("e",)

    async def test_j37_no_more_than_the_limit(self, drive: Driver) -> None:
        await drive.add(*"abc")
        claims = await drive.claim(named="abc", limit=2)
        assert (ids(claims.jobs), claims.blocked) == (["a", "b"], ("c",))

    async def test_j36_j37_an_expired_job_is_gone(self, drive: Driver) -> None:
        await drive.add(new("a", expires=1.0))
        drive.clock.advance(1.0)
        assert (await drive.claim(named="a")).gone == ("a",)
        assert await drive.state("a") is State.CANCELLED

    async def test_j33_j37_repeated_by_number(self, drive: Driver) -> None:
        await drive.add(*"ab")
        first = await drive.take(named="ab")
        assert await drive.take(named="ab", number=1) == first


class TestLimits:
    async def test_j35_running_jobs_of_a_queue(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(concurrency=2)})
        await drive.add(*"abcd")
        first = await drive.take()
        assert ids(first) == ["a", "b"]
        assert await drive.take("x") == []
        await drive.settle(first[0], Retrying(9.0, OOPS))
        assert ids(await drive.take("x")) == ["c"]

    async def test_j35_the_second_round_keeps_the_limit(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(concurrency=3)})
        await drive.add(*"abcdef")
        assert ids(await drive.take(shares=(("q", 2),), limit=6)) == ["a", "b", "c"]

    async def test_j35_running_jobs_of_a_key(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(key_concurrency=1)})
        await drive.add(*[new(f"{key}{n}", key=key) for key in "ab" for n in range(2)], "1", "2")
        first = await drive.take()
        assert ids(first) == ["a0", "b0", "1", "2"]
        assert not (await drive.claim()).more
        await drive.settle(first[1])
        assert ids(await drive.take()) == ["b1"]

    async def test_j35_a_cancel_and_a_reclaim_free_a_place(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(concurrency=1, key_concurrency=1)})
        await drive.add(*[new(job, key="k") for job in "abc"])
        await drive.take()
        await drive.amend(Cancel(), "a")
        assert ids(await drive.take()) == ["b"]
        await drive.store.reclaim(["w"])
        assert ids(await drive.take("x")) == ["b"]

    async def test_j35_a_full_lane_holds_back_only_itself(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(key_concurrency=1)})
        await drive.add(*[new(f"a{n}", key="a", priority=0) for n in range(200)], new("b", key="b"))
        assert ids(await drive.take()) == ["a0", "b"]


class TestPause:
    async def test_j34_q3_nothing_starts_and_running_jobs_go_on(self, drive: Driver) -> None:
        await drive.add(*"ab")
        job = await drive.take_one()
        await drive.store.pause("q", reason="maintenance")
        claims = await drive.claim()
        assert (claims.jobs, claims.more, claims.next_due) == ([], False, None)
        assert await drive.settle(job) == "ok"
        await drive.store.resume("q")
        assert ids(await drive.take()) == ["b"]

    async def test_j34_j38_a_pause_with_a_time_ends_by_itself(self, drive: Driver) -> None:
        await drive.add("a")
        await drive.store.pause("q", until=drive.clock.wall() + 60)
        assert (await drive.claim()).next_due == pytest.approx(60.0)
        drive.clock.advance(59.0)
        assert await drive.take() == []
        drive.clock.advance(1.0)
        assert ids(await drive.take()) == ["a"]

    async def test_j34_other_queues_are_open(self, drive: Driver) -> None:
        await drive.add("a")
        await drive.add("b", queue="p")
        await drive.store.pause("q")
        assert ids(await drive.take(shares=(("q", 1), ("p", 1)))) == ["b"]

    async def test_j34_a_paused_queue_takes_jobs(self, drive: Driver) -> None:
        await drive.store.pause("q")
        await drive.add("a", new("b", delay=1.0))
        drive.clock.advance(2.0)
        assert await drive.take() == []
        await drive.store.resume("q")
        assert ids(await drive.take()) == ["a", "b"]


class TestExpiry:
    async def test_j36_cancelled_instead_of_started(self, drive: Driver) -> None:
        await drive.add(new("a", expires=5.0), "b")
        drive.clock.advance(5.0)
        assert ids(await drive.take()) == ["b"]
        job = await drive.job("a")
        assert (job.state, job.reason, job.attempts) == (State.CANCELLED, "expired", 0)

    async def test_j36_who_waited_for_it_starts_with_the_same_claim(self, drive: Driver) -> None:
        unique = Unique("u", "rerun")
        await drive.add(new("a", unique=unique, expires=5.0))
        job = await drive.take_one()
        await drive.add(new("b", unique=unique))
        await drive.settle(job, Release())
        drive.clock.advance(5.0)
        assert ids(await drive.take()) == ["b"]

    async def test_j36_in_time_is_in_time(self, drive: Driver) -> None:
        await drive.add(new("a", expires=5.0))
        drive.clock.advance(4.999)
        assert ids(await drive.take()) == ["a"]

    async def test_j36_a_running_job_does_not_expire(self, drive: Driver) -> None:
        await drive.add(new("a", expires=5.0))
        job = await drive.take_one()
        drive.clock.advance(6.0)
        await drive.store.prune()
        assert await drive.settle(job) == "ok"
        assert await drive.state("a") is State.DONE

    async def test_j36_the_jobs_behind_expired_ones_are_found(self, drive: Driver) -> None:
        await drive.add(*[new(f"{n:03}", expires=1.0) for n in range(150)], "last")
        drive.clock.advance(1.0)
        assert ids(await drive.take(limit=1)) == ["last"]
