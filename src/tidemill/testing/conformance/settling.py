"""settle: outcomes, and the four answers."""

# ruff: noqa: S101, PLR2004 - a test suite asserts, and its numbers are its data
from __future__ import annotations

import pytest

from tidemill.contract.jobs import MEMORY_OF_IDS
from tidemill.core.changes import Cancel, Delete
from tidemill.core.claims import Settlement
from tidemill.core.outcomes import (
    Answer,
    Cancelled,
    Crashed,
    Done,
    Fail,
    Outcome,
    Release,
    Retrying,
    Snooze,
    Split,
)
from tidemill.core.queues import QueueSettings, Retention
from tidemill.core.states import State
from tidemill.core.transitions import UNKNOWN_TASK_PATIENCE
from tidemill.testing.conformance.driver import OOPS, Driver, ids

OUTCOMES: list[Outcome] = [
    Done(b"1"),
    Retrying(5.0, OOPS),
    Snooze(5.0),
    Fail(OOPS),
    Cancelled("enough"),
    Split("1"),
    Release(),
    Release(unknown=True),
    Crashed(OOPS),
]


class TestAnswers:
    @pytest.mark.parametrize("outcome", OUTCOMES)
    async def test_j40_ok_then_again(self, drive: Driver, outcome: Outcome) -> None:
        await drive.add("a")
        job = await drive.take_one()
        assert await drive.settle(job, outcome) is Answer.OK
        after = await drive.job("a")
        assert await drive.settle(job, outcome) is Answer.AGAIN
        assert await drive.settle(job, Done(b"2")) is Answer.AGAIN
        assert await drive.job("a") == after

    @pytest.mark.parametrize("outcome", OUTCOMES)
    async def test_j40_i6_stale_changes_nothing(self, drive: Driver, outcome: Outcome) -> None:
        await drive.add("a")
        old = await drive.take_one()
        await drive.store.reclaim(["w"])
        assert await drive.settle(old, outcome) is Answer.STALE
        new = await drive.take_one("x")
        before = await drive.job("a")
        assert await drive.settle(old, outcome) is Answer.STALE
        assert await drive.job("a") == before
        assert await drive.settle(new) is Answer.OK
        assert await drive.settle(old, outcome) is Answer.STALE
        assert await drive.state("a") is State.DONE

    async def test_j40_i5_fence_and_claim_must_both_be_right(self, drive: Driver) -> None:
        await drive.add("a")
        job = await drive.take_one()
        forged = [
            Settlement("a", job.fence, job.claim + 2, Done()),
            Settlement("a", job.fence + 1, job.claim, Done()),
            Settlement("a", 0, 0, Done()),
        ]
        assert (await drive.store.settle(forged)).answers == [Answer.STALE] * 3
        assert await drive.state("a") is State.RUNNING

    async def test_j40_one_item_never_stops_the_others(self, drive: Driver) -> None:
        await drive.add(*"abcd")
        jobs = {job.id: job for job in await drive.take()}
        await drive.amend(Cancel(), "b")
        await drive.amend(Cancel(), "c")
        await drive.amend(Delete(), "c")
        await drive.settle(jobs["d"])
        items = [Settlement(job.id, job.fence, job.claim, Done()) for job in jobs.values()]
        answers = (await drive.store.settle(items)).answers
        assert answers == [Answer.OK, Answer.STALE, Answer.GONE, Answer.AGAIN]
        assert await drive.state("a") is State.DONE

    @pytest.mark.parametrize(
        ("outcomes", "state"),
        [
            ((Done(b"1"), Fail(OOPS)), State.DONE),
            ((Fail(OOPS), Done(b"1")), State.FAILED),
            ((Done(b"1"), Done(b"2")), State.DONE),
            ((Retrying(5.0, OOPS), Done(b"2")), State.SCHEDULED),
        ],
    )
    async def test_j40_twice_in_one_call_is_ok_and_again(
        self, drive: Driver, outcomes: tuple[Outcome, Outcome], state: State
    ) -> None:
        await drive.add("a")
        job = await drive.take_one()
        both = [Settlement("a", job.fence, job.claim, outcome) for outcome in outcomes]
        assert (await drive.store.settle(both)).answers == [Answer.OK, Answer.AGAIN]
        after = await drive.job("a")
        assert (after.state, after.attempts) == (state, 1)
        assert after.result == (b"1" if state is State.DONE else None)

    async def test_j40_j82_a_pruned_job_remembers_its_claim(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(keep_done=Retention(age=0.0))})
        await drive.add("a")
        job = await drive.take_one()
        await drive.settle(job)
        assert (await drive.store.prune()).pruned == 1
        assert await drive.settle(job) is Answer.AGAIN
        other = Settlement("a", job.fence, job.claim + 2, Done())
        assert (await drive.store.settle([other])).answers == [Answer.GONE]
        drive.clock.advance(MEMORY_OF_IDS)
        await drive.store.prune()
        assert await drive.settle(job) is Answer.GONE

    async def test_j40_a_job_nobody_knows_is_gone(self, drive: Driver) -> None:
        assert (await drive.store.settle([Settlement("a", 1, 1, Done())])).answers == [Answer.GONE]

    async def test_j71_i19_a_cancelled_jobs_holder_is_refused(self, drive: Driver) -> None:
        await drive.add("a")
        job = await drive.take_one()
        await drive.amend(Cancel("no"), "a")
        assert await drive.settle(job, Done(b"1")) is Answer.STALE
        after = await drive.job("a")
        assert (after.state, after.reason, after.result) == (State.CANCELLED, "no", None)

    async def test_j40_settles_and_claims_in_one_step(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(concurrency=1)})
        await drive.add(*"ab")
        job = await drive.take_one()
        settled = await drive.store.settle(
            [Settlement(job.id, job.fence, job.claim, Done())], drive.request(limit=5)
        )
        assert settled.answers == [Answer.OK]
        assert settled.claims is not None
        assert ids(settled.claims.jobs) == ["b"]

    async def test_j40_without_a_request_nothing_is_claimed(self, drive: Driver) -> None:
        await drive.add("a")
        assert (await drive.store.settle([])).claims is None
        assert await drive.state("a") is State.READY


class TestOutcomes:
    async def test_j41_done(self, drive: Driver) -> None:
        await drive.add("a")
        job = await drive.take_one()
        drive.clock.advance(2.0)
        await drive.settle(job, Done(b'{"x":1}'))
        after = await drive.job("a")
        assert (after.state, after.result, after.attempts) == (State.DONE, b'{"x":1}', 1)
        assert (after.finished, after.error) == (drive.clock.wall(), None)

    async def test_j41_retry(self, drive: Driver) -> None:
        await drive.add("a")
        await drive.settle(await drive.take_one(), Retrying(5.0, OOPS, priority=8))
        after = await drive.job("a")
        assert (after.state, after.attempts, after.error) == (State.SCHEDULED, 1, OOPS)
        assert (after.due, after.priority) == (drive.clock.wall() + 5, 8)
        drive.clock.advance(5.0)
        assert (await drive.take_one()).attempt == 2

    async def test_j41_a_later_success_clears_the_error(self, drive: Driver) -> None:
        await drive.add("a")
        await drive.settle(await drive.take_one(), Retrying(0.0, OOPS))
        await drive.settle(await drive.take_one(), Done())
        after = await drive.job("a")
        assert (after.state, after.error, after.attempts) == (State.DONE, None, 2)

    async def test_j41_fail(self, drive: Driver) -> None:
        await drive.add("a")
        await drive.settle(await drive.take_one(), Fail(OOPS, "gave up"))
        after = await drive.job("a")
        assert (after.state, after.error, after.reason) == (State.FAILED, OOPS, "gave up")
        assert (after.attempts, after.finished) == (1, drive.clock.wall())

    async def test_j41_cancelled(self, drive: Driver) -> None:
        await drive.add("a")
        await drive.settle(await drive.take_one(), Cancelled("by itself"))
        after = await drive.job("a")
        assert (after.state, after.reason) == (State.CANCELLED, "by itself")

    @pytest.mark.parametrize("outcome", [Snooze(5.0), Release(), Split("3")])
    async def test_j41_uncharged(self, drive: Driver, outcome: Outcome) -> None:
        await drive.add("a")
        await drive.settle(await drive.take_one(), outcome)
        after = await drive.job("a")
        assert (after.attempts, after.crashes) == (0, 0)
        assert after.state is (State.SCHEDULED if isinstance(outcome, Snooze) else State.READY)
        assert after.part == "", "it is of no batch"

    async def test_j41_a_crash_is_counted_apart(self, drive: Driver) -> None:
        await drive.add("a")
        await drive.settle(await drive.take_one(), Crashed(OOPS))
        after = await drive.job("a")
        assert (after.state, after.crashes, after.attempts) == (State.READY, 1, 0)
        claimed = await drive.take_one()
        assert claimed.suspect

    async def test_j41_a_snoozed_job_says_why_until_it_runs_again(self, drive: Driver) -> None:
        await drive.add("a")
        await drive.settle(await drive.take_one(), Snooze(5.0, "quota"))
        assert (await drive.job("a")).note == "quota"
        drive.clock.advance(5.0)
        await drive.take_one()
        assert (await drive.job("a")).note is None

    async def test_j41_an_unknown_task_waits_for_a_worker_that_knows_it(self, drive: Driver) -> None:
        """Ever longer, uncharged, and whatever is done to the clock."""
        await drive.add("a")
        waits = []
        for _ in range(3):
            await drive.settle(await drive.take_one(), Release(unknown=True))
            job = await drive.job("a")
            assert (job.state, job.attempts) == (State.SCHEDULED, 0)
            waits.append(job.due - drive.clock.wall())
            drive.clock.step_wall(2 * UNKNOWN_TASK_PATIENCE)
        assert waits == sorted(waits)
        assert job.unknown_for == pytest.approx(sum(waits))
        assert job.note == "worker w does not know this task"
