"""Computes, from the changes of a flow's jobs, the next state of the flow and the jobs to create."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from msgspec.structs import replace

from tidemill.contract.store import Store
from tidemill.core.documents import (
    MAX_BYTES_PER_ADVANCE,
    MAX_JOBS_PER_ADVANCE,
    Advance,
    Document,
    DocumentJob,
    DocumentKind,
    DocumentUpdate,
    WorkItem,
)
from tidemill.core.filters import Filter
from tidemill.core.flow_graph import FlowGraph, FlowStop, StopReason, decode_graph, encode_graph
from tidemill.core.flow_progress import (
    FINAL_FLOW_STATES,
    FlowState,
    StepJobState,
    apply_job_states,
    begin_steps,
    flow_state,
    mark_created,
    next_jobs,
    steps_of_unknown_length,
)
from tidemill.core.jobs import COMPENSATION_SUFFIX, flow_job_id, parse_flow_job_id
from tidemill.core.operator_changes import CancelJobs
from tidemill.core.queues import DAY_SECONDS
from tidemill.core.states import LIVE
from tidemill.flows.job_builder import InputReader, build_job
from tidemill.flows.results import MAX_RESULTS_PER_READ
from tidemill.flows.views import find_end_reason
from tidemill.tasks.definition import TaskDefinition
from tidemill.telemetry.job_events import FlowEnded
from tidemill.telemetry.listeners import Signals

DONE_RETENTION_SECONDS, FAILED_RETENTION_SECONDS = 1 * DAY_SECONDS, 7 * DAY_SECONDS
MAX_JOBS_PER_CANCEL = 500

TaskMap = Mapping[str, TaskDefinition]


class UnknownTaskError(Exception):
    """Raised if this process cannot continue a flow, because it knows none of the tasks of the next jobs.
    Another worker may know them."""


async def make_first_advance(store: Store, tasks: TaskMap, flow: str, name: str, graph: FlowGraph) -> Advance:
    """Returns the advance that creates a flow, with the jobs of the steps that depend on no other step.
    `flow` is its id."""
    graph, jobs, more = await _make_jobs(store, tasks, flow, graph)
    then = make_next_document(name, graph, due=None)
    return Advance(kind=DocumentKind.FLOW, id=flow, expected=0, next=then, jobs=jobs, requeue=more)


async def make_next_advance(
    store: Store, tasks: TaskMap, item: WorkItem, *, signature: str = "", fail_unknown_tasks: bool = False
) -> Advance | None:
    """Returns the advance that follows from the job changes in `item`; None if nothing follows. If the flow
    was stopped, the caller must cancel its live jobs first.

    - `signature`: stored in an advance that ends the flow.
    - `fail_unknown_tasks`: True creates jobs of unknown tasks as failed; False leaves them for another
      worker.

    Raises UnknownTaskError if the flow waits for an unknown task since an earlier call.
    """
    document, changes = item.document, item.changes
    before = decode_graph(document.record)
    graph = _mark_cleared(apply_job_states(before, _read_job_changes(document.id, item)))
    is_recheck = any(not change.job for change in changes)
    if is_late := await _is_past_timeout(store, document, graph):
        reason = f"the flow did not end within its timeout of {graph.timeout:g} seconds"
        graph = replace(graph, stopped=FlowStop(StopReason.TIMEOUT, reason))
    elif is_recheck and not _has_jobs_to_make(graph):
        graph = apply_job_states(graph, await _load_finished_jobs(store, document.id, graph))
    graph, jobs, more = await _make_jobs(
        store, tasks, document.id, graph, fail_unknown_tasks=fail_unknown_tasks
    )
    if more and not jobs and not any(change.job for change in changes):
        graph = await _mark_stuck(store, graph)
    if not changes and graph == before:
        return None
    return Advance(
        kind=DocumentKind.FLOW,
        id=document.id,
        expected=document.revision,
        next=make_next_document(document.name, _sign_end(document, graph, signature), document.due),
        jobs=jobs,
        taken=tuple(change.number for change in changes),
        requeue=more or is_late or (is_recheck and bool(jobs)),
    )


def _sign_end(before: Document, graph: FlowGraph, signature: str) -> FlowGraph:
    """Returns the graph with `signature` stored in it, if this advance ends the flow. The signature shows the
    worker that its advance was applied, even if the store's reply was lost."""
    state = flow_state(graph)
    ends_now = state in FINAL_FLOW_STATES and state != before.state
    return replace(graph, ended_by=signature) if signature and ends_now else graph


def make_next_document(name: str, graph: FlowGraph, due: float | None) -> DocumentUpdate:
    """Returns the new version of the flow's document, with its state, due time and retention. `due` is the
    wall time of the flow's timeout; None counts the timeout from now."""
    state = flow_state(graph)
    is_live = state not in FINAL_FLOW_STATES
    default_keep = DONE_RETENTION_SECONDS if state is FlowState.DONE else FAILED_RETENTION_SECONDS
    return DocumentUpdate(
        name=name,
        state=state,
        record=encode_graph(graph),
        due=due if is_live else None,
        due_in=graph.timeout if is_live and due is None else None,
        keep=None if is_live else default_keep if graph.keep is None else graph.keep,
    )


async def cancel_live_jobs(store: Store, document: Document, reason: str) -> bool:
    """Cancels the live jobs of a stopped flow. Returns False if another process has changed the document
    since it was read. Jobs that an operator retries meanwhile are not cancelled."""
    live_jobs = Filter(flow=document.id, states=tuple(sorted(LIVE)))
    while live := (await store.find(live_jobs, MAX_JOBS_PER_CANCEL)).jobs:
        [current] = await store.documents(DocumentKind.FLOW, [document.id])
        if current is None or current.revision != document.revision:
            return False
        cancel = CancelJobs(reason, {job.id: job.generation for job in live})
        await store.amend(Filter(ids=tuple(cancel.generations or ())), cancel, MAX_JOBS_PER_CANCEL)
    return True


def seconds_stuck(document: Document, wall: float) -> float:
    stuck = decode_graph(document.record).stuck
    return 0.0 if stuck is None else wall - stuck


def find_uncleared_stop(document: Document) -> FlowStop | None:
    """Returns the stop of a flow that was cancelled or timed out, if some of its jobs may still be live;
    otherwise None."""
    if document.state not in {FlowState.CANCELLED, FlowState.FAILED}:
        return None
    stopped = decode_graph(document.record).stopped
    return None if stopped is None or stopped.cleared else stopped


def _mark_cleared(graph: FlowGraph) -> FlowGraph:
    if graph.stopped is None:
        return graph
    return replace(graph, stopped=replace(graph.stopped, cleared=True))


def _read_job_changes(flow: str, item: WorkItem) -> Iterable[StepJobState]:
    for change in item.changes:
        if (position := parse_flow_job_id(flow, change.job)) is not None:
            yield StepJobState(*position, change.state)


async def _is_past_timeout(store: Store, document: Document, graph: FlowGraph) -> bool:
    if document.due is None or flow_state(graph) in FINAL_FLOW_STATES:
        return False
    return (await store.read_clock()).wall >= document.due


def _has_jobs_to_make(graph: FlowGraph) -> bool:
    graph = begin_steps(graph, {})
    return bool(next_jobs(graph, 1) or steps_of_unknown_length(graph))


async def _load_finished_jobs(store: Store, flow: str, graph: FlowGraph) -> list[StepJobState]:
    """Reads the jobs that are live according to the graph. Returns the jobs that have ended or were deleted:
    the flow may have missed these changes."""
    positions = [(name, index) for name, progress in graph.step_progress.items() for index in progress.live]
    positions += [
        (name + COMPENSATION_SUFFIX, index)
        for name, progress in graph.step_progress.items()
        for index in progress.compensating
    ]
    found: list[StepJobState] = []
    for start in range(0, len(positions), MAX_RESULTS_PER_READ):
        chunk = positions[start : start + MAX_RESULTS_PER_READ]
        jobs = await store.get([flow_job_id(flow, *position) for position in chunk])
        states = (None if job is None else job.state for job in jobs)
        found += [
            StepJobState(*position, state)
            for position, state in zip(chunk, states, strict=True)
            if state not in LIVE
        ]
    return found


async def _make_jobs(
    store: Store, tasks: TaskMap, flow: str, graph: FlowGraph, *, fail_unknown_tasks: bool = False
) -> tuple[FlowGraph, tuple[DocumentJob, ...], bool]:
    """Returns the new graph, the jobs to create now, and whether more jobs remain. `fail_unknown_tasks=True`
    creates jobs of unknown tasks as failed; otherwise they remain."""
    reader = InputReader(store, flow)
    graph = begin_steps(graph, {})
    while waiting := steps_of_unknown_length(graph):
        graph = begin_steps(graph, {node.name: await reader.length(node) for node in waiting})
    step_jobs = next_jobs(graph, MAX_JOBS_PER_ADVANCE, None if fail_unknown_tasks else tasks)
    definitions = [tasks.get(job.work.task) for job in step_jobs]
    inputs = await reader.read(graph, list(zip(step_jobs, definitions, strict=True)))
    jobs = tuple(
        build_job(flow, graph, job, task, job_input)
        for job, task, job_input in zip(step_jobs, definitions, inputs, strict=True)
    )
    jobs = jobs[: _count_fitting(jobs)]
    more = len(next_jobs(graph, len(jobs) + 1)) > len(jobs)
    graph = mark_created(graph, step_jobs[: len(jobs)])
    return replace(graph, stuck=None if step_jobs or not more else graph.stuck), jobs, more


def _count_fitting(jobs: Sequence[DocumentJob]) -> int:
    """Returns how many of the first `jobs` fit into one advance, which limits the sum of their payload sizes.
    The first job always fits."""
    sizes = accumulate(len(created.job.payload) for created in jobs)
    return max(1, sum(size <= MAX_BYTES_PER_ADVANCE for size in sizes)) if jobs else 0


async def _mark_stuck(store: Store, graph: FlowGraph) -> FlowGraph:
    """Returns the graph with the current time as `stuck`: since then the flow waits for a worker that knows
    its next task. Raises UnknownTaskError if the flow already waits."""
    if graph.stuck is not None:
        raise UnknownTaskError(next_jobs(graph, 1)[0].work.task)
    return replace(graph, stuck=(await store.read_clock()).wall)


def emit_flow_ended(signals: Signals, before: Document | None, after: Document) -> None:
    """Emits the event FlowEnded if this advance ended the flow. `before` and `after` are the flow's
    documents; `before` is None for a new flow."""
    was = None if before is None else before.state
    if after.state in FINAL_FLOW_STATES and was != after.state and signals.wants(FlowEnded):
        signals.emit(
            FlowEnded(
                flow=after.id,
                name=after.name,
                state=after.state,
                seconds=(after.finished or after.created) - after.created,
                reason=find_end_reason(decode_graph(after.record)),
            )
        )
