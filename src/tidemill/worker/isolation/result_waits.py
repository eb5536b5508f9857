"""Handlers in child processes that wait for other jobs (I8).

During the wait, the worker lets another job use the slot of the attempt. A task with `isolate=True` may not
wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from tidemill.core.claims import ClaimedJob
from tidemill.core.result_waits import WaitTarget
from tidemill.errors import WaitRefused
from tidemill.tasks.context import ATTEMPT_WAITS
from tidemill.telemetry.current_attempt import CURRENT_ATTEMPT
from tidemill.worker.attempt import Attempt
from tidemill.worker.isolation.child_reporter import WorkerPipe
from tidemill.worker.isolation.messages import WaitEndReport, WaitReply, WaitRequest
from tidemill.worker.result_waits import SlotLender, SlotLoan, wait_refused


class ProcessWaits:
    """Keeps, in the worker, the waits of one attempt whose handler runs in a child process.

    `on_lent`: is called with True when the first wait begins, and with False when the last wait has ended."""

    def __init__(self, attempt: Attempt, on_lent: Callable[[bool], None]) -> None:
        self._attempt, self._on_lent = attempt, on_lent
        lender = ATTEMPT_WAITS.get()
        self._lender = lender if isinstance(lender, SlotLender) else None
        self._open: list[SlotLoan] = []

    async def begin(self, target: WaitTarget) -> WaitReply:
        definition, lender = self._attempt.definition, self._lender
        try:
            if definition is None or definition.isolate or lender is None:
                raise wait_refused(self._attempt.job.id, target, "a process of its own")
            slot = lender.lend(self._attempt, target)
        except WaitRefused as error:
            return WaitReply(str(error), lasting=error.lasting)
        if slot is not None:
            self._open.append(slot)
            lender.note(self._attempt)
            if len(self._open) == 1:
                self._on_lent(True)
        return WaitReply()

    def end(self, target: WaitTarget) -> None:
        slot = next((slot for slot in self._open if slot.target == target), None)
        if slot is not None:
            self._open.remove(slot)
            slot.end()
            if not self._open:
                self._on_lent(False)

    def close(self) -> None:
        """Ends all waits of the attempt. They may still be open if the process died during a wait."""
        for slot in list(self._open):
            self.end(slot.target)


class ChildWaits:
    """Asks the worker for permission before a handler in this child process waits for another job. `jobs` are
    the jobs that the handler runs now."""

    def __init__(self, pipe: WorkerPipe) -> None:
        self._pipe, self._loop = pipe, asyncio.get_running_loop()
        self._targets: list[WaitTarget] = []
        self.jobs: tuple[ClaimedJob, ...] = ()

    async def begin(self, target: WaitTarget) -> SlotLoan | None:
        current = CURRENT_ATTEMPT.get()
        if current is None or (current.id, current.fence) not in {(job.id, job.fence) for job in self.jobs}:
            return None
        if asyncio.get_running_loop() is not self._loop:
            raise wait_refused(current.id, target, "a thread")
        answer = await asyncio.wrap_future(self._pipe.ask(WaitRequest(target)))
        if isinstance(answer, WaitReply) and answer.problem is not None:
            raise WaitRefused(answer.problem, lasting=answer.lasting)
        self._targets.append(target)
        return SlotLoan(
            current.id, target, by_job=self._by_job, note=lambda: None, end=partial(self._end, target)
        )

    def _by_job(self) -> dict[str, Sequence[WaitTarget]]:
        return dict.fromkeys((job.id for job in self.jobs), tuple(self._targets))

    def _end(self, target: WaitTarget) -> None:
        self._targets.remove(target)
        self._pipe.send(WaitEndReport(target))
