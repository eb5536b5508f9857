"""What must hold of flows after every verb, and when all is quiet."""

from __future__ import annotations

from tests.simulation.trace import Violation
from tests.simulation.watch import Event
from tidemill.core.courses import Course, Kind
from tidemill.core.flow_jobs import COMPENSATION
from tidemill.core.graph import Graph, decode
from tidemill.core.graph_ends import JobEnd, ended
from tidemill.core.graph_state import ENDED, state_of
from tidemill.core.job import Job
from tidemill.core.states import FINAL, State
from tidemill.engine.records import Records


class NoStepTwice:
    """A job of a flow that is done stays done (I18): nobody here retries one by hand."""

    def see(self, event: Event) -> None:
        for id_, (before, after) in event.changes.items():
            if before is not None and before.state is State.DONE and after is not None:
                if after.state is not State.DONE:
                    raise Violation("I17", f"{event.verb} repeats {id_}, which was done")
                if after.result != before.result:
                    raise Violation("I18", f"{event.verb} changed the result of {id_}")


class KeptWithItsFlow:
    """J83."""

    def __init__(self, records: Records) -> None:
        self._records = records

    def see(self, event: Event) -> None:
        for job in event.deleted():
            course = None if job.flow is None else self._records.courses.get((Kind.FLOW, job.flow.id))
            if course is not None and (course.until is None or course.until > event.wall):
                raise Violation("J83", f"{event.verb} dropped {job.id} before its flow")


def flows_in(records: Records) -> dict[str, Course]:
    """What workers counted is kept beside them."""
    return {id_: course for (kind, id_), course in records.courses.items() if kind is Kind.FLOW}


class FlowsStay:
    """F4: a flow goes when it has ended and its time is over, and not before. `gone` are those that did."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._there: dict[str, Course] = {}
        self.gone: set[str] = set()

    def see(self, event: Event) -> None:
        there = flows_in(self._records)
        for flow in self._there.keys() - there.keys():
            until = self._there[flow].until
            if until is None or until > event.wall:
                raise Violation("F4", f"{event.verb} dropped {flow}, which was to stay until {until}")
            self.gone.add(flow)
        self._there = there


class StoppedIsStopped:
    """I19: what is made of a cancelled flow was made before."""

    def __init__(self, records: Records) -> None:
        self._records = records

    def see(self, event: Event) -> None:
        for job in event.created():
            course = None if job.flow is None else self._records.courses.get((Kind.FLOW, job.flow.id))
            if course is None or course.state in ENDED:
                raise Violation("I19", f"{job.id} was made of a flow that has ended")


def check_at_rest(records: Records, graphs: dict[str, Graph], accepted: set[str]) -> None:
    """I17: every flow has ended, with exactly the jobs it should have. `accepted` are those that are to be
    there."""
    for flow in accepted:
        course = records.courses.get((Kind.FLOW, flow))
        if course is None:
            raise Violation("F4", f"flow {flow} is gone")
        if course.state not in ENDED:
            raise Violation("I17", f"flow {flow} has not ended, it is {course.state}")
        jobs = [job for job in records.jobs.values() if job.flow is not None and job.flow.id == flow]
        _check_jobs(flow, decode(course.record), jobs)
    if records.stirs:
        raise Violation("F10", f"{len(records.stirs)} ends were never taken")
    strangers = flows_in(records).keys() - set(graphs)
    if strangers:
        raise Violation("I2", f"nobody sent {strangers}")


def _check_jobs(flow: str, graph: Graph, jobs: list[Job]) -> None:
    states = {(job.flow.step, job.flow.index): job.state for job in jobs if job.flow is not None}
    expected = {(name, index) for name, going in graph.going.items() for index in range(going.made)}
    expected |= {
        (name + COMPENSATION, index) for name, going in graph.going.items() for index in going.replaced
    }
    if set(states) != expected:
        raise Violation(
            "I17", f"flow {flow} has the jobs {sorted(states)} and should have {sorted(expected)}"
        )
    if live := [at for at, state in states.items() if state not in FINAL]:
        raise Violation("I17", f"flow {flow} has ended, and {live} have not")
    again = ended(graph, [JobEnd(step, index, state) for (step, index), state in states.items()])
    if state_of(again) != state_of(graph) or again.going != graph.going:
        raise Violation("I17", f"the record of flow {flow} is not what its jobs say")
