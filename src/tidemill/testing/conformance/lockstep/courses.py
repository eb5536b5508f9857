"""Flows, schedules and records go on, with jobs and without, from what is and from what no longer is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from operator import itemgetter, methodcaller
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from msgspec.structs import replace

from tidemill.contract.store import Store
from tidemill.core.courses import Advance, Advanced, Course, End, Kind, Made, Next
from tidemill.core.flow_jobs import InFlow, Read
from tidemill.core.job import Error, NewJob
from tidemill.core.states import State
from tidemill.testing.conformance import strategies as some
from tidemill.testing.conformance.lockstep.incoming import Incoming
from tidemill.testing.conformance.lockstep.pair import EVERYTHING
from tidemill.testing.conformance.lockstep.readers import Readers

NAMES = ("dub", "other")
OF_FLOWS = ((Kind.FLOW, "f"), (Kind.FLOW, "f"), (Kind.FLOW, "g"))
places = st.sampled_from((*OF_FLOWS, (Kind.SCHEDULE, "f"), (Kind.RECORD, "f")))
nexts = st.builds(
    Next,
    name=st.sampled_from(NAMES),
    state=st.sampled_from(("running", "failing")),
    record=st.sampled_from((b'{"n":1}', '{"n":"慢"}'.encode())),
    due=some.mostly(None, 1_700_000_010.0),
    due_in=some.mostly(None, 0.0, 20.0),
    keep=some.mostly(None, 0.0, 20.0),
)


class Going(msgspec.Struct, frozen=True):
    """How a course goes on. `behind` is by how much its revision is not the one that is; of the ends it takes
    all, every `nth`, or none for 0."""

    at: tuple[Kind, str]
    next: Next | None
    jobs: Sequence[tuple[str, NewJob, Error | None]]
    nth: int
    behind: int
    again: bool


goings = st.builds(
    Going,
    at=places,
    next=st.one_of(nexts, nexts, nexts, st.none()),
    jobs=st.lists(st.tuples(some.queues, some.new_jobs, some.mostly(None, some.OOPS)), max_size=3),
    nth=st.sampled_from((0, 1, 1, 2)),
    behind=some.mostly(0, 0, 1),
    again=some.mostly(False, False, True),
)


class Courses(Incoming, Readers):
    @initialize(jobs=st.lists(some.new_jobs, min_size=2, max_size=3), then=nexts)
    def a_flow_to_begin_with(self, jobs: list[NewJob], then: Next) -> None:
        of_flow = [("a", replace(job, needs=()), None) for job in jobs]
        self.advance_courses([Going((Kind.FLOW, "f"), then, of_flow, 0, 0, again=False)])

    @rule(goings=st.lists(goings, min_size=1, max_size=2))
    def advance_courses(self, goings: list[Going]) -> None:
        """One rule for all there is: every rule more makes the others rarer."""
        items = [
            (going, tuple(self.made(going.at, number, *job) for number, job in enumerate(going.jobs)))
            for going in goings
        ]
        self.both(lambda store: _advance(store, items))

    def made(self, at: tuple[Kind, str], number: int, queue: str, job: NewJob, error: Error | None) -> Made:
        kind, course = at
        flow = InFlow(course, "step", number, {"a": Read("before"), "b": Read("mapped", 3)} if number else {})
        return Made(queue, replace(self.named(job), flow=flow if kind is Kind.FLOW else None), error)

    @invariant()
    def agendas_agree(self) -> None:
        for kind in Kind:
            self.both(partial(_agenda, kind))

    def readers_agree_on_details(self) -> None:
        super().readers_agree_on_details()
        for kind in Kind:
            self.both(methodcaller("course_counts", kind))
            self.both(methodcaller("courses", kind, ["g", "none", "f"]))
            for name in (None, *NAMES):
                for states in (None, ["running"], ["failing", "running", "none"]):
                    self.both(partial(_pages, kind, name, states))


async def _advance(store: Store, items: list[tuple[Going, tuple[Made, ...]]]) -> list[Advanced]:
    return await store.advance([await _item(store, going, jobs) for going, jobs in items])


async def _item(store: Store, going: Going, jobs: tuple[Made, ...]) -> Advance:
    kind, id_ = going.at
    (course,) = await store.courses(kind, [id_])
    agenda = await store.agenda(kind, 1, [id_])
    ends = sorted((end.job, end.number) for one in agenda.stirred for end in one.ends)
    return Advance(
        kind=kind,
        id=id_,
        expected=(0 if course is None else course.revision) + going.behind,
        next=_undue(going.next) if going.next is not None and kind is Kind.RECORD else going.next,
        jobs=jobs,
        taken=tuple(number for _, number in ends[:: going.nth]) if going.nth else (),
        again=going.again and kind is not Kind.RECORD,
    )


def _undue(then: Next) -> Next:
    """A record waits for nobody."""
    return replace(then, due=None, due_in=None)


async def _agenda(kind: Kind, store: Store) -> dict[str, Any]:
    """Numbers are each store's own, and so is the order of what has ended in one step."""
    agenda = await store.agenda(kind, EVERYTHING)
    return {
        "next due": agenda.next_due,
        **{one.course.id: (one.course, _sorted(one.ends)) for one in agenda.stirred},
    }


def _sorted(ends: Iterable[End]) -> list[tuple[str, State | None]]:
    return sorted(((end.job, end.state) for end in ends), key=itemgetter(0))


async def _pages(kind: Kind, name: str | None, states: list[str] | None, store: Store) -> list[Course]:
    found: list[Course] = []
    page = await store.find_courses(kind, name=name, states=states, limit=1)
    found += page.courses
    while page.cursor is not None:
        page = await store.find_courses(kind, name=name, states=states, limit=1, cursor=page.cursor)
        found += page.courses
    return found
