"""Advances flows. Each worker advances the flows of the jobs that it settled. The leader advances the flows
on the worklist."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidemill.contract.store import Store
from tidemill.core.documents import Document, DocumentKind
from tidemill.core.queues import HOUR_SECONDS
from tidemill.core.transitions import UNKNOWN_TASK_SECONDS
from tidemill.errors import StoreError
from tidemill.tasks.definition import TaskDefinition
from tidemill.telemetry.events import MaintenanceCrashed
from tidemill.worker.event_emitter import EventEmitter, error_fields_with_traceback
from tidemill.worker.leadership import LeaderElection

if TYPE_CHECKING:
    from tidemill.flows.advance_pass import ExtraJobs, UnconfirmedAdvances


CONFIRM_RETRY_SECONDS = 1.0
"""Seconds until the store is asked again about an advance that it did not answer."""
FLOW_SERVICE = "flows"
"""The service whose leader advances flows that no worker advances: a worker died, or a job was retried by
hand."""


class FlowAdvancer:
    """Advances flows whose tasks this worker knows. Flows with unknown tasks are left to other workers.

    If no worker knew a task for 24 hours, the flow's jobs of that task fail.

    `extra_jobs`: returns jobs to create together with an advance, such as webhook deliveries."""

    def __init__(
        self,
        store: Store,
        tasks: Mapping[str, TaskDefinition],
        leader: LeaderElection,
        emitter: EventEmitter,
        *,
        extra_jobs: ExtraJobs | None = None,
    ) -> None:
        self._store, self._tasks = store, tasks
        self._extra_jobs = extra_jobs
        self._leader, self._emitter = leader, emitter
        self.service = leader.service(FLOW_SERVICE)
        self._loop = asyncio.get_running_loop()
        self._changed_flows: dict[str, None] = {}  # ordered, so that a simulated history can be replayed
        self._unknown_since: dict[str, float] = {}  # loop time since when
        self._abandoned: set[str] = set()
        self._broken: set[str] = set()
        self._unconfirmed: UnconfirmedAdvances | None = None
        self._wakeup = asyncio.Event()
        self._lock = asyncio.Lock()
        self._next_due: float | None = None
        self.advanced = 0

    def note(self, flow: str) -> None:
        """Requests an advance of the flow, because this worker has settled one of its jobs."""
        self._changed_flows[flow] = None
        self._wakeup.set()

    async def run(self) -> None:
        """Advances flows after each call of `note`; runs until cancelled. If an advance fails, the leader
        finds the flow on the worklist."""
        while True:
            await self._wakeup.wait()
            try:
                await self._advance_changed()
            except StoreError:
                if self._unconfirmed_flows:
                    await asyncio.sleep(CONFIRM_RETRY_SECONDS)
                    self._wakeup.set()
            except Exception as error:  # noqa: BLE001 - one broken chore must not end the worker
                self._emitter.worker_event(
                    MaintenanceCrashed, operation=FLOW_SERVICE, **error_fields_with_traceback(error)
                )

    async def sweep(self) -> bool:
        """Advances flows from the worklist, as leader. Returns True if more flows wait.

        If flows with unknown tasks are left, this worker gives up the leadership."""
        more = await self._run_pass(None)
        if self._unknown_since and not more:  # afterwards it cannot lead for some time
            await self._leader.hand_over(self.service)
        return more

    def seconds_until_next(self) -> float | None:
        """Returns the seconds until the next timeout of a flow; None if no flow has one."""
        return self._next_due

    async def close(self) -> None:
        """Advances the flows of the last jobs that this worker settled. Otherwise they would have to wait for
        another worker."""
        if self._changed_flows or self._unconfirmed_flows:
            await self._advance_changed()

    async def finish(self) -> None:
        """Advances all flows on the worklist until none is left. Used for a worker that runs until idle."""
        await self._advance_changed()
        while await self._run_pass(None):
            pass

    async def _advance_changed(self) -> None:
        self._wakeup.clear()
        self._changed_flows |= dict.fromkeys(self._unconfirmed_flows)
        while self._changed_flows:
            changed, self._changed_flows = list(self._changed_flows), {}
            while await self._run_pass(changed):
                pass

    async def _run_pass(self, ids: Sequence[str] | None) -> bool:
        """Advances the flows `ids`, or flows from the worklist if `ids` is None. Returns True if more flows
        wait."""
        from tidemill.flows.advance import emit_flow_ended
        from tidemill.flows.advance_pass import MAX_FLOWS_PER_PASS, AdvancePass, UnconfirmedAdvances

        def advanced(before: Document, after: Document) -> None:
            self.advanced += 1
            emit_flow_ended(self._emitter.signals, before, after)

        async with self._lock:
            unconfirmed = self._unconfirmed = self._unconfirmed or UnconfirmedAdvances(self._emitter.worker)
            advance_pass = AdvancePass(
                self._store,
                self._tasks,
                unconfirmed=unconfirmed,
                extra_jobs=self._extra_jobs,
                listener=advanced,
            )
            limit = MAX_FLOWS_PER_PASS + len(self._unknown_since) + len(self._broken)
            pass_result = await advance_pass.run(ids, limit=limit, abandoned=self._abandoned)
            self._emit_broken(pass_result.broken)
            if ids is None:
                self._broken, self._next_due = set(pass_result.broken), pass_result.next_due
                await self._update_unknown(pass_result.unknown_tasks)
            return pass_result.more

    @property
    def _unconfirmed_flows(self) -> list[str]:
        return [] if self._unconfirmed is None else self._unconfirmed.flows

    def _emit_broken(self, broken: Mapping[str, Exception]) -> None:
        """Emits one event for each flow whose advance raised. The event is not repeated when the advance is
        retried."""
        for flow, error in broken.items():
            if flow not in self._broken:
                error.add_note(f"This is what kept flow {flow!r} from going on.")
                self._emitter.worker_event(
                    MaintenanceCrashed, operation=FLOW_SERVICE, **error_fields_with_traceback(error)
                )
        self._broken |= broken.keys()

    async def _update_unknown(self, left: Mapping[str, str]) -> None:
        from tidemill.flows.advance import seconds_stuck

        now = self._loop.time()
        self._unknown_since = {flow: self._unknown_since.get(flow, now) for flow in left}
        seen = [flow for flow, since in self._unknown_since.items() if now - since >= HOUR_SECONDS]
        if not seen:
            self._abandoned.clear()
            return
        wall = (await self._store.read_clock()).wall
        documents = await self._store.documents(DocumentKind.FLOW, seen)
        stuck = (
            (document.id, seconds_stuck(document, wall)) for document in documents if document is not None
        )
        self._abandoned = {flow for flow, seconds in stuck if seconds >= UNKNOWN_TASK_SECONDS}
