"""How a flow stands: in one word, in a number, and which of its jobs a retry would bring back."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from tidemill.core.flow_jobs import COMPENSATION
from tidemill.core.graph import Graph, Node, OnFailure, Why
from tidemill.core.graph_next import broken, is_failing, is_live, is_settled, over, settled


class FlowState(StrEnum):
    """`failing`: a step has failed, nothing new is started, and something is still under way."""

    RUNNING = "running"
    FAILING = "failing"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED = frozenset({FlowState.DONE, FlowState.FAILED, FlowState.CANCELLED})


class StepState(StrEnum):
    """`waiting`: for the steps before it, or for nothing any more when the flow has ended."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


def state_of(graph: Graph) -> FlowState:
    if graph.stopped is not None:
        return FlowState.CANCELLED if graph.stopped.why is Why.CANCELLED else FlowState.FAILED
    live = is_live(graph)
    if is_failing(graph):
        return FlowState.FAILING if live else FlowState.FAILED
    all_over = len(over(graph)) == len(graph.nodes)
    return FlowState.DONE if all_over and not live else FlowState.RUNNING


def state_of_step(graph: Graph, node: Node) -> StepState:
    going = graph.of(node.name)
    if broken(node, going):
        return StepState.FAILED
    if is_settled(node, going):
        return StepState.DONE
    return StepState.WAITING if going.count is None else StepState.RUNNING


def progress_of_step(graph: Graph, node: Node) -> float:
    """From 0 to 1."""
    going = graph.of(node.name)
    if going.count is None:
        return 0.0
    return len(settled(node, going)) / going.count if going.count else 1.0


def progress_of(graph: Graph) -> float:
    """Every step counts the same: how many jobs the later ones have is not known yet."""
    return sum(progress_of_step(graph, node) for node in graph.nodes) / len(graph.nodes)


def to_retry(graph: Graph) -> Iterator[tuple[str, int]]:
    """Steps, as they stand in ids of jobs, and indexes. What has failed and was let go goes again only while
    nothing was made of its absence, and where a compensation has failed too, that one does."""
    for node in graph.nodes:
        going = graph.of(node.name)
        if node.on_failure is OnFailure.CONTINUE and _has_begun_after(graph, node):
            continue
        again = going.failed - going.replaced
        yield from ((node.name, index) for index in again)
        yield from ((node.name + COMPENSATION, index) for index in broken(node, going) & going.replaced)


def _has_begun_after(graph: Graph, node: Node) -> bool:
    return any(graph.of(other.name).count is not None for other in graph.nodes if node.name in other.parents)
