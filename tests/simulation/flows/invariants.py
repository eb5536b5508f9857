"""The invariants of flows, checked after every verb and when the fleet is idle."""

from __future__ import annotations

from tests.simulation.store_monitor import VerbEvent
from tests.simulation.trace import Violation
from tidemill.core.documents import Document, DocumentKind
from tidemill.core.flow_graph import FlowGraph, decode_graph
from tidemill.core.flow_progress import FINAL_FLOW_STATES, StepJobState, apply_job_states, flow_state
from tidemill.core.jobs import COMPENSATION_SUFFIX, Job
from tidemill.core.states import FINAL, State
from tidemill.engine.records import Records


class NoStepTwice:
    """A done job of a flow stays done (I18); this history retries no done job by hand."""

    def see(self, event: VerbEvent) -> None:
        for id_, (before, after) in event.changes.items():
            if before is not None and before.state is State.DONE and after is not None:
                if after.state is not State.DONE:
                    raise Violation("I17", f"{event.verb} repeats {id_}, which was done")
                if after.result != before.result:
                    raise Violation("I18", f"{event.verb} changed the result of {id_}")


class FlowKeepsJobs:
    """The jobs of a flow are not pruned before the flow (J83)."""

    def __init__(self, records: Records) -> None:
        self._records = records

    def see(self, event: VerbEvent) -> None:
        for job in event.deleted():
            document = (
                None if job.flow is None else self._records.documents.get((DocumentKind.FLOW, job.flow.id))
            )
            if document is not None and (document.until is None or document.until > event.wall):
                raise Violation("J83", f"{event.verb} dropped {job.id} before its flow")


def flows_in(records: Records) -> dict[str, Document]:
    """Returns the flows, without the other kinds of documents."""
    return {id_: document for (kind, id_), document in records.documents.items() if kind is DocumentKind.FLOW}


class FlowRetention:
    """F4: a flow is deleted when it has ended and its retention is over, and not before. `gone` are the
    deleted flows."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._there: dict[str, Document] = {}
        self.gone: set[str] = set()

    def see(self, event: VerbEvent) -> None:
        there = flows_in(self._records)
        for flow in self._there.keys() - there.keys():
            until = self._there[flow].until
            if until is None or until > event.wall:
                raise Violation("F4", f"{event.verb} dropped {flow}, which was to stay until {until}")
            self.gone.add(flow)
        self._there = there


class CancelledFlowStops:
    """I19: all jobs of a cancelled flow were created before it was cancelled."""

    def __init__(self, records: Records) -> None:
        self._records = records

    def see(self, event: VerbEvent) -> None:
        for job in event.created():
            document = (
                None if job.flow is None else self._records.documents.get((DocumentKind.FLOW, job.flow.id))
            )
            if document is None or document.state in FINAL_FLOW_STATES:
                raise Violation("I19", f"{job.id} was made of a flow that has ended")


def check_at_rest(records: Records, graphs: dict[str, FlowGraph], accepted: set[str]) -> None:
    """I17: every flow has ended, with exactly the jobs that it should have. `accepted` are the flows that
    must exist."""
    for flow in accepted:
        document = records.documents.get((DocumentKind.FLOW, flow))
        if document is None:
            raise Violation("F4", f"flow {flow} is gone")
        if document.state not in FINAL_FLOW_STATES:
            raise Violation("I17", f"flow {flow} has not ended, it is {document.state}")
        jobs = [job for job in records.jobs.values() if job.flow is not None and job.flow.id == flow]
        _check_jobs(flow, decode_graph(document.record), jobs)
    if records.work_marks:
        raise Violation("F10", f"{len(records.work_marks)} ends were never taken")
    strangers = flows_in(records).keys() - set(graphs)
    if strangers:
        raise Violation("I2", f"nobody sent {strangers}")


def _check_jobs(flow: str, graph: FlowGraph, jobs: list[Job]) -> None:
    states = {(job.flow.step, job.flow.index): job.state for job in jobs if job.flow is not None}
    expected = {
        (name, index)
        for name, step_progress in graph.step_progress.items()
        for index in range(step_progress.made)
    }
    expected |= {
        (name + COMPENSATION_SUFFIX, index)
        for name, step_progress in graph.step_progress.items()
        for index in step_progress.replaced
    }
    if set(states) != expected:
        raise Violation(
            "I17", f"flow {flow} has the jobs {sorted(states)} and should have {sorted(expected)}"
        )
    if live := [at for at, state in states.items() if state not in FINAL]:
        raise Violation("I17", f"flow {flow} has ended, and {live} have not")
    again = apply_job_states(
        graph, [StepJobState(step, index, state) for (step, index), state in states.items()]
    )
    if flow_state(again) != flow_state(graph) or again.step_progress != graph.step_progress:
        raise Violation("I17", f"the record of flow {flow} is not what its jobs say")
