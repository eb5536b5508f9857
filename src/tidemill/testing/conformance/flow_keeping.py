"""prune: jobs of a flow stay until it goes."""

# ruff: noqa: S101, PLR2004 - a test suite asserts, and its numbers are its data
from __future__ import annotations

from tidemill.core.changes import Cancel
from tidemill.core.courses import Advanced
from tidemill.core.outcomes import Done
from tidemill.core.queues import DAY, QueueSettings, Retention
from tidemill.core.states import State
from tidemill.testing.conformance.courses import (
    FLOW,
    advance,
    going,
    part,
    run,
    stirred,
)
from tidemill.testing.conformance.driver import Driver


class TestKeptFlows:
    async def test_j83_a_queue_does_not_drop_them(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(keep_done=Retention(age=1, count=1))})
        await advance(drive, going("f", 0, part("a"), part("b"), part("c")))
        await drive.add("x", "y")
        for job in "abcxy":
            await run(drive, job, Done())
        drive.clock.advance(10)
        assert (await drive.store.prune()).pruned == 2
        assert await drive.store.counts() == {"q": {State.DONE: 3}}

    async def test_j80_j83_jobs_of_a_flow_are_none_of_the_count(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(keep_done=Retention(count=2))})
        await advance(drive, going("f", 0, part("a"), part("b"), part("c")))
        await drive.add("x", "y", "z")
        for job in "abcxyz":
            await run(drive, job, Done())
            drive.clock.advance(1)
        assert (await drive.store.prune()).pruned == 1
        await advance(drive, going("f", 1, next={"state": "done", "keep": 0.0}))
        assert (await drive.store.prune()).pruned == 4
        assert (await drive.store.prune()).pruned == 0
        assert await drive.store.counts() == {"q": {State.DONE: 2}}

    async def test_j83_they_go_with_their_flow(self, drive: Driver) -> None:
        await advance(drive, going("f", 0, part("a"), part("b")), going("g", 0, part("c", "g")))
        for job in "abc":
            await run(drive, job, Done())
        await advance(drive, going("f", 1, next={"state": "done", "keep": 60.0}))
        drive.clock.advance(59)
        assert (await drive.store.prune()).pruned == 0
        drive.clock.advance(1)
        assert (await drive.store.prune()).pruned == 3
        assert await drive.store.courses(FLOW, ["f"]) == [None]
        assert await drive.store.counts() == {"q": {State.DONE: 1}}
        assert [one.course.id for one in await stirred(drive)] == ["g"]
        assert await advance(drive, going("f")) == [Advanced(False, None)]

    async def test_j83_as_many_as_are_asked_for(self, drive: Driver) -> None:
        await advance(drive, going("f", 0, *(part(job) for job in "abc")))
        await drive.amend(Cancel(), *"abc")
        await advance(drive, going("f", 1, next={"state": "cancelled", "keep": 0.0}))
        rounds = [await drive.store.prune(2), await drive.store.prune(2)]
        assert [(one.pruned, one.more) for one in rounds] == [(2, True), (2, True)]
        assert await drive.store.courses(FLOW, ["f"]) == [None]
        assert await drive.store.counts() == {}

    async def test_j83_a_job_that_is_live_holds_its_flow(self, drive: Driver) -> None:
        await advance(drive, going("f", 0, part("a"), part("b")))
        await drive.amend(Cancel(), "b")
        await advance(drive, going("f", 1, next={"state": "cancelled", "keep": 0.0}))
        drive.clock.advance(DAY)
        await drive.store.prune()
        assert await drive.state("a") is State.READY
        assert (await drive.store.courses(FLOW, ["f"]))[0] is not None
