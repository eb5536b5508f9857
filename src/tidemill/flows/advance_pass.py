"""One pass over the flows that have to be advanced: load them, decide, send, check the replies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from tidemill.contract.store import Store
from tidemill.core.documents import (
    MAX_CHANGES_PER_DOCUMENT,
    Advance,
    AdvanceResult,
    Document,
    DocumentKind,
    WorkItem,
)
from tidemill.core.flow_graph import decode_graph
from tidemill.core.flow_progress import FINAL_FLOW_STATES
from tidemill.errors import StoreError
from tidemill.flows.advance import (
    UnknownTaskError,
    cancel_live_jobs,
    find_uncleared_stop,
    make_next_advance,
)
from tidemill.tasks.definition import TaskDefinition

MAX_FLOWS_PER_PASS = 100
MAX_CHANGES_PER_CALL = 2 * MAX_CHANGES_PER_DOCUMENT
"""The jobs created and job changes taken by one call: as many as a single flow may need."""

AdvanceListener = Callable[[Document, Document], object]
"""Called with the document of a flow before and after an advance."""

ExtraJobs = Callable[[Document, Advance], Awaitable[Advance]]
"""Adds jobs to the advance of a flow, such as its webhook deliveries."""

PendingAdvance = tuple[Document, Advance]
"""A flow as it was read, and the advance to send."""


class FlowPassResult(msgspec.Struct):
    """The result of one pass over the worklist.

    - `advanced`: how many flows were advanced.
    - `unknown_tasks`: by flow, its next task that this worker does not know.
    - `broken`: by flow, the error that its advance raised.
    - `more`: True if work remains or another worker was faster.
    - `next_due`: seconds until the timeout of the next flow; None if no flow has one.
    """

    advanced: int = 0
    unknown_tasks: dict[str, str] = {}
    broken: dict[str, Exception] = {}
    more: bool = False
    next_due: float | None = None


class UnconfirmedAdvances:
    """Remembers the flows that this worker tried to end, until the store confirms it. Keep the object from
    pass to pass.

    `by` is the unique name of the worker. After a lost reply, the worker recognises its own advance by this
    name. With `by=''` nothing is remembered.
    """

    def __init__(self, by: str = "") -> None:
        self._by = by
        self._sent: dict[str, Document] = {}

    @property
    def flows(self) -> list[str]:
        return list(self._sent)

    @property
    def documents(self) -> list[Document]:
        """The documents of the remembered flows, as they were before the unconfirmed advance."""
        return list(self._sent.values())

    def signature(self, before: Document) -> str:
        return f"{self._by} {before.revision}" if self._by else ""

    def add(self, before: Document) -> None:
        if self._by:
            self._sent[before.id] = before

    def remove(self, flow: str) -> Document | None:
        return self._sent.pop(flow, None)

    def is_ours(self, before: Document, after: Document | None) -> bool:
        """True if the flow was ended by this worker, with the advance that was based on `before`. `after` is
        the flow's current document; None if it does not exist."""
        return after is not None and decode_graph(after.record).ended_by == self.signature(before)


def _ignore_advance(before: Document, after: Document) -> None:
    """The default listener of advances; it does nothing."""


class AdvancePass:
    """Advances flows in one pass over the worklist.

    - `listener`: called after each advance with the old and the new document.
    - `extra_jobs`: returns jobs to create together with an advance, such as webhook deliveries.
    - `unconfirmed`: flows that a pass tried to end without getting the store's reply.
    """

    def __init__(
        self,
        store: Store,
        tasks: Mapping[str, TaskDefinition],
        *,
        unconfirmed: UnconfirmedAdvances | None = None,
        extra_jobs: ExtraJobs | None = None,
        listener: AdvanceListener = _ignore_advance,
    ) -> None:
        self._store, self._tasks = store, tasks
        self._unconfirmed = UnconfirmedAdvances() if unconfirmed is None else unconfirmed
        self._extra_jobs, self._listener = extra_jobs, listener
        self._result = FlowPassResult()

    async def run(
        self,
        ids: Sequence[str] | None = None,
        *,
        limit: int = MAX_FLOWS_PER_PASS,
        abandoned: Collection[str] = (),
    ) -> FlowPassResult:
        """Advances up to `limit` flows of the worklist; if `ids` is given, only flows with these ids. An
        error in one flow does not stop the others. `abandoned`: flows for which jobs of unknown tasks are
        created as failed."""
        items = await self._load(ids, limit)
        pending: list[PendingAdvance] = []
        for item in items:
            decided = await self._decide(item, fail_unknown_tasks=item.document.id in abandoned)
            if decided is None:
                continue
            if _count_changes(*pending, decided) > MAX_CHANGES_PER_CALL:
                await self._send(pending)
                pending = []
            pending.append(decided)
        await self._send(pending)
        self._result.more |= len(items) == limit and self._result.advanced > 0
        return self._result

    async def resolve_unconfirmed(self) -> None:
        """Reads the flows whose advance was not answered. Calls the listener for each flow that this worker's
        advance has ended. A flow that is unchanged stays unconfirmed."""
        sent = self._unconfirmed.documents
        found = await self._store.documents(DocumentKind.FLOW, [before.id for before in sent]) if sent else ()
        for before, after in zip(sent, found, strict=True):
            if after is None or after.revision != before.revision:
                self._unconfirmed.remove(before.id)
            if after is not None and self._unconfirmed.is_ours(before, after):
                self._listener(before, after)

    async def _load(self, ids: Sequence[str] | None, limit: int) -> Sequence[WorkItem]:
        await self.resolve_unconfirmed()
        worklist = await self._store.worklist(DocumentKind.FLOW, limit, ids)
        self._result.next_due = worklist.next_due
        return worklist.work_items

    async def _decide(self, item: WorkItem, *, fail_unknown_tasks: bool) -> PendingAdvance | None:
        flow = item.document.id
        try:
            item = await self._cancel_stopped(item)
            advance = await make_next_advance(
                self._store,
                self._tasks,
                item,
                signature=self._unconfirmed.signature(item.document),
                fail_unknown_tasks=fail_unknown_tasks,
            )
        except UnknownTaskError as error:
            self._result.unknown_tasks[flow] = str(error)
            return None
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - one broken flow must not stop the others
            self._result.broken[flow] = error
            return None
        if advance is not None and self._extra_jobs is not None:
            advance = await self._extra_jobs(item.document, advance)
        return None if advance is None else (item.document, advance)

    async def _cancel_stopped(self, item: WorkItem) -> WorkItem:
        """Cancels the live jobs of a flow that was cancelled or timed out. Returns the work item with the new
        job changes. Returns `item` if the flow was not stopped, or another process changed it."""
        stopped = find_uncleared_stop(item.document)
        if stopped is None or not await cancel_live_jobs(self._store, item.document, stopped.reason):
            return item
        worklist = await self._store.worklist(DocumentKind.FLOW, 1, [item.document.id])
        # The item keeps its revision, so the store refuses the advance if the flow has changed since.
        return replace(item, changes=worklist.work_items[0].changes) if worklist.work_items else item

    async def _send(self, pending: Sequence[PendingAdvance]) -> None:
        if not pending:
            return
        for before, advance in pending:
            state = before.state if advance.next is None else advance.next.state
            if state in FINAL_FLOW_STATES and state != before.state:
                self._unconfirmed.add(before)
        replies = await self._store.advance([advance for _, advance in pending])
        for (before, advance), reply in zip(pending, replies, strict=True):
            self._confirm(before, advance, reply)

    def _confirm(self, before: Document, advance: Advance, reply: AdvanceResult) -> None:
        """Handles the store's reply to an advance. If the advance was applied, counts it and calls the
        listener. This includes an advance that was applied earlier and whose reply was lost."""
        taken_all = len(advance.taken) < MAX_CHANGES_PER_DOCUMENT
        self._result.more |= advance.requeue or not reply.done or not taken_all
        sent = self._unconfirmed.remove(before.id)
        done = reply.done or (sent is not None and self._unconfirmed.is_ours(sent, reply.document))
        if done and reply.document is not None:
            self._result.advanced += 1
            self._listener(before, reply.document)


async def advance_flows(
    store: Store,
    tasks: Mapping[str, TaskDefinition],
    ids: Sequence[str] | None = None,
    *,
    listener: AdvanceListener = _ignore_advance,
) -> FlowPassResult:
    """Advances the flows in `ids`, or all flows of the worklist, in one pass. For callers outside of a
    worker."""
    return await AdvancePass(store, tasks, listener=listener).run(ids)


def _count_changes(*pending: PendingAdvance) -> int:
    return sum(len(advance.jobs) + len(advance.taken) for _, advance in pending)
