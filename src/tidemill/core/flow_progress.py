"""The progress of a flow. These functions apply the states of jobs, decide which steps and jobs come next,
and derive the flow's state."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import islice

import msgspec
from msgspec.structs import replace

from tidemill.core.flow_graph import (
    FlowGraph,
    IndexSet,
    JobTemplate,
    OnFailure,
    StepNode,
    StepProgress,
    StopReason,
)
from tidemill.core.jobs import COMPENSATION_SUFFIX
from tidemill.core.states import LIVE, State


class StepJobState(msgspec.Struct, frozen=True):
    """The state of one job of a flow.

    - `step`: the step's name, with COMPENSATION_SUFFIX for a compensation job.
    - `state`: None if the job was deleted."""

    step: str
    index: int
    state: State | None


class _StepResults(msgspec.Struct):
    """The last reported states of one step's jobs, as sets of indexes. `back` has jobs that had ended and are
    live again, for example after a retry."""

    done: IndexSet
    failed: IndexSet
    deleted: IndexSet
    back: IndexSet


def apply_job_states(graph: FlowGraph, job_states: Iterable[StepJobState]) -> FlowGraph:
    """Returns the flow with the reported states of its jobs applied. A stopped flow resumes if one of its
    ended jobs is live again."""
    changes: dict[str, StepProgress] = {}
    stopped = graph.stopped
    for step, results in _results_by_step(graph, job_states).items():
        name = step.removesuffix(COMPENSATION_SUFFIX)
        step_progress = changes.get(name) or graph.of(name)
        changes[name] = (
            _apply_results(step_progress, results)
            if name == step
            else _apply_compensation_results(step_progress, results)
        )
        stopped = None if results.back else stopped
    return replace(graph.going_on(changes), stopped=stopped) if changes else graph


def _results_by_step(graph: FlowGraph, job_states: Iterable[StepJobState]) -> dict[str, _StepResults]:
    states: dict[str, dict[int, State | None]] = {}
    for end in job_states:
        states.setdefault(end.step, {})[end.index] = end.state
    return {step: _results_of(_jobs_of(graph, step), of) for step, of in states.items()}


def _jobs_of(graph: FlowGraph, step: str) -> IndexSet:
    step_progress = graph.of(step.removesuffix(COMPENSATION_SUFFIX))
    return (
        step_progress.replaced if step.endswith(COMPENSATION_SUFFIX) else IndexSet.below(step_progress.made)
    )


def _results_of(indexes: IndexSet, states: Mapping[int, State | None]) -> _StepResults:
    def in_states(*accepted: State | None) -> IndexSet:
        return indexes & IndexSet.of(index for index, state in states.items() if state in accepted)

    return _StepResults(
        done=in_states(State.DONE),
        failed=in_states(State.FAILED, State.CANCELLED),
        deleted=in_states(None),
        back=in_states(*LIVE),
    )


def _apply_results(step_progress: StepProgress, results: _StepResults) -> StepProgress:
    """Returns the progress of a step after new results. A deleted job counts as failed, unless it was done
    before."""
    # Done jobs may be pruned earlier than their flow; this must not undo their success.
    failed = results.failed | (results.deleted - step_progress.done)
    return replace(
        step_progress,
        done=(step_progress.done | results.done) - failed - results.back,
        failed=(step_progress.failed | failed) - results.done - results.back,
    )


def _apply_compensation_results(step_progress: StepProgress, results: _StepResults) -> StepProgress:
    failed = results.failed | (results.deleted - step_progress.saved)
    return replace(
        step_progress,
        saved=(step_progress.saved | results.done) - failed - results.back,
        lost=(step_progress.lost | failed) - results.done - results.back,
    )


class StepJob(msgspec.Struct, frozen=True):
    """A job that a flow has to create. `compensates=True`: it is the compensation job for the failed job with
    this `index`."""

    node: StepNode
    index: int
    compensates: bool = False

    @property
    def work(self) -> JobTemplate:
        return self.node.compensation or self.node.work if self.compensates else self.node.work


def settled_indexes(node: StepNode, step_progress: StepProgress) -> IndexSet:
    """Returns the indexes of the jobs for which later steps need not wait any more. A failed job is one of
    them if its failure is tolerated or its compensation job is done."""
    if not step_progress.failed:
        return step_progress.done
    if node.on_failure is OnFailure.CONTINUE:
        return step_progress.done | step_progress.failed
    return step_progress.done | (step_progress.failed & step_progress.saved)


def broken_indexes(node: StepNode, step_progress: StepProgress) -> IndexSet:
    """Returns the indexes of the jobs whose failure makes the flow fail."""
    match node.on_failure:
        case OnFailure.FAIL:
            return step_progress.failed
        case OnFailure.CONTINUE:
            return IndexSet()
        case OnFailure.COMPENSATE:
            return step_progress.failed & step_progress.lost


def finished_steps(graph: FlowGraph) -> frozenset[str]:
    """Returns the names of the steps that have finished, so that the steps after them may begin."""
    return frozenset(
        node.name
        for node in graph.nodes
        if (step_progress := graph.step_progress.get(node.name)) is not None
        and is_step_settled(node, step_progress)
    )


def is_step_settled(node: StepNode, step_progress: StepProgress) -> bool:
    return len(settled_indexes(node, step_progress)) == step_progress.count


def is_step_finished(graph: FlowGraph, step: str) -> bool:
    node = graph.node(step)
    return node is not None and is_step_settled(node, graph.of(step))


def is_failing(graph: FlowGraph) -> bool:
    # Asked many times, and rarely true.
    if not any(step_progress.failed for step_progress in graph.step_progress.values()):
        return False
    return any(broken_indexes(node, graph.of(node.name)) for node in graph.nodes)


def is_live(graph: FlowGraph) -> bool:
    return any(
        step_progress.live or step_progress.compensating for step_progress in graph.step_progress.values()
    )


def begin_steps(graph: FlowGraph, lengths: Mapping[str, int]) -> FlowGraph:
    """Begins every step whose parents are finished, and returns the changed flow. `lengths` maps a step to
    the length of its list. A step whose list has an unknown length does not begin."""
    while _may_continue(graph):
        counts = {node.name: _job_count(graph, node, lengths) for node in _startable_steps(graph)}
        started = {name: StepProgress(count=count) for name, count in counts.items() if count is not None}
        if not started:
            break
        graph = graph.going_on(started)
    return graph


def steps_of_unknown_length(graph: FlowGraph) -> list[StepNode]:
    """Returns the steps that wait only because the length of their list is unknown. This list is the result
    of another step."""
    if not _may_continue(graph):
        return []
    return [node for node in _startable_steps(graph) if _job_count(graph, node, {}) is None]


def next_jobs(graph: FlowGraph, most: int, tasks: Container[str] | None = None) -> list[StepJob]:
    """Returns the next jobs to create, at most `most`. If `tasks` is given, only jobs of these tasks are
    returned."""
    if not _may_continue(graph):
        return []
    return list(
        islice((job for job in _jobs_to_create(graph) if tasks is None or job.work.task in tasks), most)
    )


def mark_created(graph: FlowGraph, jobs: Iterable[StepJob]) -> FlowGraph:
    changes: dict[str, StepProgress] = {}
    for job in jobs:
        name = job.node.name
        step_progress = changes.get(name) or graph.of(name)
        changes[name] = (
            replace(step_progress, replaced=step_progress.replaced | IndexSet.of([job.index]))
            if job.compensates
            else replace(step_progress, made=job.index + 1)
        )
    return _without_items(graph.going_on(changes)) if changes else graph


def _without_items(graph: FlowGraph) -> FlowGraph:
    """Returns the flow without the lists whose jobs have all been created."""
    return replace(graph, nodes=tuple(_without_made(node, graph.of(node.name)) for node in graph.nodes))


def _without_made(node: StepNode, step_progress: StepProgress) -> StepNode:
    if node.fan_out is None or not node.fan_out.items or step_progress.made != step_progress.count:
        return node
    return replace(node, fan_out=replace(node.fan_out, items=()))


def _may_continue(graph: FlowGraph) -> bool:
    return graph.stopped is None and not is_failing(graph)


def _startable_steps(graph: FlowGraph) -> Iterator[StepNode]:
    finished = finished_steps(graph)
    for node in graph.nodes:
        if graph.of(node.name).count is None and node.parents <= finished:
            yield node


def _job_count(graph: FlowGraph, node: StepNode, lengths: Mapping[str, int]) -> int | None:
    if node.fan_out is None:
        return 1
    if node.fan_out.step is None:
        return len(node.fan_out.items)
    if (over := graph.node(node.fan_out.step)) is not None and over.fan_out is not None:
        return graph.of(over.name).count
    return lengths.get(node.name)


def _jobs_to_create(graph: FlowGraph) -> Iterator[StepJob]:
    """Yields the jobs that the flow has to create. A step creates no jobs while one of its parents is
    unfinished."""
    finished = finished_steps(graph)
    for node in graph.nodes:
        step_progress = graph.of(node.name)
        if node.on_failure is OnFailure.COMPENSATE:
            for index in step_progress.failed - step_progress.replaced:
                yield StepJob(node, index, compensates=True)
        for index in range(step_progress.made, step_progress.count or 0) if node.parents <= finished else ():
            yield StepJob(node, index)


class FlowState(StrEnum):
    """The state of a flow. `failing`: a step has failed, no new job is started, and some jobs still run."""

    RUNNING = "running"
    FAILING = "failing"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINAL_FLOW_STATES = frozenset({FlowState.DONE, FlowState.FAILED, FlowState.CANCELLED})


class StepState(StrEnum):
    """The state of a step. `waiting`: the step has not begun, because it waits for earlier steps or the flow
    ended first."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


def flow_state(graph: FlowGraph) -> FlowState:
    if graph.stopped is not None:
        return FlowState.CANCELLED if graph.stopped.why is StopReason.CANCELLED else FlowState.FAILED
    live = is_live(graph)
    if is_failing(graph):
        return FlowState.FAILING if live else FlowState.FAILED
    all_over = len(finished_steps(graph)) == len(graph.nodes)
    return FlowState.DONE if all_over and not live else FlowState.RUNNING


def step_state(graph: FlowGraph, node: StepNode) -> StepState:
    step_progress = graph.of(node.name)
    if broken_indexes(node, step_progress):
        return StepState.FAILED
    if is_step_settled(node, step_progress):
        return StepState.DONE
    return StepState.WAITING if step_progress.count is None else StepState.RUNNING


def step_completion(graph: FlowGraph, node: StepNode) -> float:
    """Returns the share of a step's jobs that have finished, from 0 to 1."""
    step_progress = graph.of(node.name)
    if step_progress.count is None:
        return 0.0
    return len(settled_indexes(node, step_progress)) / step_progress.count if step_progress.count else 1.0


def flow_completion(graph: FlowGraph) -> float:
    """Returns the finished share of a flow, from 0 to 1. Every step counts the same, whatever its number of
    jobs."""
    return sum(step_completion(graph, node) for node in graph.nodes) / len(graph.nodes)


def jobs_to_retry(graph: FlowGraph) -> Iterator[tuple[str, int]]:
    """Yields the failed jobs to retry, as pairs of step name and index. If a compensation job failed, only
    the compensation job is retried. Its step name has COMPENSATION_SUFFIX."""
    for node in graph.nodes:
        step_progress = graph.of(node.name)
        if node.on_failure is OnFailure.CONTINUE and _has_started_child(graph, node):
            continue
        failed = step_progress.failed - step_progress.replaced
        yield from ((node.name, index) for index in failed)
        yield from (
            (node.name + COMPENSATION_SUFFIX, index)
            for index in broken_indexes(node, step_progress) & step_progress.replaced
        )


def _has_started_child(graph: FlowGraph, node: StepNode) -> bool:
    return any(graph.of(other.name).count is not None for other in graph.nodes if node.name in other.parents)
