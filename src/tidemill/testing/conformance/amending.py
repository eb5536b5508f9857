"""amend: what a person does to jobs. prune: what goes by itself."""

# ruff: noqa: S101, PLR2004 - a test suite asserts, and its numbers are its data
from __future__ import annotations

import pytest

from tidemill.core.changes import Archive, Cancel, Change, Delete, Reprioritise, RetryNow, RunNow
from tidemill.core.filters import Filter
from tidemill.core.outcomes import Fail, Snooze
from tidemill.core.queues import QueueSettings, Retention
from tidemill.core.states import State
from tidemill.core.uniqueness import Unique
from tidemill.testing.conformance.driver import OOPS, Driver, ids, new

DAY = 86_400.0


class TestAmend:
    async def test_j70_j71_cancel(self, drive: Driver) -> None:
        await drive.add("a", new("b", delay=5.0), "c")
        (job,) = await drive.take(limit=1)
        amended = await drive.amend(Cancel("no more"), "a", "b", "c")
        assert (amended.changed, amended.unchanged) == (("a", "b", "c"), ())
        assert {(await drive.job(name)).reason for name in "abc"} == {"no more"}
        drive.clock.advance(9.0)
        assert await drive.take() == []
        assert await drive.settle(job) == "stale"

    async def test_j70_retry_is_a_new_generation(self, drive: Driver) -> None:
        await drive.add("a")
        await drive.settle(await drive.take_one(), Fail(OOPS))
        drive.clock.advance(7.0)
        await drive.amend(RetryNow(), "a")
        job = await drive.job("a")
        assert (job.state, job.generation, job.attempts) == (State.READY, 1, 0)
        assert (job.error, job.reason, job.finished, job.due) == (None, None, None, drive.clock.wall())
        claimed = await drive.take_one()
        assert (claimed.generation, claimed.attempt) == (1, 1)

    async def test_j70_cancel_what_was_not_retried_meanwhile(self, drive: Driver) -> None:
        await drive.add("a", "b", "c")
        await drive.amend(Cancel(), "b")
        await drive.amend(RetryNow(), "b")
        amended = await drive.amend(Cancel("late", {"a": 0, "b": 0}), "a", "b", "c")
        assert (amended.changed, amended.unchanged) == (("a",), ("b", "c"))
        assert [await drive.state(name) for name in "abc"] == [State.CANCELLED, State.READY, State.READY]

    async def test_j70_i4_the_claim_of_the_old_generation_is_refused(self, drive: Driver) -> None:
        await drive.add("a")
        job = await drive.take_one()
        await drive.settle(job)
        await drive.amend(RetryNow(), "a")
        assert await drive.settle(job) == "stale"

    async def test_j70_run_now(self, drive: Driver) -> None:
        await drive.add(new("a", delay=60.0))
        await drive.amend(RunNow(), "a")
        assert (await drive.job("a")).due == drive.clock.wall()
        assert ids(await drive.take()) == ["a"]

    async def test_j70_reprioritise(self, drive: Driver) -> None:
        await drive.add("a", new("b", delay=60.0))
        await drive.amend(Reprioritise(1), "a", "b")
        assert [(await drive.job(name)).priority for name in "ab"] == [1, 1]

    async def test_j70_archive_keeps_a_pending_job_among_the_failed(self, drive: Driver) -> None:
        await drive.add("a", new("b", delay=5.0))
        amended = await drive.amend(Archive("not this week"), "a", "b")
        assert amended.changed == ("a", "b")
        for name in "ab":
            job = await drive.job(name)
            assert (job.state, job.reason, job.error) == (State.FAILED, "not this week", None)
            assert (job.finished, job.attempts) == (drive.clock.wall(), 0)
        drive.clock.advance(9.0)
        assert await drive.take() == []
        await drive.amend(RetryNow(), "b")
        assert ids(await drive.take()) == ["b"]

    async def test_j70_j72_archive_releases_a_successor(self, drive: Driver) -> None:
        rerun = Unique("u", "rerun")
        await drive.add(new("a", unique=rerun))
        job = await drive.take_one()
        await drive.add(new("b", unique=rerun))
        await drive.settle(job, Snooze(60.0))
        assert (await drive.state("a"), await drive.state("b")) == (State.SCHEDULED, State.WAITING)
        await drive.amend(Archive(), "a")
        assert await drive.state("b") is State.READY

    async def test_j70_j80_archived_jobs_stay_as_long_as_failed_ones(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(keep_failed=Retention(age=60.0))})
        await drive.add("a")
        await drive.amend(Archive(), "a")
        drive.clock.advance(59.0)
        assert (await drive.store.prune()).pruned == 0
        drive.clock.advance(1.0)
        assert (await drive.store.prune()).pruned == 1

    async def test_j70_j73_delete(self, drive: Driver) -> None:
        await drive.add("a", "b")
        await drive.take(limit=1)
        amended = await drive.amend(Delete(), "a", "b")
        assert (amended.changed, amended.unchanged) == (("b",), ("a",))
        assert await drive.store.counts() == {"q": {State.RUNNING: 1}}
        assert await drive.add("b")
        assert await drive.state("b") is None

    @pytest.mark.parametrize(
        ("change", "unfit"),
        [
            (Cancel(), "done"),
            (Archive(), "done"),
            (Archive(), "running"),
            (RetryNow(), "ready"),
            (RunNow(), "ready"),
            (RunNow(), "done"),
            (Reprioritise(1), "done"),
            (Delete(), "running"),
        ],
    )
    async def test_j70_a_job_in_no_state_for_it_is_named(
        self, drive: Driver, change: Change, unfit: str
    ) -> None:
        await drive.ended("done")
        await drive.add("running")
        await drive.take()
        await drive.add("ready")
        before = await drive.job(unfit)
        amended = await drive.amend(change, unfit, "never")
        assert (amended.changed, amended.unchanged) == ((), (unfit,))
        assert await drive.job(unfit) == before

    async def test_j70_by_filter_oldest_first_up_to_the_limit(self, drive: Driver) -> None:
        await drive.add(*"abc", new("x", task="other"), "d")
        amended = await drive.store.amend(Filter(task="task"), Cancel(), 3)
        assert amended.changed == ("a", "b", "c")
        again = await drive.store.amend(Filter(task="task"), Cancel(), 3)
        assert again.unchanged == ("a", "b", "c")
        rest = await drive.store.amend(Filter(queue="q", states=(State.READY,)), Cancel())
        assert rest.changed == ("x", "d")


class TestPrune:
    async def test_j80_by_age_oldest_ended_first(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(keep_done=Retention(age=60.0))})
        for name in "abc":
            await drive.ended(name)
            drive.clock.advance(30.0)
        pruned = await drive.store.prune()
        assert (pruned.pruned, pruned.more) == (2, False)
        assert [await drive.state(name) for name in "abc"] == [None, None, State.DONE]

    async def test_j80_by_count_per_state(self, drive: Driver) -> None:
        keep = Retention(count=2)
        await drive.store.declare({"q": QueueSettings(keep_done=keep, keep_failed=keep)})
        for name in "abc":
            drive.clock.advance(1.0)
            await drive.ended(name)
        await drive.add("x")
        await drive.settle(await drive.take_one(), Fail(OOPS))
        assert (await drive.store.prune()).pruned == 1
        assert [await drive.state(name) for name in "abcx"] == [None, "done", "done", "failed"]

    async def test_j80_each_queue_keeps_its_own(self, drive: Driver) -> None:
        await drive.store.declare({"p": QueueSettings(keep_done=Retention(count=0))})
        await drive.ended("a")
        await drive.ended("b", queue="p")
        await drive.store.prune()
        assert [await drive.state(name) for name in "ab"] == [State.DONE, None]

    async def test_j80_no_bound_keeps_everything(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(keep_done=Retention())})
        await drive.ended("a")
        drive.clock.advance(1000 * DAY)
        assert (await drive.store.prune()).pruned == 0

    async def test_j80_more_when_the_limit_was_reached(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(keep_done=Retention(count=0))})
        await drive.ended(*"abcde")
        first = await drive.store.prune(2)
        assert (first.pruned, first.more) == (2, True)
        rest = await drive.store.prune(10)
        assert (rest.pruned, rest.more) == (3, False)

    async def test_j84_a_drop_by_count_before_the_age_is_over_is_counted(self, drive: Driver) -> None:
        kept = Retention(age=60.0, count=1)
        await drive.store.declare({"q": QueueSettings(keep_done=kept), "p": QueueSettings(keep_done=kept)})
        for name in "abcd":
            await drive.ended(name)
            drive.clock.advance(25.0)
        await drive.ended("e", queue="p")
        pruned = await drive.store.prune()
        assert (pruned.pruned, pruned.early) == (3, {"q": 1})
        assert [await drive.state(name) for name in "abcde"] == [None, None, None, "done", "done"]
        assert sum(one.dropped_early for one in await drive.store.history("q", 0.0)) == 1
        assert sum(one.dropped_early for one in await drive.store.history("p", 0.0)) == 0
        assert (await drive.store.prune()).early == {}

    async def test_j84_without_an_age_no_drop_is_early(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(keep_done=Retention(count=1))})
        await drive.ended(*"abc")
        assert (await drive.store.prune()).early == {}
        assert sum(one.dropped_early for one in await drive.store.history("q", 0.0)) == 0

    async def test_j84_rounds_add_up(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(keep_done=Retention(age=60.0, count=1))})
        await drive.ended(*"abcdef")
        rounds = [await drive.store.prune(2) for _ in range(4)]
        assert [one.early for one in rounds] == [{"q": 2}, {"q": 2}, {"q": 1}, {}]
        assert sum(one.dropped_early for one in await drive.store.history("q", 0.0)) == 5

    async def test_j80_live_jobs_stay(self, drive: Driver) -> None:
        keep = Retention(age=0.0, count=0)
        await drive.store.declare({"q": QueueSettings(keep_done=keep, keep_failed=keep, keep_cancelled=keep)})
        await drive.add("a", "b", new("c", delay=9 * DAY))
        await drive.take(limit=1)
        drive.clock.advance(DAY)
        assert (await drive.store.prune()).pruned == 0

    async def test_j36_expired_jobs_are_cancelled_in_every_pending_state(self, drive: Driver) -> None:
        await drive.add(new("a", expires=5.0), new("b", expires=5.0, delay=60.0), "c")
        drive.clock.advance(5.0)
        assert (await drive.store.prune()).expired == 2
        assert [await drive.state(name) for name in "abc"] == ["cancelled", "cancelled", "ready"]

    async def test_j82_what_belongs_to_a_job_goes_with_it(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(keep_failed=Retention(count=0))})
        await drive.add("a")
        await drive.settle(await drive.take_one(), Fail(OOPS))
        assert len(await drive.store.attempts("a")) == 1
        await drive.store.prune()
        assert await drive.store.attempts("a") == []
        assert await drive.store.counts() == {}
