"""The handle of a flow: its id, status, result, cancel and retry."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from tidemill.client.background_loop import refuse_on_loop
from tidemill.client.flow_steps import FlowStep
from tidemill.client.job_handle import acquire_within, poll_delays
from tidemill.contract.coordination import document_topic, job_topic
from tidemill.core.documents import Document, DocumentKind
from tidemill.core.filters import Filter
from tidemill.core.flow_graph import FlowGraph, StepNode, decode_graph
from tidemill.core.flow_progress import FINAL_FLOW_STATES, FlowState, is_step_finished
from tidemill.core.jobs import flow_job_id
from tidemill.core.result_waits import WaitTarget
from tidemill.core.states import LIVE
from tidemill.errors import (
    ConfigurationError,
    FlowCancelled,
    FlowFailed,
    FlowNotFound,
    JobNotFound,
    ResultTimeout,
    ResultUnreadable,
)
from tidemill.flows import cancel_and_retry
from tidemill.flows.advance import emit_flow_ended
from tidemill.flows.results import ResultMissing, load_results
from tidemill.flows.views import FlowView, find_end_reason, make_flow_view
from tidemill.tasks.context import OpenWait, open_wait
from tidemill.times import parse_seconds

if TYPE_CHECKING:
    from tidemill.client.client import Client
    from tidemill.contract.store import Store


class FlowHandle:
    """The handle of a flow that was sent: `await handle.result(timeout=600)`. `app.flow_handle(id)` returns
    it by id.

    `existing`: True if a flow with the same name and key existed before; the handle then belongs to that
    flow."""

    __slots__ = ("_owner", "_store_identity", "existing", "id")

    def __init__(self, client: Client, id: str, *, existing: bool = False) -> None:  # noqa: A002 - the public name
        self._owner, self._store_identity = client, client.store_identity
        self.id = id
        self.existing = existing

    def __repr__(self) -> str:
        return f"<FlowHandle {self.id}{' existing' if self.existing else ''}>"

    @property
    def _client(self) -> Client:
        """Returns the client. Raises FlowNotFound if the client has changed its store since the handle was
        created."""
        if self._owner.store_identity is not self._store_identity:
            raise FlowNotFound(f"flow {self.id!r} is in another store than the application works on now")
        return self._owner

    async def result(
        self,
        step: str | FlowStep[Any] | None = None,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109 - raises ResultTimeout instead
    ) -> Any:
        """Waits until the flow ends, at most `timeout` seconds, and returns the result of its last step.

        If several steps have no following step, returns a dict of their results by step name. With `step`,
        waits only for that step and returns its result; the result of a mapped step is a list.

        Raises FlowFailed, FlowCancelled, FlowNotFound, JobNotFound, ResultTimeout or ResultUnreadable. While
        an async handler waits, other jobs may use its slot."""
        patience = None if timeout is None else parse_seconds("timeout", timeout, ConfigurationError)
        until = None if patience is None else asyncio.get_running_loop().time() + patience
        name = step.name if isinstance(step, FlowStep) else step
        store = await self._client.store()
        document = await self._ended(name, until, patience)
        graph = decode_graph(document.record)
        if not _has_result(document, graph, name):
            raise ResultTimeout(
                f"flow {self.id} did not end within {patience:g} s, it is {document.state}; it may still"
            )
        if name is not None and is_step_finished(graph, name):
            return await self._result(store, graph, _find_node(graph, name))
        self._raise_unless_done(document, graph)
        return await self._last(store, graph)

    def result_sync(
        self, step: str | FlowStep[Any] | None = None, timeout: float | timedelta | None = None
    ) -> Any:
        """`result` for programs without an event loop."""
        refuse_on_loop("result")
        return self._client.run_sync(lambda: self.result(step, timeout))

    async def status(self) -> FlowView:
        """Returns the state and progress of the flow, step by step."""
        return make_flow_view(await self._load_document())

    def status_sync(self) -> FlowView:
        """`status` for programs without an event loop."""
        refuse_on_loop("status")
        return self._client.run_sync(self.status)

    async def cancel(self, reason: str = "cancelled by hand") -> bool:
        """Cancels the flow and its jobs. Returns False if the flow had already ended. No job of the flow
        starts after this call returns."""
        tell = partial(emit_flow_ended, self._client.signals)
        return await cancel_and_retry.cancel_flow(await self._client.store(), self.id, reason, tell)

    def cancel_sync(self, reason: str = "cancelled by hand") -> bool:
        """`cancel` for programs without an event loop."""
        refuse_on_loop("cancel")
        return self._client.run_sync(lambda: self.cancel(reason))

    async def retry(self) -> bool:
        """Retries the failed and cancelled jobs of a failed flow; steps that succeeded do not run again.
        Returns False if the flow has not failed."""
        tell = partial(emit_flow_ended, self._client.signals)
        return await cancel_and_retry.retry_flow(await self._client.store(), self.id, tell)

    def retry_sync(self) -> bool:
        """`retry` for programs without an event loop."""
        refuse_on_loop("retry")
        return self._client.run_sync(self.retry)

    async def _load_document(self) -> Document:
        return await cancel_and_retry.find_flow(await self._client.store(), self.id)

    async def _ended(self, step: str | None, until: float | None, patience: float | None) -> Document:
        document = await self._load_document()
        graph = decode_graph(document.record)
        if step is not None:
            _find_node(graph, step)
        if _has_result(document, graph, step):
            return document
        async with open_wait(WaitTarget("flow", self.id), patience) as wait:
            return await self._wait(document, step, until, wait)

    async def _wait(
        self, document: Document, step: str | None, until: float | None, wait: OpenWait | None
    ) -> Document:
        """Waits until the flow or the step has ended, or until the loop time `until`. Returns the flow's
        document.

        `wait`: the registered wait of the calling handler; None outside of a handler."""
        session = await self._client.session()
        for delay in poll_delays(until):
            if await acquire_within(session.listeners, delay):
                try:
                    return await self._listen(session.store, step, until, wait)
                finally:
                    session.listeners.release()
            document = await self._load_document()
            if _has_result(document, decode_graph(document.record), step):
                break
            if wait is not None:
                await wait.check(session.store)
        return document

    async def _listen(
        self, store: Store, step: str | None, until: float | None, wait: OpenWait | None
    ) -> Document:
        topics = [document_topic(DocumentKind.FLOW, self.id)]
        topics += [] if step is None else [job_topic(flow_job_id(self.id, step))]
        listener = store.listen(topics)
        try:
            for number, delay in enumerate(poll_delays(until)):
                listener.arm()
                document = await self._load_document()
                if _has_result(document, decode_graph(document.record), step):
                    return document
                if number:
                    await self._check_wait(store)
                if wait is not None:
                    await wait.check(store)
                await listener.wait(delay)
        finally:
            listener.close()
        return await self._load_document()

    async def _check_wait(self, store: Store) -> None:
        for job in (await store.find(Filter(flow=self.id, states=tuple(sorted(LIVE))), 1)).jobs:
            self._client.on_wait(job)

    def _raise_unless_done(self, document: Document, graph: FlowGraph) -> None:
        if document.state == FlowState.CANCELLED:
            raise FlowCancelled(f"flow {self.id} was cancelled: {find_end_reason(graph)}")
        if document.state != FlowState.DONE:
            raise FlowFailed(f"flow {self.id} failed: {find_end_reason(graph)}")

    async def _last(self, store: Store, graph: FlowGraph) -> Any:
        waited_for = {parent for node in graph.nodes for parent in node.parents}
        last = [node for node in graph.nodes if node.name not in waited_for]
        values = {node.name: await self._result(store, graph, node) for node in last}
        return values if len(values) > 1 else next(iter(values.values()))

    async def _result(self, store: Store, graph: FlowGraph, node: StepNode) -> Any:
        count = graph.of(node.name).count or 0
        try:
            found = await load_results(store, self.id, node.name, range(count))
        except ResultMissing as error:
            raise JobNotFound(f"step {node.name!r} of flow {self.id} is done, but {error}") from None
        values = [self._decoded(node, raw) for raw in found]
        return values if node.fan_out is not None else values[0]

    def _decoded(self, node: StepNode, raw: msgspec.Raw) -> Any:
        """Decodes a result as the return type of the step's task, or else of its compensation task."""
        works = [node.work, *(() if node.compensation is None else (node.compensation,))]
        known = [task for work in works if (task := self._client.tasks.get(work.task)) is not None]
        if not known or bytes(raw) == b"null":
            return msgspec.json.decode(raw)
        for task in known:
            try:
                return task.result.decode(bytes(raw))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                problem = error
        raise ResultUnreadable(
            f"step {node.name!r} of flow {self.id} is done, but its result does not fit what its task says "
            f"it returns: {problem}; correct the annotation"
        )


def _has_result(document: Document, graph: FlowGraph, step: str | None) -> bool:
    return document.state in FINAL_FLOW_STATES or (step is not None and is_step_finished(graph, step))


def _find_node(graph: FlowGraph, step: str) -> StepNode:
    if (node := graph.node(step)) is None:
        names = ", ".join(node.name for node in graph.nodes)
        raise ConfigurationError(f"step: the flow has no step {step!r}; it has {names}")
    return node
