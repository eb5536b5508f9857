"""agenda: which flows and schedules have something to see to."""

# ruff: noqa: S101, PLR2004 - a test suite asserts, and its numbers are its data
from __future__ import annotations

from tidemill.contract.wakeups import agenda_topic, course_topic
from tidemill.core.changes import Cancel, Delete, RetryNow
from tidemill.core.courses import ENDS_AT_ONCE
from tidemill.core.filters import Filter
from tidemill.core.outcomes import Done, Fail, Release, Retrying
from tidemill.core.queues import QueueSettings
from tidemill.core.states import State
from tidemill.testing.conformance.courses import (
    FLOW,
    SCHEDULE,
    advance,
    ends,
    going,
    part,
    run,
    stirred,
    take_all,
)
from tidemill.testing.conformance.driver import OOPS, Driver, ids


class TestAgenda:
    async def test_f10_an_end_is_on_it_until_it_is_taken(self, drive: Driver) -> None:
        await advance(drive, going("f", 0, part("a"), part("b")))
        assert await stirred(drive) == []
        await run(drive, "a", Done())
        await run(drive, "b", Fail(OOPS))
        (one,) = await stirred(drive)
        assert [(end.job, end.state) for end in one.ends] == [("a", State.DONE), ("b", State.FAILED)]
        await advance(drive, going("f", 1, taken=(one.ends[0].number,)))
        assert await ends(drive) == {"f": [("b", State.FAILED)]}
        await advance(drive, going("f", 2, taken=(one.ends[1].number,)))
        assert await stirred(drive) == []

    async def test_f10_what_is_refused_takes_nothing(self, drive: Driver) -> None:
        await advance(drive, going("f", 0, part("a")))
        await run(drive, "a", Done())
        (one,) = await stirred(drive)
        await advance(drive, going("f", 7, taken=(one.ends[0].number,)))
        assert await stirred(drive) == [one]

    async def test_f10_only_ends_are(self, drive: Driver) -> None:
        await advance(drive, going("f", 0, part("a")))
        await run(drive, "a", Retrying(0, OOPS))
        await run(drive, "a", Release())
        assert await stirred(drive) == []

    async def test_f10_jobs_of_no_flow_stir_nothing(self, drive: Driver) -> None:
        await advance(drive, going("f"), going("s", kind=SCHEDULE))
        await drive.ended("a")
        assert await stirred(drive) == await stirred(drive, SCHEDULE) == []

    async def test_f10_whoever_ends_it(self, drive: Driver) -> None:
        names = ("cancelled", "cancelled-running", "expired", "pruned", "deleted", "archived")
        jobs = [part(name, expires=5 if name in ("expired", "pruned") else None) for name in names]
        await advance(drive, going("f", 0, *jobs))
        await drive.take(named=["cancelled-running"])
        await drive.amend(Cancel(), "cancelled", "cancelled-running")
        await drive.amend(Delete(), "deleted")
        drive.clock.advance(6)
        assert ids(await drive.take(named=["expired"])) == []
        await drive.store.prune()
        found = (await ends(drive))["f"]
        assert found[:3] == [
            ("cancelled", State.CANCELLED),
            ("cancelled-running", State.CANCELLED),
            ("deleted", None),
        ]
        assert sorted(found[3:]) == [("expired", State.CANCELLED), ("pruned", State.CANCELLED)]

    async def test_f10_a_poisoned_one(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(crash_limit=1)})
        await advance(drive, going("f", 0, part("a")))
        for _ in range(2):
            await drive.take()
            drive.clock.advance(31)
            await drive.store.reclaim()
        assert await ends(drive) == {"f": [("a", State.FAILED)]}

    async def test_f10_one_that_is_brought_back(self, drive: Driver) -> None:
        await advance(drive, going("f", 0, part("a")))
        await run(drive, "a", Fail(OOPS))
        await take_all(drive)
        await drive.amend(RetryNow(), "a")
        assert await ends(drive) == {"f": [("a", State.READY)]}
        await run(drive, "a", Done())
        assert await ends(drive) == {"f": [("a", State.DONE), ("a", State.DONE)]}

    async def test_f10_an_end_that_came_since_is_not_taken(self, drive: Driver) -> None:
        """Somebody looked, the job was retried and ended anew, and only then was the first end taken."""
        await advance(drive, going("f", 0, part("a")))
        await run(drive, "a", Fail(OOPS))
        (one,) = await stirred(drive)
        await drive.amend(RetryNow(), "a")
        await advance(drive, going("f", 1, taken=tuple(end.number for end in one.ends)))
        assert await ends(drive) == {"f": [("a", State.READY)]}

    async def test_f10_many_ends_in_pages(self, drive: Driver) -> None:
        count = ENDS_AT_ONCE + 3
        for start in range(0, count, ENDS_AT_ONCE):
            some = range(start, min(start + ENDS_AT_ONCE, count))
            await advance(drive, going("f", start // ENDS_AT_ONCE, *(part(f"{n:04}") for n in some)))
        await drive.store.amend(Filter(flow="f"), Cancel())
        (one,) = await stirred(drive)
        assert [end.job for end in one.ends] == [f"{n:04}" for n in range(ENDS_AT_ONCE)]
        await advance(drive, going("f", 2, taken=tuple(end.number for end in one.ends)))
        assert [job for job, _ in (await ends(drive))["f"]] == [f"{n:04}" for n in range(ENDS_AT_ONCE, count)]

    async def test_f10_again(self, drive: Driver) -> None:
        await advance(drive, going("f", again=True))
        (one,) = await stirred(drive)
        assert [(end.job, end.state) for end in one.ends] == [("", None)]
        await advance(drive, going("f", 1, taken=(one.ends[0].number,)))
        assert await stirred(drive) == []

    async def test_f11_due(self, drive: Driver) -> None:
        now = drive.clock.wall()
        await advance(
            drive,
            going("late", kind=SCHEDULE, next={"due": now + 20}),
            going("soon", kind=SCHEDULE, next={"due_in": 10.0}),
            going("never", kind=SCHEDULE),
        )
        assert await drive.store.agenda(SCHEDULE) == await drive.store.agenda(SCHEDULE, 1)
        assert (await drive.store.agenda(SCHEDULE)).next_due == 10
        drive.clock.advance(10)
        agenda = await drive.store.agenda(SCHEDULE)
        assert ([one.course.id for one in agenda.stirred], agenda.next_due) == (["soon"], 10)
        drive.clock.advance(15)
        agenda = await drive.store.agenda(SCHEDULE)
        assert ([one.course.id for one in agenda.stirred], agenda.next_due) == (["soon", "late"], None)
        await advance(drive, going("soon", 1, kind=SCHEDULE, next={"due": now + 100}))
        agenda = await drive.store.agenda(SCHEDULE)
        assert ([one.course.id for one in agenda.stirred], agenda.next_due) == (["late"], 75)

    async def test_f10_ends_first_and_only_those_that_are_meant(self, drive: Driver) -> None:
        await advance(drive, going("due", next={"due_in": 0.0}))
        for name in ("f", "g", "h"):
            await advance(drive, going(name, again=True))
        assert [one.course.id for one in await stirred(drive)] == ["f", "g", "h", "due"]
        some = await drive.store.agenda(FLOW, 2)
        assert [one.course.id for one in some.stirred] == ["f", "g"]
        meant = await drive.store.agenda(FLOW, 9, ["h", "due", "none"])
        assert [one.course.id for one in meant.stirred] == ["h", "due"]


class TestCourseRings:
    async def test_w5_the_agenda(self, drive: Driver) -> None:
        await advance(drive, going("f", 0, part("a")))
        listener = drive.store.listen([agenda_topic(FLOW)])
        listener.arm()
        await run(drive, "a", Done())
        assert await listener.wait(5)
        listener.arm()
        await advance(drive, going("g", next={"due_in": 5.0}))
        assert await listener.wait(5)
        listener.close()

    async def test_w5_the_end_of_a_course(self, drive: Driver) -> None:
        await advance(drive, going("f"))
        listener = drive.store.listen([course_topic(FLOW, "f")])
        listener.arm()
        await advance(drive, going("f", 1, next={"state": "done", "keep": 9.0}))
        assert await listener.wait(5)
        listener.close()
