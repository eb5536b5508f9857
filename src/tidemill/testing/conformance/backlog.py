"""What waits in a queue, since when, and what is ahead of a job."""

# ruff: noqa: S101 - a test suite asserts, and its numbers are its data
from __future__ import annotations

from tidemill.contract.reader import AHEAD_COUNTED, Backlog
from tidemill.core.changes import Cancel
from tidemill.core.outcomes import Outcome, Retrying, Snooze
from tidemill.core.queues import QueueSettings, Retention
from tidemill.testing.conformance.driver import OOPS, Driver, new

EMPTY = Backlog(oldest_ready=None, next_due=None, retrying=0, last_ended=None)


class TestBacklog:
    async def test_r8_a_queue_nobody_knows_has_an_empty_one(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings()})
        assert await drive.store.backlog("never") == await drive.store.backlog("q") == EMPTY

    async def test_r8_the_oldest_ready_in_any_lane_and_priority(self, drive: Driver) -> None:
        start = drive.clock.wall()
        lanes = (None, "k", "l")
        for seconds, (key, priority) in enumerate((key, priority) for key in lanes for priority in (9, 5, 1)):
            drive.clock.advance(1.0)
            await drive.add(new(f"{seconds}", key=key, priority=priority), new(f"{seconds}+", key=key))
        await drive.add("other", queue="p")
        for seconds in range(9):
            assert (await drive.store.backlog("q")).oldest_ready == start + seconds + 1
            await drive.amend(Cancel(), f"{seconds}", f"{seconds}+")
        assert (await drive.store.backlog("q")).oldest_ready is None

    async def test_r8_a_job_could_start_since_it_was_due(self, drive: Driver) -> None:
        start = drive.clock.wall()
        await drive.add(new("a", delay=5.0))
        assert (await drive.store.backlog("q")).next_due == start + 5
        drive.clock.advance(60.0)
        late = await drive.store.backlog("q")
        assert (late.oldest_ready, late.next_due) == (None, start + 5)
        await drive.take(limit=0)
        promoted = await drive.store.backlog("q")
        assert (promoted.oldest_ready, promoted.next_due) == (start + 5, None)

    async def test_r8_retrying_are_those_that_have_run(self, drive: Driver) -> None:
        await drive.add("a", "b", "c", new("later", delay=9.0))
        outcomes: tuple[Outcome, ...] = (Retrying(9.0, OOPS), Retrying(0.0, OOPS), Snooze(9.0))
        for job, outcome in zip(await drive.take(), outcomes, strict=True):
            await drive.settle(job, outcome)
        assert (await drive.store.backlog("q")).retrying == 1
        await drive.amend(Cancel(), "a")
        assert (await drive.store.backlog("q")).retrying == 0

    async def test_r8_the_last_end_is_known_after_pruning(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(keep_done=Retention(count=0))})
        await drive.ended("a")
        ended = drive.clock.wall()
        drive.clock.advance(200.0)
        await drive.add("b")
        await drive.settle(await drive.take_one(), Retrying(0.0, OOPS))
        assert (await drive.store.backlog("q")).last_ended == ended
        await drive.store.prune()
        assert (await drive.store.backlog("q")).last_ended == ended // 60 * 60
        await drive.amend(Cancel(), "b")
        assert (await drive.store.backlog("q")).last_ended == drive.clock.wall()


class TestAhead:
    async def test_r9_by_the_order_of_the_lane(self, drive: Driver) -> None:
        await drive.add(*"ab", new("urgent", priority=1), new("elsewhere", key="k"), new("late", priority=9))
        await drive.add("p", queue="p")
        ahead = {
            name: await drive.store.ahead(name) for name in ("urgent", "a", "b", "late", "elsewhere", "p")
        }
        assert ahead == {"urgent": 0, "a": 1, "b": 2, "late": 3, "elsewhere": 0, "p": 0}
        await drive.take(limit=3)
        assert [await drive.store.ahead(name) for name in ("urgent", "b", "late")] == [None, 0, 1]

    async def test_r9_none_for_what_is_not_ready(self, drive: Driver) -> None:
        await drive.add(new("later", delay=9.0))
        await drive.ended("done")
        assert [await drive.store.ahead(name) for name in ("later", "done", "never")] == [None] * 3

    async def test_r9_counted_so_far_and_no_further(self, drive: Driver) -> None:
        await drive.add(*[new(f"{n}") for n in range(AHEAD_COUNTED + 2)])
        assert await drive.store.ahead(f"{AHEAD_COUNTED - 1}") == AHEAD_COUNTED - 1
        assert await drive.store.ahead(f"{AHEAD_COUNTED + 1}") == AHEAD_COUNTED
