"""One live job per queue and key, and what a second request does."""

# ruff: noqa: S101 - a test suite asserts, and its numbers are its data
from __future__ import annotations

import pytest

from tidemill.core.batching import Batching
from tidemill.core.changes import Cancel, Delete, RetryNow
from tidemill.core.job import NewJob
from tidemill.core.limits import Limit
from tidemill.core.outcomes import Cancelled, Crashed, Done, Fail, Outcome, Release, Retrying, Snooze, Split
from tidemill.core.pools import PoolSettings
from tidemill.core.queues import QueueSettings, Retention, Verdict
from tidemill.core.states import State
from tidemill.core.transitions import EXPIRED, REPLACED, SUPERSEDED
from tidemill.core.uniqueness import OnConflict, Unique
from tidemill.testing.conformance.driver import OOPS, Driver, ids, need, new

MODEL = PoolSettings(limits=(Limit.tokens(1_000, per="minute"),))
ENDS: list[Outcome] = [Done(), Fail(OOPS), Cancelled("enough")]


def keyed(job: str, on_conflict: OnConflict = "skip", **options: object) -> NewJob:
    unique = Unique("k", on_conflict, options.pop("period", None), options.pop("at_most", None))  # type: ignore[arg-type]
    return new(job, unique=unique, **options)


async def verdicts(drive: Driver, *jobs: NewJob) -> list[tuple[Verdict, str]]:
    return [(answer.verdict, answer.id) for answer in await drive.add(*jobs)]


class TestSkip:
    async def test_j14_i11_the_holder_stands_for_the_request(self, drive: Driver) -> None:
        await drive.add(keyed("1"))
        assert await verdicts(drive, keyed("2")) == [(Verdict.EXISTING, "1")]
        await drive.take()
        assert await verdicts(drive, keyed("3")) == [(Verdict.EXISTING, "1")]
        assert (await drive.job("1")).payload == new("1").payload

    @pytest.mark.parametrize("end", ENDS)
    async def test_i11_the_key_ends_with_its_job(self, drive: Driver, end: Outcome) -> None:
        await drive.add(keyed("1"))
        await drive.settle(await drive.take_one(), end)
        assert await verdicts(drive, keyed("2")) == [(Verdict.ACCEPTED, "2")]

    async def test_j14_within_one_group(self, drive: Driver) -> None:
        answers = await verdicts(drive, keyed("1"), keyed("2"))
        assert answers == [(Verdict.ACCEPTED, "1"), (Verdict.EXISTING, "1")]

    async def test_j14_keys_are_each_queues_own(self, drive: Driver) -> None:
        await drive.add(keyed("1"))
        assert (await drive.add(keyed("2"), queue="p"))[0].verdict is Verdict.ACCEPTED

    async def test_i11_a_retry_and_a_snooze_keep_the_key(self, drive: Driver) -> None:
        await drive.add(keyed("1"))
        await drive.settle(await drive.take_one(), Retrying(0.0, OOPS))
        assert await verdicts(drive, keyed("2")) == [(Verdict.EXISTING, "1")]
        await drive.settle(await drive.take_one(), Snooze(5.0))
        assert await verdicts(drive, keyed("3")) == [(Verdict.EXISTING, "1")]

    async def test_i11_cancelled_expired_and_deleted_jobs_let_the_key_go(self, drive: Driver) -> None:
        await drive.add(keyed("1"))
        await drive.amend(Cancel(), "1")
        assert await verdicts(drive, keyed("2", expires=1.0)) == [(Verdict.ACCEPTED, "2")]
        drive.clock.advance(1.0)
        await drive.store.prune()
        assert await verdicts(drive, keyed("3")) == [(Verdict.ACCEPTED, "3")]
        await drive.amend(Delete(), "3")
        assert await verdicts(drive, keyed("4")) == [(Verdict.ACCEPTED, "4")]

    async def test_j70_a_retried_job_has_no_key(self, drive: Driver) -> None:
        await drive.ended(keyed("1"))
        await drive.add(keyed("2"))
        await drive.amend(RetryNow(), "1")
        assert await verdicts(drive, keyed("3")) == [(Verdict.EXISTING, "2")]


class TestMerge:
    async def test_j14_newest_payload_more_urgent_earlier(self, drive: Driver) -> None:
        await drive.add(keyed("1", priority=5, delay=60.0))
        answers = await verdicts(drive, keyed("2", "merge", priority=3, delay=10.0, payload="new"))
        assert answers == [(Verdict.EXISTING, "1")]
        job = await drive.job("1")
        assert (job.priority, job.due) == (3, drive.clock.wall() + 10)
        assert job.payload == new("2", payload="new").payload
        await drive.add(keyed("3", "merge", priority=9, delay=99.0))
        job = await drive.job("1")
        assert (job.priority, job.due) == (3, drive.clock.wall() + 10)

    async def test_j14_it_expires_with_the_newest_request(self, drive: Driver) -> None:
        """The newest data is not cancelled because older data of the same key has expired."""
        await drive.add(keyed("1", expires=60.0))
        drive.clock.advance(50.0)
        await drive.add(keyed("2", "merge", expires=3600.0))
        assert (await drive.job("1")).expires == drive.clock.wall() + 3600
        drive.clock.advance(3599.0)
        assert ids(await drive.take()) == ["1"]

    async def test_j14_a_request_for_now_makes_the_holder_ready(self, drive: Driver) -> None:
        await drive.add(keyed("1", delay=60.0))
        await drive.add(keyed("2", "merge"))
        assert await drive.state("1") is State.READY
        assert ids(await drive.take()) == ["1"]

    async def test_j14_a_running_holder_is_not_changed(self, drive: Driver) -> None:
        await drive.add(keyed("1"))
        await drive.take()
        before = await drive.job("1")
        assert await verdicts(drive, keyed("2", "merge")) == [(Verdict.EXISTING, "1")]
        assert await drive.job("1") == before

    async def test_j14_the_new_version_has_all_its_attempts(self, drive: Driver) -> None:
        await drive.add(keyed("1"))
        await drive.settle(await drive.take_one(), Retrying(60.0, OOPS))
        await drive.add(keyed("2", "merge", payload="new"))
        assert (await drive.take_one()).attempt == 1

    async def test_j14_p11_what_the_new_payload_needs_comes_with_it(self, drive: Driver) -> None:
        """Else it would run on what the old one reserved."""
        await drive.store.declare_pools({"m": MODEL, "n": MODEL})
        await drive.add(keyed("1", key="k", task="old", needs=(need("m", tokens=100),)))
        await drive.add(keyed("2", "merge", key="l", task="new", needs=(need("n", tokens=900),)))
        job = await drive.job("1")
        assert (job.task, job.key, job.needs) == ("new", "l", (need("n", tokens=900),))
        await drive.store.close_pool("m", by="anna")
        assert ids(await drive.take()) == ["1"]
        assert [await drive.used(pool, "tokens per minute") for pool in "mn"] == [0, 900]

    async def test_j14_p12_it_stands_behind_the_pool_of_the_new_payload(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": MODEL, "n": MODEL})
        await drive.store.close_pool("n", by="anna")
        await drive.add(
            keyed("1", needs=(need("m", tokens=100),)), new("other", needs=(need("m", tokens=1),))
        )
        await drive.add(keyed("2", "merge", needs=(need("n", tokens=100),)))
        assert ids(await drive.take()) == ["other"]
        await drive.store.open_pool("n")
        assert ids(await drive.take()) == ["1"]

    async def test_j14_b1_it_shares_calls_as_the_new_payload_does(self, drive: Driver) -> None:
        """A part of a split batch that gets another payload is no part any more."""
        pair, shared = Batching(max_items=2, linger=60.0), new("mate", batching=Batching(max_items=2))
        await drive.add(keyed("1", batching=pair), new("2", batching=pair))
        for job in await drive.take():
            await drive.settle(job, Split("p"))
        await drive.add(keyed("3", "merge", batching=pair))
        assert ids(await drive.take()) == ["2"], "the other waits for company"
        await drive.add(shared)
        assert [(job.id, job.call) for job in await drive.take()] == [("1", "1"), ("mate", "1")]

    async def test_j14_nothing_is_merged_into_an_expired_holder(self, drive: Driver) -> None:
        """It is only not swept yet: the next claim would cancel it, and the request with it."""
        await drive.add(keyed("1", "merge", expires=10.0))
        drive.clock.advance(11.0)
        assert await verdicts(drive, keyed("2", "merge")) == [(Verdict.ACCEPTED, "2")]
        assert (await drive.job("1")).reason == EXPIRED
        assert ids(await drive.take()) == ["2"]


class TestReplace:
    async def test_j14_the_holder_is_cancelled(self, drive: Driver) -> None:
        await drive.add(keyed("1"))
        assert await verdicts(drive, keyed("2", "replace")) == [(Verdict.ACCEPTED, "2")]
        old = await drive.job("1")
        assert (old.state, old.reason) == (State.CANCELLED, REPLACED)
        assert ids(await drive.take()) == ["2"]

    async def test_j14_a_running_holder_gets_a_successor(self, drive: Driver) -> None:
        await drive.add(keyed("1"))
        job = await drive.take_one()
        await drive.add(keyed("2", "replace"))
        assert await drive.state("2") is State.WAITING
        assert await verdicts(drive, keyed("3", "replace")) == [(Verdict.ACCEPTED, "3")]
        assert (await drive.job("2")).reason == REPLACED
        await drive.settle(job)
        assert ids(await drive.take()) == ["3"]

    async def test_i11_a_holder_that_came_back_takes_its_successor_along(self, drive: Driver) -> None:
        await drive.add(keyed("1"))
        job = await drive.take_one()
        await drive.add(keyed("2", "rerun"))
        await drive.settle(job, Snooze(60.0))
        await drive.add(keyed("3", "replace"))
        states = [await drive.state(name) for name in "123"]
        assert states == [State.CANCELLED, State.CANCELLED, State.READY]


class TestRerun:
    async def test_j14_a_pending_holder_is_merged_into(self, drive: Driver) -> None:
        await drive.add(keyed("1"))
        assert await verdicts(drive, keyed("2", "rerun", payload="new")) == [(Verdict.EXISTING, "1")]
        assert (await drive.job("1")).payload == new("2", payload="new").payload

    async def test_i11_one_waiting_successor_with_the_newest_payload(self, drive: Driver) -> None:
        await drive.add(keyed("1"))
        await drive.take()
        assert await verdicts(drive, keyed("2", "rerun")) == [(Verdict.ACCEPTED, "2")]
        assert await verdicts(drive, keyed("3", "rerun", payload="new")) == [(Verdict.EXISTING, "2")]
        successor = await drive.job("2")
        assert (successor.state, successor.after) == (State.WAITING, "1")
        assert successor.payload == new("3", payload="new").payload
        assert await drive.take() == []

    @pytest.mark.parametrize("end", ENDS)
    async def test_j42_the_end_of_the_run_releases_it(self, drive: Driver, end: Outcome) -> None:
        await drive.add(keyed("1"))
        job = await drive.take_one()
        await drive.add(keyed("2", "rerun"))
        await drive.settle(job, end)
        released = await drive.job("2")
        assert (released.state, released.after) == (State.READY, None)
        assert await verdicts(drive, keyed("3")) == [(Verdict.EXISTING, "2")]
        assert ids(await drive.take()) == ["2"]

    async def test_j42_a_delayed_successor_is_scheduled(self, drive: Driver) -> None:
        await drive.add(keyed("1"))
        job = await drive.take_one()
        await drive.add(keyed("2", "rerun", delay=60.0))
        await drive.settle(job)
        assert await drive.state("2") is State.SCHEDULED

    async def test_j42_a_retry_is_superseded(self, drive: Driver) -> None:
        await drive.add(keyed("1"))
        job = await drive.take_one()
        await drive.add(keyed("2", "rerun"))
        assert await drive.settle(job, Retrying(5.0, OOPS)) == "ok"
        old = await drive.job("1")
        assert (old.state, old.reason) == (State.CANCELLED, SUPERSEDED)
        assert await drive.state("2") is State.READY
        assert await drive.settle(job, Retrying(5.0, OOPS)) == "again"

    @pytest.mark.parametrize("back", [Snooze(5.0), Release(), Crashed(OOPS)])
    async def test_j42_a_run_that_comes_back_keeps_it_waiting(self, drive: Driver, back: Outcome) -> None:
        await drive.add(keyed("1"))
        job = await drive.take_one()
        await drive.add(keyed("2", "rerun"))
        await drive.settle(job, back)
        assert await drive.state("2") is State.WAITING
        drive.clock.advance(5.0)
        assert ids(await drive.take()) == ["1"]

    async def test_j72_cancel_delete_expiry_and_poison_release_it_too(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(crash_limit=1)})
        await drive.add(keyed("1"))
        await drive.take()
        await drive.add(keyed("2", "rerun"))
        await drive.amend(Cancel(), "1")
        await drive.settle(await drive.take_one(), Crashed(OOPS))
        await drive.add(keyed("3"))
        job = await drive.take_one()
        await drive.add(keyed("4", "rerun", expires=9.0))
        await drive.settle(job, Snooze(60.0))
        await drive.amend(Delete(), "3")
        assert await drive.state("4") is State.READY

    async def test_i11_merging_into_a_holder_that_came_back_ends_its_successor(self, drive: Driver) -> None:
        """The successor's data is older than the request's: it must not run after it."""
        await drive.add(keyed("1"))
        job = await drive.take_one()
        await drive.add(keyed("2", "rerun"))
        await drive.settle(job, Snooze(60.0))
        await drive.add(keyed("3", "rerun", payload="new"))
        assert (await drive.job("2")).reason == REPLACED
        assert (await drive.take_one()).payload == new("3", payload="new").payload


class TestPeriod:
    async def test_i11_holds_through_the_end_until_the_period_is_over(self, drive: Driver) -> None:
        await drive.ended(keyed("1", period=60.0))
        assert await verdicts(drive, keyed("2")) == [(Verdict.EXISTING, "1")]
        assert await verdicts(drive, keyed("3", "replace")) == [(Verdict.EXISTING, "1")]
        drive.clock.advance(60.0)
        assert await verdicts(drive, keyed("4")) == [(Verdict.ACCEPTED, "4")]

    async def test_i11_a_period_ends_under_a_live_job_too(self, drive: Driver) -> None:
        await drive.add(keyed("1", period=60.0))
        drive.clock.advance(60.0)
        assert await verdicts(drive, keyed("2")) == [(Verdict.ACCEPTED, "2")]

    async def test_j81_the_job_is_kept_as_long_as_its_key(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(keep_done=Retention(age=0.0))})
        await drive.ended(keyed("1", period=60.0))
        assert (await drive.store.prune()).pruned == 0
        drive.clock.advance(60.0)
        assert (await drive.store.prune()).pruned == 1

    async def test_i11_at_most_ends_with_the_job(self, drive: Driver) -> None:
        await drive.ended(keyed("1", at_most=60.0))
        assert await verdicts(drive, keyed("2")) == [(Verdict.ACCEPTED, "2")]

    async def test_i11_at_most_ends_after_its_time(self, drive: Driver) -> None:
        await drive.add(keyed("1", at_most=60.0))
        await drive.take()
        drive.clock.advance(59.0)
        assert await verdicts(drive, keyed("2")) == [(Verdict.EXISTING, "1")]
        drive.clock.advance(1.0)
        assert await verdicts(drive, keyed("3")) == [(Verdict.ACCEPTED, "3")]

    async def test_i11_a_successor_holds_the_key_its_holder_lost(self, drive: Driver) -> None:
        await drive.add(keyed("1", at_most=60.0))
        await drive.take()
        drive.clock.advance(59.0)
        await drive.add(keyed("2", "rerun", at_most=60.0))
        drive.clock.advance(2.0)
        assert await verdicts(drive, keyed("3")) == [(Verdict.EXISTING, "2")]
