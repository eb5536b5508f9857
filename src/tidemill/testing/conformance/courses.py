"""Flows, schedules and records as the suite drives them."""

# ruff: noqa: S101 - a test suite asserts
from __future__ import annotations

from typing import Any

from tidemill.core.courses import Advance, Advanced, Kind, Made, Next, Stirred
from tidemill.core.flow_jobs import InFlow
from tidemill.core.job import NewJob
from tidemill.core.outcomes import Answer, Outcome
from tidemill.core.states import State
from tidemill.testing.conformance.driver import Driver, new

FLOW, SCHEDULE, RECORD = Kind


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
