"""Cancels and retries flows. If a process dies during a cancellation, the next advance of the flow finishes
it."""

from __future__ import annotations

from msgspec.structs import replace

from tidemill.contract.store import Store
from tidemill.core.documents import Advance, AdvanceResult, Document, DocumentKind, DocumentUpdate
from tidemill.core.filters import Filter
from tidemill.core.flow_graph import FlowGraph, FlowStop, StopReason, decode_graph
from tidemill.core.flow_progress import (
    FINAL_FLOW_STATES,
    FlowState,
    StepJobState,
    apply_job_states,
    jobs_to_retry,
)
from tidemill.core.jobs import flow_job_id
from tidemill.core.operator_changes import RetryJobs
from tidemill.core.states import State
from tidemill.errors import FlowNotFound, JobNotFound, StoreUnavailable
from tidemill.flows.advance import find_uncleared_stop, make_next_document
from tidemill.flows.advance_pass import AdvanceListener, advance_flows
from tidemill.flows.results import MAX_RESULTS_PER_READ

MAX_JOBS_PER_RETRY = 500


async def find_flow(store: Store, flow: str) -> Document:
    [document] = await store.documents(DocumentKind.FLOW, [flow])
    if document is None:
        raise FlowNotFound(
            f"there is no flow {flow!r}: the id is wrong, or it ended and was pruned; keep ended flows "
            "longer with app.flow(…, keep=…)"
        )
    return document


async def cancel_flow(store: Store, flow: str, reason: str, listener: AdvanceListener) -> bool:
    """Cancels a flow and its jobs. Returns False if the flow had ended already. The flow is stopped before
    its jobs are cancelled, so no job is created in between (I19)."""
    while True:
        document = await find_flow(store, flow)
        if document.state in FINAL_FLOW_STATES:
            # A job may have been retried meanwhile; this pass cancels it.
            if (await advance_flows(store, {}, [flow], listener=listener)).advanced:
                continue
            return False
        graph = replace(decode_graph(document.record), stopped=FlowStop(StopReason.CANCELLED, reason))
        if await _write_graph(store, document, graph, listener):
            await advance_flows(store, {}, [flow], listener=listener)
            return True


async def retry_flow(store: Store, flow: str, listener: AdvanceListener) -> bool:
    """Retries the failed and cancelled jobs of a flow. Returns False if the flow is neither failed nor
    cancelled. Raises JobNotFound if one of the jobs was deleted."""
    while True:
        document = await find_flow(store, flow)
        if document.state not in {FlowState.FAILED, FlowState.CANCELLED}:
            return False
        if find_uncleared_stop(document) is not None and await _finish_cancellation(store, flow, listener):
            continue
        before = decode_graph(document.record)
        positions = list(jobs_to_retry(before))
        ids = [flow_job_id(flow, *position) for position in positions]
        await _check_jobs_exist(store, flow, ids)
        graph = apply_job_states(
            replace(before, stopped=None), [StepJobState(*position, State.READY) for position in positions]
        )
        if await _write_graph(store, document, graph, listener):
            await _retry_jobs(store, ids)  # after the write: an ended flow ignores changes of its jobs
            await advance_flows(store, {}, [flow], listener=listener)
            return True


async def _finish_cancellation(store: Store, flow: str, listener: AdvanceListener) -> bool:
    """Finishes an earlier cancellation of the flow. If it stayed unfinished, it could later cancel the jobs
    that are about to be retried. Returns False if nothing was left to do."""
    pass_result = await advance_flows(store, {}, [flow], listener=listener)
    return pass_result.advanced > 0 or pass_result.more


async def _check_jobs_exist(store: Store, flow: str, ids: list[str]) -> None:
    for start in range(0, len(ids), MAX_RESULTS_PER_READ):
        chunk = ids[start : start + MAX_RESULTS_PER_READ]
        for id_, job in zip(chunk, await store.get(chunk), strict=True):
            if job is None:
                raise JobNotFound(
                    f"flow {flow!r} cannot be retried: its job {id_!r} was deleted, and no job is made "
                    "twice; send the flow again, with another key"
                )


async def _write_graph(store: Store, document: Document, graph: FlowGraph, listener: AdvanceListener) -> bool:
    then = make_next_document(document.name, graph, document.due)
    advance = Advance(
        kind=DocumentKind.FLOW, id=document.id, expected=document.revision, next=then, requeue=True
    )
    try:
        [answer] = await store.advance([advance])
    except StoreUnavailable:
        answer = await _check_written(store, document, then)
    if answer.done and answer.document is not None:
        listener(document, answer.document)
    return answer.done


async def _check_written(store: Store, before: Document, then: DocumentUpdate) -> AdvanceResult:
    """Reads the flow after the store's reply to the update `then` was lost. Returns the result that the reply
    would have had."""
    document = await find_flow(store, before.id)
    return AdvanceResult(
        document.revision == before.revision + 1 and document.record == then.record, document
    )


async def _retry_jobs(store: Store, ids: list[str]) -> None:
    """Retries the jobs that are still failed or cancelled. A job that has succeeded meanwhile is not run
    again."""
    states = (State.FAILED, State.CANCELLED)
    for start in range(0, len(ids), MAX_JOBS_PER_RETRY):
        chunk = tuple(ids[start : start + MAX_JOBS_PER_RETRY])
        await store.amend(Filter(ids=chunk, states=states), RetryJobs(), MAX_JOBS_PER_RETRY)
