"""Jobs and flows, sent and taken up again."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from tidemill.app.application import Application
from tidemill.client.handle import JobHandle
from tidemill.client.request import JobRequest

if TYPE_CHECKING:
    from tidemill.client.flow_handle import FlowHandle
    from tidemill.client.flows import Flow

R = TypeVar("R")


class Sends(Application):
    async def enqueue_many(self, requests: Iterable[JobRequest[R]]) -> list[JobHandle[R]]:
        """Send many jobs in few calls of up to 1 000 jobs or 2 MB. Within one call the jobs of a queue
        are accepted or refused together; calls before a refused one stay accepted. After an error the
        same requests can be sent again without doubling any. The 5 s deadline is per call."""
        return await self.client.enqueue_many(requests)

    def enqueue_many_sync(self, requests: Iterable[JobRequest[R]]) -> list[JobHandle[R]]:
        """`enqueue_many` for programs without an event loop."""
        return self.client.enqueue_many_sync(requests)

    def flow(
        self,
        name: str,
        *,
        key: str | None = None,
        priority: int | None = None,
        timeout: float | timedelta | None = None,
        keep: float | timedelta | None = None,
    ) -> Flow:
        """Begin to build a flow, a graph of jobs: `flow.add(task, …)` and `flow.map(task, …)` are its steps,
        `await flow.enqueue()` sends it.

        With a `key` there is one flow of that name and key, also an hour after it is gone. `priority` is that
        of steps whose task was given none by `using`. When `timeout` is over the flow fails, and its jobs are
        cancelled. It is kept for `keep` seconds once it has ended, with its jobs: a day if it is done, seven
        otherwise."""
        from tidemill.client.flows import Flow

        return Flow(self.client, name, key=key, priority=priority, timeout=timeout, keep=keep)

    def flow_handle(self, id: str) -> FlowHandle:  # noqa: A002 - the word for it
        """A handle on a flow made elsewhere."""
        from tidemill.client.flow_handle import FlowHandle

        return FlowHandle(self.client, id)

    def job(self, id: str) -> JobHandle[Any]:  # noqa: A002 - the word for it
        """A handle on a job made elsewhere."""
        return JobHandle(self.client, id)
