"""Flows: finding them, and why a step of one is no job yet."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidemill.contract.store import Store
from tidemill.core.courses import Kind
from tidemill.core.flow_jobs import COMPENSATION
from tidemill.core.graph import decode
from tidemill.core.graph_state import ENDED, FlowState
from tidemill.core.states import State
from tidemill.errors import ConfigurationError
from tidemill.flows.views import FlowView, StepView, view_of
from tidemill.inspect.causes import Cause, Code
from tidemill.inspect.explanation import Explanation

MOST_AT_ONCE = 1000


class FlowPage(msgspec.Struct, frozen=True):
    """`cursor` continues where this page ends; None when it is the last."""

    flows: tuple[FlowView, ...]
    cursor: str | None


async def find(
    store: Store, name: str | None, states: Sequence[str] | None, limit: int, cursor: str | None
) -> FlowPage:
    if not 1 <= limit <= MOST_AT_ONCE:
        raise ConfigurationError(f"limit: must lie between 1 and {MOST_AT_ONCE}, is {limit}")
    for state in states or ():
        if state not in tuple(FlowState):
            raise ConfigurationError(f"states: there is no state {state!r}; there are {', '.join(FlowState)}")
    page = await store.find_courses(Kind.FLOW, name=name, states=states, limit=limit, cursor=cursor)
    return FlowPage(tuple(view_of(course) for course in page.courses), page.cursor)


async def explain_step(store: Store, job: str) -> Explanation | None:
    """Of a job that is none yet. None when no flow will make it."""
    flow, step, index = _parts(job)
    [course] = await store.courses(Kind.FLOW, [flow]) if flow else [None]
    if course is None:
        return None
    view, going = view_of(course), decode(course.record).of(step)
    of = next((one for one in view.steps if one.name == step), None)
    was_made = index < going.made
    if of is None or was_made or (going.count is not None and index >= going.count):
        return None
    cause = _cause(view, of)
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


def _cause(view: FlowView, step: StepView) -> Cause:
    details = {"flow": view.id, "step": step.name, "waits_for": list(step.waits_for)}
    if view.state in ENDED or view.state is FlowState.FAILING:
        why = f": {view.reason}" if view.reason else ""
        return Cause(Code.FLOW_ENDED, f"No job is made of it: the flow is {view.state}{why}.", details)
    if not step.waits_for:
        sentence = "Nothing is in its way: it becomes a job when a worker next looks at the flow."
        return Cause(Code.STEPS_BEFORE, sentence, details)
    states = {one.name: one for one in view.steps}
    told = " and ".join(_how_it_is(states[name]) for name in step.waits_for)
    return Cause(Code.STEPS_BEFORE, f"Waits for {told}.", details)


def _how_it_is(step: StepView) -> str:
    if step.waits_for:
        return f"{step.name}, which waits for {', '.join(step.waits_for)}"
    settled = step.done + step.failed + step.compensated
    return f"{step.name}, which is {step.state}" + (f" ({settled} of {step.count})" if step.mapped else "")
