"""Finds flows, and explains why a step has no job yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tidemill.contract.store import Store
from tidemill.core.documents import DocumentKind
from tidemill.core.flow_graph import FlowGraph, OnFailure, decode_graph
from tidemill.core.flow_progress import FINAL_FLOW_STATES, FlowState, settled_indexes
from tidemill.core.jobs import COMPENSATION_SUFFIX, flow_job_id
from tidemill.core.states import LIVE, State
from tidemill.errors import ConfigurationError, JobNotFound
from tidemill.flows.views import FlowView, StepView, make_flow_view
from tidemill.inspect.causes import Cause, CauseCode
from tidemill.inspect.explanation import Explanation, explain
from tidemill.inspect.explanation_inputs import load_inputs
from tidemill.tasks.definition import TaskDefinition

MAX_FLOWS_PER_PAGE = 1000


class FlowPage(msgspec.Struct, frozen=True):
    """One page of flows. Pass `cursor` to the next query to get the next page; it is None on the last
    page."""

    flows: tuple[FlowView, ...]
    cursor: str | None


async def find_flows(
    store: Store, name: str | None, states: Sequence[str] | None, limit: int, cursor: str | None
) -> FlowPage:
    if not 1 <= limit <= MAX_FLOWS_PER_PAGE:
        raise ConfigurationError(f"limit: must lie between 1 and {MAX_FLOWS_PER_PAGE}, is {limit}")
    for state in states or ():
        if state not in tuple(FlowState):
            raise ConfigurationError(f"states: there is no state {state!r}; there are {', '.join(FlowState)}")
    page = await store.find_documents(DocumentKind.FLOW, name=name, states=states, limit=limit, cursor=cursor)
    return FlowPage(tuple(make_flow_view(document) for document in page.documents), page.cursor)


MAX_STEPS_EXPLAINED = 5
"""How many previous steps are explained; each one costs several queries."""

NEXT_ADVANCE_TEXT = "the flow goes on when a worker next looks at it"


class ParentStep(msgspec.Struct, frozen=True):
    """A step that another step waits for.

    - `description`: a text about the step.
    - `job`: the id of the step's last job that has not ended; None if all have ended.
    - `why`: the explanation of that job."""

    description: str
    job: str | None = None
    why: Explanation | None = None


async def explain_step(store: Store, tasks: Mapping[str, TaskDefinition], job: str) -> Explanation | None:
    """Returns the explanation of a flow step that has no job yet; None if no flow has this step or the job
    exists.

    `job`: the id that the step's job would have."""
    flow, step, index = _split_job_id(job)
    [document] = await store.documents(DocumentKind.FLOW, [flow]) if flow else [None]
    if document is None:
        return None
    view, graph = make_flow_view(document), decode_graph(document.record)
    step_view, step_progress = (
        next((candidate for candidate in view.steps if candidate.name == step), None),
        graph.of(step),
    )
    was_made = index < step_progress.made
    if step_view is None or was_made or (step_progress.count is not None and index >= step_progress.count):
        return None
    cause = _flow_ended_cause(view, step_view) or await _previous_steps_cause(
        store, tasks, view, graph, step_view
    )
    return Explanation(
        job=job,
        queue=step_view.queue,
        task=step_view.task,
        state=State.WAITING,
        code=cause.code,
        sentence=f"{cause.sentence} It is step {step_view.name!r} of flow {flow!r}.",
        details=cause.details,
        causes=(cause,),
    )


def _split_job_id(job: str) -> tuple[str, str, int]:
    rest, _, index = job.rpartition("/")
    flow, _, step = rest.rpartition("/")
    known = index.isdecimal() and flow and not step.endswith(COMPENSATION_SUFFIX)
    return (flow, step, int(index)) if known else ("", "", 0)


def _flow_ended_cause(view: FlowView, step: StepView) -> Cause | None:
    if view.state not in FINAL_FLOW_STATES and view.state is not FlowState.FAILING:
        return None
    why = f": {view.reason}" if view.reason else ""
    sentence = f"No job is made of it: the flow is {view.state}{why}."
    return Cause(CauseCode.FLOW_ENDED, sentence, _step_details(view, step))


async def _previous_steps_cause(
    store: Store, tasks: Mapping[str, TaskDefinition], view: FlowView, graph: FlowGraph, step: StepView
) -> Cause:
    details = _step_details(view, step)
    if not step.waits_for:
        sentence = "Nothing is in its way: it becomes a job when a worker next looks at the flow."
        return Cause(CauseCode.STEPS_BEFORE, sentence, details)
    steps = {step_view.name: step_view for step_view in view.steps}
    explained = step.waits_for[:MAX_STEPS_EXPLAINED]
    parents = [await _explain_parent(store, tasks, view.id, graph, steps[name]) for name in explained]
    rest = len(step.waits_for) - len(explained)
    description = " and ".join(
        [parent.description for parent in parents] + ([f"{rest} more"] if rest else [])
    )
    whys = "".join(
        f" Of {parent.job}: {_reason_text(parent.why)}" for parent in parents if parent.why is not None
    )
    details["parents"] = [_explanation_data(parent.why) for parent in parents if parent.why is not None]
    return Cause(CauseCode.STEPS_BEFORE, f"Waits for {description}.{whys}", details)


def _step_details(view: FlowView, step: StepView) -> dict[str, Any]:
    return {"flow": view.id, "step": step.name, "waits_for": list(step.waits_for)}


async def _explain_parent(
    store: Store, tasks: Mapping[str, TaskDefinition], flow: str, graph: FlowGraph, step: StepView
) -> ParentStep:
    if step.waits_for:
        return ParentStep(f"{step.name}, which waits for {', '.join(step.waits_for)}")
    named, job = _step_name(graph, step), _last_live_job(flow, graph, step)
    if job is None:
        return ParentStep(f"{named}: {NEXT_ADVANCE_TEXT}")
    try:
        why = explain(await load_inputs(store, tasks, job))
    except JobNotFound:
        return ParentStep(f"{named}, whose job {job} is gone: {NEXT_ADVANCE_TEXT}")
    if why.state not in LIVE:
        return ParentStep(f"{named}, whose job {job} is {why.state}: {NEXT_ADVANCE_TEXT}")
    return ParentStep(f"{named}, {_job_text(step, job)} {_state_text(why)}", job, why)


def _step_name(graph: FlowGraph, step: StepView) -> str:
    """Returns the step's name. For a step with one job per element of a list, adds the number of finished
    jobs."""
    node = graph.node(step.name)
    if node is None or not step.mapped:
        return step.name
    return f"{step.name} ({len(settled_indexes(node, graph.of(step.name)))} of {step.count} done)"


def _last_live_job(flow: str, graph: FlowGraph, step: StepView) -> str | None:
    """Returns the id of the step's last job that has not ended; None if all have ended. Compensation jobs
    count too."""
    step_progress, ids = graph.of(step.name), step.name
    if step_progress.live:
        return flow_job_id(flow, ids, max(step_progress.live))
    if step.on_failure is OnFailure.COMPENSATE and step_progress.compensating:
        return flow_job_id(flow, ids + COMPENSATION_SUFFIX, max(step_progress.compensating))
    return None


def _job_text(step: StepView, job: str) -> str:
    if f"/{step.name}{COMPENSATION_SUFFIX}/" in job:
        return "which failed, and whose compensation"
    return "the last job of which" if step.mapped else "which"


def _state_text(why: Explanation) -> str:
    retrying = any(cause.code is CauseCode.RETRYING for cause in why.causes)
    return "waits for its retry" if retrying else f"is {why.state}"


def _reason_text(why: Explanation) -> str:
    return " ".join(cause.sentence for cause in why.causes)


def _explanation_data(why: Explanation) -> dict[str, Any]:
    return {"job": why.job, "state": why.state.value, "code": why.code.value, "details": why.details}
