"""A flow as people see it: its steps in order, what each waits for, and how far it is."""

from __future__ import annotations

import msgspec

from tidemill.core.courses import Course
from tidemill.core.graph import Graph, Node, OnFailure, decode
from tidemill.core.graph_next import broken, over
from tidemill.core.graph_state import (
    FlowState,
    StepState,
    progress_of,
    progress_of_step,
    state_of_step,
)


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    """`parents` are the steps it follows, `waits_for` those of them that are not done. `count` is how many
    jobs it has in all, None until it begins; `live` of them are waiting or running, `compensated` ones
    failed and another task ran in their place."""

    name: str
    task: str
    queue: str
    state: StepState
    mapped: bool
    on_failure: OnFailure
    parents: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    count: int | None = None
    live: int = 0
    done: int = 0
    failed: int = 0
    compensated: int = 0
    progress: float = 0.0


class FlowView(msgspec.Struct, frozen=True, kw_only=True):
    """`progress` is from 0 to 1, `reason` why it failed or was cancelled. Times are wall times."""

    id: str
    name: str
    key: str | None
    state: FlowState
    progress: float
    created: float
    reason: str | None = None
    due: float | None = None
    finished: float | None = None
    until: float | None = None
    steps: tuple[StepView, ...] = ()


def view_of(course: Course) -> FlowView:
    graph = decode(course.record)
    behind = over(graph)
    return FlowView(
        id=course.id,
        name=course.name,
        key=graph.key,
        state=FlowState(course.state),
        progress=progress_of(graph),
        created=course.created,
        reason=why_ended(graph),
        due=course.due,
        finished=course.finished,
        until=course.until,
        steps=tuple(_step(graph, node, behind) for node in graph.nodes),
    )


def why_ended(graph: Graph) -> str | None:
    if graph.stopped is not None:
        return graph.stopped.reason
    for node in graph.nodes:
        if lost := broken(node, graph.of(node.name)):
            which = f"{len(lost)} of {graph.of(node.name).count} jobs" if node.each is not None else "its job"
            return f"step {node.name!r} failed: {which}"
    return None


def _step(graph: Graph, node: Node, behind: frozenset[str]) -> StepView:
    going = graph.of(node.name)
    return StepView(
        name=node.name,
        task=node.work.task,
        queue=node.work.queue,
        state=state_of_step(graph, node),
        mapped=node.each is not None,
        on_failure=node.on_failure,
        parents=tuple(sorted(node.parents)),
        waits_for=tuple(sorted(node.parents - behind)) if going.count is None else (),
        count=going.count,
        live=len(going.live) + len(going.compensating),
        done=len(going.done),
        failed=len(going.failed - going.saved),
        compensated=len(going.failed & going.saved),
        progress=progress_of_step(graph, node),
    )
