"""Why a step of a flow is no job yet: the steps before it, and what keeps those."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tidemill.contract.store import Store
from tidemill.core.courses import Kind
from tidemill.core.flow_jobs import COMPENSATION, job_id
from tidemill.core.graph import Graph, OnFailure, decode
from tidemill.core.graph_next import settled
from tidemill.core.graph_state import ENDED, FlowState
from tidemill.core.states import LIVE, State
from tidemill.errors import JobNotFound
from tidemill.flows.views import FlowView, StepView, view_of
from tidemill.inspect.causes import Cause, Code
from tidemill.inspect.explanation import Explanation, explain
from tidemill.inspect.facts import gather
from tidemill.tasks.definition import TaskDefinition

MOST_EXPLAINED = 5
"""Of how many steps before it is asked what keeps them: each is several questions to the store."""

ABOUT_TO_GO_ON = "the flow goes on when a worker next looks at it"


class Parent(msgspec.Struct, frozen=True):
    """A step that is waited for, in words. `job` is the one of its jobs whose explanation is `why`."""

    told: str
    job: str | None = None
    why: Explanation | None = None


async def explain_step(store: Store, tasks: Mapping[str, TaskDefinition], job: str) -> Explanation | None:
    """Of a job that is none yet. None when no flow will make it."""
    flow, step, index = _parts(job)
    [course] = await store.courses(Kind.FLOW, [flow]) if flow else [None]
    if course is None:
        return None
    view, graph = view_of(course), decode(course.record)
    of, going = next((one for one in view.steps if one.name == step), None), graph.of(step)
    was_made = index < going.made
    if of is None or was_made or (going.count is not None and index >= going.count):
        return None
    cause = _without_it(view, of) or await _steps_before(store, tasks, view, graph, of)
    return Explanation(
        job=job,
        queue=of.queue,
        task=of.task,
        state=State.WAITING,
        code=cause.code,
        sentence=f"{cause.sentence} It is step {of.name!r} of flow {flow!r}.",
        details=cause.details,
        causes=(cause,),
    )


def _parts(job: str) -> tuple[str, str, int]:
    rest, _, index = job.rpartition("/")
    flow, _, step = rest.rpartition("/")
    known = index.isdecimal() and flow and not step.endswith(COMPENSATION)
    return (flow, step, int(index)) if known else ("", "", 0)


def _without_it(view: FlowView, step: StepView) -> Cause | None:
    if view.state not in ENDED and view.state is not FlowState.FAILING:
        return None
    why = f": {view.reason}" if view.reason else ""
    sentence = f"No job is made of it: the flow is {view.state}{why}."
    return Cause(Code.FLOW_ENDED, sentence, _details(view, step))


async def _steps_before(
    store: Store, tasks: Mapping[str, TaskDefinition], view: FlowView, graph: Graph, step: StepView
) -> Cause:
    details = _details(view, step)
    if not step.waits_for:
        sentence = "Nothing is in its way: it becomes a job when a worker next looks at the flow."
        return Cause(Code.STEPS_BEFORE, sentence, details)
    steps = {one.name: one for one in view.steps}
    looked_at = step.waits_for[:MOST_EXPLAINED]
    parents = [await _parent(store, tasks, view.id, graph, steps[name]) for name in looked_at]
    rest = len(step.waits_for) - len(looked_at)
    told = " and ".join([parent.told for parent in parents] + ([f"{rest} more"] if rest else []))
    whys = "".join(f" Of {parent.job}: {_why(parent.why)}" for parent in parents if parent.why is not None)
    details["parents"] = [_as_data(parent.why) for parent in parents if parent.why is not None]
    return Cause(Code.STEPS_BEFORE, f"Waits for {told}.{whys}", details)


def _details(view: FlowView, step: StepView) -> dict[str, Any]:
    return {"flow": view.id, "step": step.name, "waits_for": list(step.waits_for)}


async def _parent(
    store: Store, tasks: Mapping[str, TaskDefinition], flow: str, graph: Graph, step: StepView
) -> Parent:
    if step.waits_for:
        return Parent(f"{step.name}, which waits for {', '.join(step.waits_for)}")
    named, job = _named(graph, step), _last_live(flow, graph, step)
    if job is None:
        return Parent(f"{named}: {ABOUT_TO_GO_ON}")
    try:
        why = explain(await gather(store, tasks, job))
    except JobNotFound:
        return Parent(f"{named}, whose job {job} is gone: {ABOUT_TO_GO_ON}")
    if why.state not in LIVE:
        return Parent(f"{named}, whose job {job} is {why.state}: {ABOUT_TO_GO_ON}")
    return Parent(f"{named}, {_whose(step, job)} {_how(why)}", job, why)


def _named(graph: Graph, step: StepView) -> str:
    """With how far it is, when it has many jobs."""
    node = graph.node(step.name)
    if node is None or not step.mapped:
        return step.name
    return f"{step.name} ({len(settled(node, graph.of(step.name)))} of {step.count} done)"


def _last_live(flow: str, graph: Graph, step: StepView) -> str | None:
    """The last: all are waited for, and it starts after the others."""
    going, ids = graph.of(step.name), step.name
    if going.live:
        return job_id(flow, ids, max(going.live))
    if step.on_failure is OnFailure.COMPENSATE and going.compensating:
        return job_id(flow, ids + COMPENSATION, max(going.compensating))
    return None


def _whose(step: StepView, job: str) -> str:
    if f"/{step.name}{COMPENSATION}/" in job:
        return "which failed, and whose compensation"
    return "the last job of which" if step.mapped else "which"


def _how(why: Explanation) -> str:
    retrying = any(cause.code is Code.RETRYING for cause in why.causes)
    return "waits for its retry" if retrying else f"is {why.state}"


def _why(why: Explanation) -> str:
    return " ".join(cause.sentence for cause in why.causes)


def _as_data(why: Explanation) -> dict[str, Any]:
    return {"job": why.job, "state": why.state.value, "code": why.code.value, "details": why.details}
