"""advance, agenda: flows and schedules go on, together with their jobs."""

# ruff: noqa: S101, PLR2004 - a test suite asserts, and its numbers are its data
from __future__ import annotations

from typing import Any

import pytest

from tidemill.contract.jobs import MEMORY_OF_IDS
from tidemill.contract.wakeups import agenda_topic, course_topic
from tidemill.core.changes import Cancel, Delete, RetryNow
from tidemill.core.courses import ENDS_AT_ONCE, Advance, Advanced, Course, Kind, Made, Next, Stirred
from tidemill.core.filters import Filter
from tidemill.core.flow_jobs import InFlow, Read
from tidemill.core.job import NewJob
from tidemill.core.outcomes import Answer, Done, Fail, Outcome, Release, Retrying
from tidemill.core.queues import DAY, QueueSettings, Retention
from tidemill.core.states import State
from tidemill.errors import ConfigurationError
from tidemill.testing.conformance.driver import OOPS, Driver, ids, need, new

FLOW, SCHEDULE = Kind.FLOW, Kind.SCHEDULE


def part(job: str, flow: str = "f", **options: Any) -> NewJob:
    return new(job, flow=InFlow(flow, "step", 0), **options)


def going(id_: str = "f", expected: int = 0, *jobs: NewJob, kind: Kind = FLOW, **more: Any) -> Advance:
    """A course goes on, or begins."""
    fields = {"name": "dub", "state": "running", "record": b'{"n":1}', **more.pop("next", {})}
    made = tuple(Made("q", job) for job in jobs)
    return Advance(kind=kind, id=id_, expected=expected, next=Next(**fields), jobs=made, **more)


async def advance(drive: Driver, *advances: Advance) -> list[Advanced]:
    return await drive.store.advance(advances)


async def stirred(drive: Driver, kind: Kind = FLOW) -> list[Stirred]:
    return list((await drive.store.agenda(kind)).stirred)


async def ends(drive: Driver, kind: Kind = FLOW) -> dict[str, list[tuple[str, State | None]]]:
    """By course, what has happened to which of its jobs."""
    return {one.course.id: [(end.job, end.state) for end in one.ends] for one in await stirred(drive, kind)}


async def take_all(drive: Driver) -> None:
    """Somebody has looked at everything."""
    for one in await stirred(drive):
        taken = tuple(end.number for end in one.ends)
        (done,) = await advance(drive, going(one.course.id, one.course.revision, taken=taken))
        assert done.done


async def run(drive: Driver, job: str, outcome: Outcome) -> None:
    claimed = await drive.take_one(named=[job])
    assert await drive.settle(claimed, outcome) is Answer.OK


class TestAdvance:
    async def test_f1_begins_with_its_jobs(self, drive: Driver) -> None:
        (begun,) = await advance(drive, going("f", 0, part("a"), new("b"), next={"due_in": 60.0}))
        now = drive.clock.wall()
        assert begun == Advanced(
            done=True,
            course=Course(
                kind=FLOW,
                id="f",
                name="dub",
                state="running",
                created=now,
                revision=1,
                record=b'{"n":1}',
                due=now + 60,
            ),
        )
        assert await drive.store.courses(FLOW, ["f", "g"]) == [begun.course, None]
        assert await drive.store.courses(SCHEDULE, ["f"]) == [None]
        assert ids(await drive.take()) == ["a", "b"]

    async def test_a_job_knows_its_flow(self, drive: Driver) -> None:
        flow = InFlow("f", "mux", 3, {"speech": Read("speak", 4), "video": Read("fetch")})
        await advance(drive, going("f", 0, new("a", flow=flow), new("b")))
        assert (await drive.job("a")).flow == flow
        assert (await drive.job("b")).flow is None
        claimed = await drive.take()
        assert [job.flow for job in claimed] == [flow, None]
        await drive.settle(claimed[0], Release())
        assert (await drive.job("a")).flow == flow

    async def test_jobs_are_found_by_their_flow(self, drive: Driver) -> None:
        await advance(drive, going("f", 0, part("a"), part("b")), going("g", 0, part("c", "g")))
        await drive.add("d")
        found = await drive.store.find(Filter(flow="f"))
        assert ids(found.jobs) == ["b", "a"]
        await drive.store.amend(Filter(flow="f", states=(State.READY,)), Cancel())
        assert await drive.store.counts() == {"q": {State.CANCELLED: 2, State.READY: 2}}

    async def test_f1_goes_on(self, drive: Driver) -> None:
        await advance(drive, going("f"))
        drive.clock.advance(5)
        (gone_on,) = await advance(drive, going("f", 1, part("a"), next={"state": "failing", "record": b"2"}))
        course = gone_on.course
        assert course is not None
        assert (course.revision, course.state, course.record) == (2, "failing", b"2")
        assert course.created == drive.clock.wall() - 5
        assert await drive.state("a") is State.READY

    async def test_f2_only_from_the_revision_it_was_decided_on(self, drive: Driver) -> None:
        (first,) = await advance(drive, going("f"))
        late = await advance(
            drive, going("f", 0, part("a")), going("f", 2, part("b")), going("none", 1, part("c"))
        )
        assert late == [Advanced(False, first.course)] * 2 + [Advanced(False, None)]
        assert await drive.store.counts() == {}

    async def test_f2_of_two_one_is_done(self, drive: Driver) -> None:
        await advance(drive, going("f"))
        twice = await advance(drive, going("f", 1, part("a")), going("f", 1, part("b")))
        assert [one.done for one in twice] == [True, False]
        assert twice[0].course == twice[1].course
        assert await drive.store.counts() == {"q": {State.READY: 1}}

    async def test_f3_length_limits_do_not_hold(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(max_length=1)})
        await advance(drive, going("f", 0, part("a"), part("b"), part("c")))
        assert await drive.store.counts() == {"q": {State.READY: 3}}

    async def test_f3_a_known_id_stays_as_it_is(self, drive: Driver) -> None:
        await drive.ended("a")
        await advance(drive, going("f", 0, part("a"), part("b")))
        assert await drive.state("a") is State.DONE
        assert await drive.state("b") is State.READY

    async def test_f3_what_cannot_be_a_job_fails(self, drive: Driver) -> None:
        """And is an end of the flow's: nothing waits for it for ever."""
        refused = Made("q", part("a"), OOPS)
        await drive.store.advance(
            [
                Advance(
                    kind=FLOW,
                    id="f",
                    expected=0,
                    next=Next(name="dub", state="running", record=b"{}"),
                    jobs=(
                        refused,
                        Made("q", part("b", priority=10**9)),
                        Made("q", part("c", needs=(need("nowhere", requests=1),))),
                    ),
                )
            ]
        )
        job = await drive.job("a")
        assert (job.state, job.error, job.flow) == (State.FAILED, OOPS, InFlow("f", "step", 0))
        for id_, field in (("b", "priority"), ("c", "nowhere")):
            error = (await drive.job(id_)).error
            assert error is not None
            assert field in error.message
        assert await ends(drive) == {"f": [(id_, State.FAILED) for id_ in "abc"]}

    async def test_f3_jobs_may_be_for_later(self, drive: Driver) -> None:
        await advance(drive, going("f", 0, part("a", delay=10)))
        assert await drive.state("a") is State.SCHEDULED
        drive.clock.advance(10)
        assert ids(await drive.take()) == ["a"]

    async def test_f4_ends_and_is_kept(self, drive: Driver) -> None:
        await advance(drive, going("f"))
        (ended,) = await advance(drive, going("f", 1, next={"state": "done", "keep": 60.0}))
        now = drive.clock.wall()
        assert ended.course is not None
        assert (ended.course.finished, ended.course.until) == (now, now + 60)
        drive.clock.advance(10)
        (again,) = await advance(drive, going("f", 2, next={"state": "done", "keep": 60.0}))
        assert again.course is not None
        assert (again.course.finished, again.course.until) == (now, now + 60), "it goes when it was to go"
        (other,) = await advance(drive, going("f", 3, next={"state": "failed", "keep": 60.0}))
        assert other.course is not None
        assert (other.course.finished, other.course.until) == (now + 10, now + 70)
        (back,) = await advance(drive, going("f", 4))
        assert back.course is not None
        assert (back.course.finished, back.course.until) == (None, None)

    async def test_f4_forgotten_and_remembered(self, drive: Driver) -> None:
        forget = Advance(kind=FLOW, id="f", expected=1, next=None)
        await advance(drive, going("f", next={"due_in": 1.0}))
        assert await advance(drive, forget) == [Advanced(True, None)]
        assert await drive.store.courses(FLOW, ["f"]) == [None]
        assert await advance(drive, forget) == [Advanced(False, None)]
        assert await advance(drive, going("f")) == [Advanced(False, None)]
        assert (await advance(drive, going("f", kind=SCHEDULE)))[0].done  # a schedule of that name is another
        drive.clock.advance(MEMORY_OF_IDS)
        assert await stirred(drive) == []
        assert (await advance(drive, going("f")))[0].done

    async def test_f4_the_name_of_a_schedule_is_free_at_once(self, drive: Driver) -> None:
        for gone in (Advance(kind=SCHEDULE, id="s", expected=1, next=None), None):
            await advance(drive, going("s", kind=SCHEDULE, next={"due_in": 1.0}))
            if gone is None:
                await advance(drive, going("s", 1, kind=SCHEDULE, next={"keep": 60.0}))
                drive.clock.advance(61)
                await drive.store.prune()
            else:
                await advance(drive, gone)
            assert await drive.store.courses(SCHEDULE, ["s"]) == [None]
            (again,) = await advance(drive, going("s", kind=SCHEDULE))
            assert again.course is not None
            assert again.course.revision == 1
            await advance(drive, Advance(kind=SCHEDULE, id="s", expected=1, next=None))

    async def test_f5_what_it_cannot_be_called_is_refused(self, drive: Driver) -> None:
        for wrong in (going(""), going("f" * 201), going("f", next={"name": ""}), going("a\0b")):
            with pytest.raises(ConfigurationError, match=r"id|name"):
                await advance(drive, going("fine", 0, part("a")), wrong)
        assert await drive.store.courses(FLOW, ["fine"]) == [None]
        assert await drive.store.counts() == {}


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


class TestFindCourses:
    async def test_f21_newest_first_page_by_page(self, drive: Driver) -> None:
        for name in "abc":
            await advance(drive, going(name), going(f"{name}2"), going(name, kind=SCHEDULE))
            drive.clock.advance(1)
        first = await drive.store.find_courses(FLOW, limit=4)
        await advance(drive, going("new"))
        rest = await drive.store.find_courses(FLOW, limit=4, cursor=first.cursor)
        assert [one.id for one in (*first.courses, *rest.courses)] == ["c2", "c", "b2", "b", "a2", "a"]
        assert rest.cursor is None

    async def test_f21_by_name_and_state(self, drive: Driver) -> None:
        await advance(
            drive,
            going("a"),
            going("b", next={"name": "other"}),
            going("c", next={"state": "done", "keep": 9.0}),
        )
        named = await drive.store.find_courses(FLOW, name="dub")
        assert [one.id for one in named.courses] == ["c", "a"]
        done = await drive.store.find_courses(FLOW, name="dub", states=["done", "failed"])
        assert [one.id for one in done.courses] == ["c"]
        assert (await drive.store.find_courses(FLOW, states=[])).courses == ()

    async def test_f21_a_cursor_of_something_else(self, drive: Driver) -> None:
        for wrong in ("nonsense", "nan f", "1.0", "1.0 f\0"):
            with pytest.raises(ConfigurationError, match="cursor"):
                await drive.store.find_courses(FLOW, cursor=wrong)

    async def test_f22_counts(self, drive: Driver) -> None:
        assert await drive.store.course_counts(FLOW) == {}
        await advance(drive, going("a"), going("b"), going("c", next={"state": "done", "keep": 0.0}))
        assert await drive.store.course_counts(FLOW) == {"running": 2, "done": 1}
        await advance(drive, going("a", 1, next={"state": "done", "keep": 0.0}))
        await drive.store.prune()
        assert await drive.store.course_counts(FLOW) == {"running": 1}
        assert await drive.store.course_counts(SCHEDULE) == {}


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
