"""Advances a flow: takes what has become of its jobs, and makes those that come next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from msgspec.structs import replace

from tidemill.contract.store import Store
from tidemill.core.changes import Cancel
from tidemill.core.courses import (
    BYTES_AT_ONCE,
    JOBS_AT_ONCE,
    Advance,
    Course,
    Kind,
    Made,
    Next,
    Stirred,
)
from tidemill.core.filters import Filter
from tidemill.core.flow_jobs import COMPENSATION, job_id, place_of
from tidemill.core.graph import Graph, Stopped, Why, decode, encode
from tidemill.core.graph_ends import JobEnd, ended
from tidemill.core.graph_next import begun, made, making, unmeasured
from tidemill.core.graph_state import ENDED, FlowState, state_of
from tidemill.core.queues import DAY
from tidemill.core.states import LIVE
from tidemill.flows.doubts import Doubts
from tidemill.flows.gathering import Gatherer
from tidemill.flows.making import made as make
from tidemill.flows.results import AT_ONCE
from tidemill.tasks.definition import TaskDefinition

KEEP_DONE, KEEP_OTHERS = 1 * DAY, 7 * DAY
CANCELS_AT_ONCE = 500

Tasks = Mapping[str, TaskDefinition]


class UnknownTask(Exception):
    """All there is to do is to make jobs of tasks that are not known here: somebody else may know them."""


async def beginning(store: Store, tasks: Tasks, flow: str, name: str, graph: Graph) -> Advance:
    """The first of a flow, with the jobs of the steps that wait for nothing."""
    graph, jobs, more = await _go_on(store, tasks, flow, graph)
    then = next_of(name, graph, due=None)
    return Advance(kind=Kind.FLOW, id=flow, expected=0, next=then, jobs=jobs, again=more)


async def advance_of(
    store: Store, tasks: Tasks, stirred: Stirred, doubts: Doubts, *, strangers_fail: bool = False
) -> Advance | None:
    """What follows from what is on the agenda of a flow; None when nothing does. Of one that was stopped, the
    jobs were cancelled before. `doubts` sign it if it ends with this. `strangers_fail`: a job of a task
    that nobody knows fails. Else it raises UnknownTask."""
    course, ends = stirred.course, stirred.ends
    before = decode(course.record)
    graph = _cleared(ended(before, _told(course.id, stirred)))
    looks = any(not end.job for end in ends)
    if late := await _is_over_time(store, course, graph):
        reason = f"the flow did not end within its timeout of {graph.timeout:g} seconds"
        graph = replace(graph, stopped=Stopped(Why.TIMEOUT, reason))
    elif looks and not _has_more(graph):
        graph = ended(graph, await _look(store, course.id, graph))
    graph, jobs, more = await _go_on(store, tasks, course.id, graph, strangers_fail=strangers_fail)
    if more and not jobs and not any(end.job for end in ends):
        graph = await _stuck(store, graph)
    if not ends and graph == before:
        return None
    return Advance(
        kind=Kind.FLOW,
        id=course.id,
        expected=course.revision,
        next=next_of(course.name, doubts.signed(course, graph), course.due),
        jobs=jobs,
        taken=tuple(end.number for end in ends),
        again=more or late or (looks and bool(jobs)),
    )


def next_of(name: str, graph: Graph, due: float | None) -> Next:
    """One that goes on without a time, though it has a timeout, begins, or was taken up again."""
    state = state_of(graph)
    goes_on = state not in ENDED
    usual = KEEP_DONE if state is FlowState.DONE else KEEP_OTHERS
    return Next(
        name=name,
        state=state,
        record=encode(graph),
        due=due if goes_on else None,
        due_in=graph.timeout if goes_on and due is None else None,
        keep=None if goes_on else usual if graph.keep is None else graph.keep,
    )


async def cancel_live(store: Store, course: Course, reason: str) -> bool:
    """Whoever stopped it may have died before all its jobs were cancelled: it is harmless when repeated.
    False when it is no longer that revision: of one that was taken up since nothing is cancelled. Nobody
    takes it up before all were (`steering.retry`), so one that is looked at here, and live again after that,
    is of another generation."""
    wanted = Filter(flow=course.id, states=tuple(sorted(LIVE)))
    while live := (await store.find(wanted, CANCELS_AT_ONCE)).jobs:
        [now] = await store.courses(Kind.FLOW, [course.id])
        if now is None or now.revision != course.revision:
            return False
        cancel = Cancel(reason, {job.id: job.generation for job in live})
        await store.amend(Filter(ids=tuple(cancel.generations or ())), cancel, CANCELS_AT_ONCE)
    return True


def stuck_for(course: Course, wall: float) -> float:
    stuck = decode(course.record).stuck
    return 0.0 if stuck is None else wall - stuck


def to_be_cleared(course: Course) -> Stopped | None:
    """It was stopped, and nobody has said yet that none of its jobs is left."""
    if course.state not in {FlowState.CANCELLED, FlowState.FAILED}:
        return None
    stopped = decode(course.record).stopped
    return None if stopped is None or stopped.cleared else stopped


def _cleared(graph: Graph) -> Graph:
    if graph.stopped is None:
        return graph
    return replace(graph, stopped=replace(graph.stopped, cleared=True))


def _told(flow: str, stirred: Stirred) -> Iterable[JobEnd]:
    for end in stirred.ends:
        if (place := place_of(flow, end.job)) is not None:
            yield JobEnd(*place, end.state)


async def _is_over_time(store: Store, course: Course, graph: Graph) -> bool:
    if course.due is None or state_of(graph) in ENDED:
        return False
    return (await store.read_clock()).wall >= course.due


def _has_more(graph: Graph) -> bool:
    graph = begun(graph, {})
    return bool(making(graph, 1) or unmeasured(graph))


async def _look(store: Store, flow: str, graph: Graph) -> list[JobEnd]:
    """All that should be live, as it is: somebody may have been told nothing."""
    places = [(name, index) for name, going in graph.going.items() for index in going.live]
    places += [(name + COMPENSATION, index) for name, of in graph.going.items() for index in of.compensating]
    found: list[JobEnd] = []
    for start in range(0, len(places), AT_ONCE):
        some = places[start : start + AT_ONCE]
        jobs = await store.get([job_id(flow, *place) for place in some])
        states = (None if job is None else job.state for job in jobs)
        found += [
            JobEnd(*place, state) for place, state in zip(some, states, strict=True) if state not in LIVE
        ]
    return found


async def _go_on(
    store: Store, tasks: Tasks, flow: str, graph: Graph, *, strangers_fail: bool = False
) -> tuple[Graph, tuple[Made, ...], bool]:
    """The graph as it becomes, the jobs that come of it, and whether there are more: than go at once, or of
    tasks that are not known here."""
    gatherer = Gatherer(store, flow)
    graph = begun(graph, {})
    while waiting := unmeasured(graph):
        graph = begun(graph, {node.name: await gatherer.length(node) for node in waiting})
    jobs = making(graph, JOBS_AT_ONCE, None if strangers_fail else tasks)
    known = [tasks.get(job.work.task) for job in jobs]
    given = await gatherer.gather(graph, list(zip(jobs, known, strict=True)))
    done = tuple(make(flow, graph, job, task, one) for job, task, one in zip(jobs, known, given, strict=True))
    done = done[: _fitting(done)]
    more = len(making(graph, len(done) + 1)) > len(done)
    graph = made(graph, jobs[: len(done)])
    return replace(graph, stuck=None if jobs or not more else graph.stuck), done, more


def _fitting(jobs: Sequence[Made]) -> int:
    """How many of them, from the first on, go at once."""
    sizes = accumulate(len(one.job.payload) for one in jobs)
    return max(1, sum(size <= BYTES_AT_ONCE for size in sizes)) if jobs else 0


async def _stuck(store: Store, graph: Graph) -> Graph:
    """Who finds it so first writes down when."""
    if graph.stuck is not None:
        raise UnknownTask(making(graph, 1)[0].work.task)
    return replace(graph, stuck=(await store.read_clock()).wall)
