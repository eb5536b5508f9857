"""What the enqueue of a flow hands back: its id, and the way to its outcome."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from tidemill.client.flow_steps import Step
from tidemill.client.handle import acquired, looks
from tidemill.client.portal import refuse_on_a_loop
from tidemill.contract.wakeups import course_topic, job_topic
from tidemill.core.courses import Course, Kind
from tidemill.core.filters import Filter
from tidemill.core.flow_jobs import job_id
from tidemill.core.graph import Graph, Node, decode
from tidemill.core.graph_next import is_over
from tidemill.core.graph_state import ENDED, FlowState
from tidemill.core.states import LIVE
from tidemill.core.waits import WaitTarget
from tidemill.errors import (
    ConfigurationError,
    FlowCancelled,
    FlowFailed,
    FlowNotFound,
    JobNotFound,
    ResultTimeout,
    ResultUnreadable,
)
from tidemill.flows import steering
from tidemill.flows.results import ResultGone, results
from tidemill.flows.telling import tell_ended
from tidemill.flows.views import FlowView, view_of, why_ended
from tidemill.tasks.waits import OpenWait, waiting
from tidemill.times import read_seconds

if TYPE_CHECKING:
    from tidemill.client.client import Client
    from tidemill.contract.store import Store


class FlowHandle:
    """A flow that was sent: `await handle.result(timeout=600)`.

    `id` can be kept, and `app.flow_handle(id)` makes a handle of it again. `existing` is true when a flow
    with the same key was there before: this is that one."""

    __slots__ = ("_owner", "_place", "existing", "id")

    def __init__(self, client: Client, id: str, *, existing: bool = False) -> None:  # noqa: A002 - the word for it
        self._owner, self._place = client, client.place
        self.id = id
        self.existing = existing

    def __repr__(self) -> str:
        return f"<FlowHandle {self.id}{' existing' if self.existing else ''}>"

    @property
    def _client(self) -> Client:
        """As with jobs: a flow of a test kit is not in the real store."""
        if self._owner.place is not self._place:
            raise FlowNotFound(f"flow {self.id!r} is in another store than the application works on now")
        return self._owner

    async def result(
        self,
        step: str | Step[Any] | None = None,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109 - ends in our own error
    ) -> Any:
        """Wait for the flow to end, at most `timeout` seconds; answers what its last step returned, or, when
        it has several that nobody waits for, what each of them did, by its name. With `step`, wait for that
        one and answer its result: a list when it is mapped. Raises FlowFailed, FlowCancelled, FlowNotFound,
        ResultTimeout, ResultUnreadable, or JobNotFound when somebody deleted a job whose result it is. In a
        handler it waits as `JobHandle.result` does."""
        patience = None if timeout is None else read_seconds("timeout", timeout, ConfigurationError)
        until = None if patience is None else asyncio.get_running_loop().time() + patience
        name = step.name if isinstance(step, Step) else step
        store = await self._client.store()
        course = await self._ended(name, until, patience)
        graph = decode(course.record)
        if not _is_answered(course, graph, name):
            raise ResultTimeout(
                f"flow {self.id} did not end within {patience:g} s, it is {course.state}; it may still"
            )
        if name is not None and is_over(graph, name):
            return await self._result(store, graph, _node(graph, name))
        self._raise_unless_done(course, graph)
        return await self._last(store, graph)

    def result_sync(
        self, step: str | Step[Any] | None = None, timeout: float | timedelta | None = None
    ) -> Any:
        """`result` for programs without an event loop."""
        refuse_on_a_loop("result")
        return self._client.run_sync(lambda: self.result(step, timeout))

    async def status(self) -> FlowView:
        """How far it is, step by step."""
        return view_of(await self._course())

    def status_sync(self) -> FlowView:
        """`status` for programs without an event loop."""
        refuse_on_a_loop("status")
        return self._client.run_sync(self.status)

    async def cancel(self, reason: str = "cancelled by hand") -> bool:
        """After this returned nothing new of the flow starts, and its jobs are cancelled. False: it had
        already ended."""
        tell = partial(tell_ended, self._client.signals)
        return await steering.cancel(await self._client.store(), self.id, reason, tell)

    def cancel_sync(self, reason: str = "cancelled by hand") -> bool:
        """`cancel` for programs without an event loop."""
        refuse_on_a_loop("cancel")
        return self._client.run_sync(lambda: self.cancel(reason))

    async def retry(self) -> bool:
        """Run what failed or was cancelled again, and go on from there; steps that are done are not repeated.
        False: it has not failed, or not yet."""
        tell = partial(tell_ended, self._client.signals)
        return await steering.retry(await self._client.store(), self.id, tell)

    def retry_sync(self) -> bool:
        """`retry` for programs without an event loop."""
        refuse_on_a_loop("retry")
        return self._client.run_sync(self.retry)

    async def _course(self) -> Course:
        return await steering.find_flow(await self._client.store(), self.id)

    async def _ended(self, step: str | None, until: float | None, patience: float | None) -> Course:
        course = await self._course()
        graph = decode(course.record)
        if step is not None:
            _node(graph, step)
        if _is_answered(course, graph, step):
            return course
        async with waiting(WaitTarget("flow", self.id), patience) as wait:
            return await self._wait(course, step, until, wait)

    async def _wait(
        self, course: Course, step: str | None, until: float | None, wait: OpenWait | None
    ) -> Course:
        """As with jobs: listen, or, while too many others do, look now and then."""
        session = await self._client.session()
        for look in looks(until):
            if await acquired(session.listeners, look):
                try:
                    return await self._listen(session.store, step, until, wait)
                finally:
                    session.listeners.release()
            course = await self._course()
            if _is_answered(course, decode(course.record), step):
                break
            if wait is not None:
                await wait.check(session.store)
        return course

    async def _listen(
        self, store: Store, step: str | None, until: float | None, wait: OpenWait | None
    ) -> Course:
        topics = [course_topic(Kind.FLOW, self.id)]
        topics += [] if step is None else [job_topic(job_id(self.id, step))]
        listener = store.listen(topics)
        try:
            for number, look in enumerate(looks(until)):
                listener.arm()
                course = await self._course()
                if _is_answered(course, decode(course.record), step):
                    return course
                if number:
                    await self._mind_waiting(store)
                if wait is not None:
                    await wait.check(store)
                await listener.wait(look)
        finally:
            listener.close()
        return await self._course()

    async def _mind_waiting(self, store: Store) -> None:
        for job in (await store.find(Filter(flow=self.id, states=tuple(sorted(LIVE))), 1)).jobs:
            self._client.mind_waiting(job)

    def _raise_unless_done(self, course: Course, graph: Graph) -> None:
        if course.state == FlowState.CANCELLED:
            raise FlowCancelled(f"flow {self.id} was cancelled: {why_ended(graph)}")
        if course.state != FlowState.DONE:
            raise FlowFailed(f"flow {self.id} failed: {why_ended(graph)}")

    async def _last(self, store: Store, graph: Graph) -> Any:
        waited_for = {parent for node in graph.nodes for parent in node.parents}
        last = [node for node in graph.nodes if node.name not in waited_for]
        values = {node.name: await self._result(store, graph, node) for node in last}
        return values if len(values) > 1 else next(iter(values.values()))

    async def _result(self, store: Store, graph: Graph, node: Node) -> Any:
        count = graph.of(node.name).count or 0
        try:
            found = await results(store, self.id, node.name, range(count))
        except ResultGone as error:
            raise JobNotFound(f"step {node.name!r} of flow {self.id} is done, but {error}") from None
        values = [self._decoded(node, raw) for raw in found]
        return values if node.each is not None else values[0]

    def _decoded(self, node: Node, raw: msgspec.Raw) -> Any:
        """What stands for a failed one was returned by its compensation."""
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


def _is_answered(course: Course, graph: Graph, step: str | None) -> bool:
    return course.state in ENDED or (step is not None and is_over(graph, step))


def _node(graph: Graph, step: str) -> Node:
    if (node := graph.node(step)) is None:
        names = ", ".join(node.name for node in graph.nodes)
        raise ConfigurationError(f"step: the flow has no step {step!r}; it has {names}")
    return node
