"""Flows as the CLI, the API and the dashboard pages show them: steps in order, dependencies and progress."""

from __future__ import annotations

import msgspec

from tidemill.core.documents import Document
from tidemill.core.flow_graph import FlowGraph, OnFailure, StepNode, decode_graph
from tidemill.core.flow_progress import (
    FlowState,
    StepState,
    broken_indexes,
    finished_steps,
    flow_completion,
    step_completion,
    step_state,
)


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a flow, for display.

    - `mapped`: True if the step has one job per element of a list.
    - `parents`: the steps before it.
    - `waits_for`: the parents that have not finished yet; empty once the step has started.
    - `count`: the number of its jobs; None until the step starts.
    - `live`: jobs that wait or run.
    - `failed`: failed jobs without a successful compensation.
    - `compensated`: failed jobs whose compensation succeeded.
    - `progress`: the finished share, 0 to 1.
    """

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
    """One flow, for display. Times are wall times.

    - `progress`: the finished share, 0 to 1.
    - `reason`: why the flow failed or was cancelled.
    - `due`: the time of its timeout.
    - `until`: the time until which it is kept.
    """

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


def make_flow_view(document: Document) -> FlowView:
    graph = decode_graph(document.record)
    behind = finished_steps(graph)
    return FlowView(
        id=document.id,
        name=document.name,
        key=graph.key,
        state=FlowState(document.state),
        progress=flow_completion(graph),
        created=document.created,
        reason=find_end_reason(graph),
        due=document.due,
        finished=document.finished,
        until=document.until,
        steps=tuple(_make_step_view(graph, node, behind) for node in graph.nodes),
    )


def find_end_reason(graph: FlowGraph) -> str | None:
    if graph.stopped is not None:
        return graph.stopped.reason
    for node in graph.nodes:
        if lost := broken_indexes(node, graph.of(node.name)):
            subject = (
                f"{len(lost)} of {graph.of(node.name).count} jobs" if node.fan_out is not None else "its job"
            )
            return f"step {node.name!r} failed: {subject}"
    return None


def _make_step_view(graph: FlowGraph, node: StepNode, behind: frozenset[str]) -> StepView:
    step_progress = graph.of(node.name)
    return StepView(
        name=node.name,
        task=node.work.task,
        queue=node.work.queue,
        state=step_state(graph, node),
        mapped=node.fan_out is not None,
        on_failure=node.on_failure,
        parents=tuple(sorted(node.parents)),
        waits_for=tuple(sorted(node.parents - behind)) if step_progress.count is None else (),
        count=step_progress.count,
        live=len(step_progress.live) + len(step_progress.compensating),
        done=len(step_progress.done),
        failed=len(step_progress.failed - step_progress.saved),
        compensated=len(step_progress.failed & step_progress.saved),
        progress=step_completion(graph, node),
    )
