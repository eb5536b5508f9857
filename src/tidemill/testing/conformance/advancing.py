"""advance: flows, schedules and records go on, together with their jobs."""

# ruff: noqa: S101 - a test suite asserts
from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tidemill.contract.jobs import MEMORY_OF_IDS
from tidemill.core.changes import Cancel, RetryNow
from tidemill.core.courses import Advance, Advanced, Agenda, Course, Made, Next
from tidemill.core.filters import Filter
from tidemill.core.flow_jobs import InFlow, Read
from tidemill.core.outcomes import Release
from tidemill.core.queues import QueueSettings
from tidemill.core.states import State
from tidemill.core.uniqueness import Unique
from tidemill.errors import ConfigurationError
from tidemill.testing.conformance.courses import (
    FLOW,
    RECORD,
    SCHEDULE,
    advance,
    ends,
    going,
    part,
    stirred,
)
from tidemill.testing.conformance.driver import OOPS, Driver, ids, need, new


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
            jobs=("a", "b"),
        )
        assert await drive.store.courses(FLOW, ["f", "g"]) == [begun.course, None]
        assert await drive.store.courses(SCHEDULE, ["f"]) == [None]
        assert ids(await drive.take()) == ["a", "b"]

    async def test_f3_which_job_stands_for_each_is_answered(self, drive: Driver) -> None:
        key = Unique("k")
        await drive.add(new("held", unique=key))
        (begun,) = await advance(
            drive,
            going("f", 0, new("a"), new("b", unique=key), new("c"), new("d", unique=Unique("free"))),
        )
        assert begun.jobs == ("a", "held", "c", "d")
        (again,) = await advance(drive, going("f", 1, new("b", unique=key), new("a")))
        assert again.jobs == ("held", "a")
        (late,) = await advance(drive, going("f", 1, new("e")))
        assert late.jobs == ()

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

    async def test_f3_what_cannot_be_a_job_keeps_its_limits(self, drive: Driver) -> None:
        """Retried by hand it stands where it would have stood: in the line of its key."""
        await drive.store.declare({"q": QueueSettings(key_concurrency=1)})
        limits: dict[str, Any] = {"key": "k", "priority": 2, "timeout": 9.0, "tags": ("t",), "trace": "r"}
        asked = [
            Made("q", part("a", **limits), OOPS),
            Made("q", part("b", **limits, needs=(need("nowhere", requests=1),))),
            Made("q", part("c", **{**limits, "timeout": -1.0})),
        ]
        begun = going("f")
        await drive.store.advance([replace(begun, jobs=tuple(asked))])
        for id_, timeout in (("a", 9.0), ("b", 9.0), ("c", None)):
            job = await drive.job(id_)
            assert (job.state, job.key, job.priority) == (State.FAILED, "k", 2)
            assert (job.timeout, job.tags, job.trace) == (timeout, ("t",), "r")
        await drive.amend(RetryNow(), "a", "b", "c")
        assert ids(await drive.take()) == ["a"], "one of a key at once"

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

    async def test_f4_gone_and_remembered(self, drive: Driver) -> None:
        ended = going("f", 1, next={"state": "done", "keep": 0.0})
        await advance(drive, going("f", next={"due_in": 1.0}))
        await advance(drive, ended)
        await drive.store.prune()
        assert await drive.store.courses(FLOW, ["f"]) == [None]
        assert await advance(drive, ended) == [Advanced(False, None)]
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

    async def test_f4_a_record_stays_until_somebody_writes_it(self, drive: Driver) -> None:
        """Compare and set; its id is free at once, by hand or when it has been kept long enough."""
        for by_hand in (True, False):
            (begun,) = await advance(drive, going("t", kind=RECORD, next={"name": "token"}))
            assert begun.course is not None
            assert await drive.store.courses(FLOW, ["t"]) == [None]
            (lost,) = await advance(drive, going("t", kind=RECORD))
            assert (lost.done, lost.course) == (False, begun.course)
            (ended,) = await advance(drive, going("t", 1, kind=RECORD, next={"state": "over", "keep": 60.0}))
            assert ended.done
            drive.clock.advance(59)
            await drive.store.prune()
            assert await drive.store.courses(RECORD, ["t"]) == [ended.course]
            drive.clock.advance(1)
            if by_hand:
                await advance(drive, Advance(kind=RECORD, id="t", expected=2, next=None))
            else:
                await drive.store.prune()
            assert await drive.store.courses(RECORD, ["t"]) == [None]
            assert await drive.store.course_counts(RECORD) == {}

    async def test_f5_f13_a_record_is_on_no_agenda(self, drive: Driver) -> None:
        """It may come with jobs, all or nothing, and nobody is called to advance it."""
        for wrong in (
            going("t", kind=RECORD, again=True),
            going("t", kind=RECORD, next={"due": 1.0}),
            going("t", kind=RECORD, next={"due_in": 1.0}),
        ):
            with pytest.raises(ConfigurationError, match=r"(again|due): .* record"):
                await advance(drive, going("fine"), wrong)
        assert await drive.store.courses(FLOW, ["fine"]) == [None]
        (begun,) = await advance(drive, going("t", 0, new("a"), kind=RECORD))
        assert begun.jobs == ("a",)
        assert await advance(drive, going("t", 0, new("b"), kind=RECORD)) == [Advanced(False, begun.course)]
        assert ids(await drive.take()) == ["a"]
        assert await drive.store.agenda(RECORD) == Agenda(())
        assert (await drive.store.lead([], "w", 10.0)).dues == {FLOW: None, SCHEDULE: None}

    async def test_f5_what_it_cannot_be_called_is_refused(self, drive: Driver) -> None:
        for wrong in (going(""), going("f" * 201), going("f", next={"name": ""}), going("a\0b")):
            with pytest.raises(ConfigurationError, match=r"id|name"):
                await advance(drive, going("fine", 0, part("a")), wrong)
        assert await drive.store.courses(FLOW, ["fine"]) == [None]
        assert await drive.store.counts() == {}

    async def test_f5_a_flow_is_not_forgotten_before_its_jobs(self, drive: Driver) -> None:
        """No queue prunes them, and no flow would take them along (J83)."""
        await advance(drive, going("f", 0, part("a")))
        forget = Advance(kind=FLOW, id="f", expected=1, next=None)
        with pytest.raises(ConfigurationError, match=r"next: .* keep=0"):
            await advance(drive, going("fine", 0, part("b")), forget)
        assert [course and course.revision for course in await drive.store.courses(FLOW, ["f", "fine"])] == [
            1,
            None,
        ]
