"""Waits for other jobs of a handler in a child process: the child asks, and its worker lends the slot.

Only a job with a crash on record waits there: it must behave as in a worker (I8). A task with `isolate=True`
is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from tidemill.core.claims import Claimed
from tidemill.core.waits import WaitTarget
from tidemill.errors import WaitRefused
from tidemill.tasks.waits import ATTEMPT_WAITS
from tidemill.telemetry.current import CURRENT
from tidemill.worker.attempt import Attempt
from tidemill.worker.runners.child_reporter import WorkerPipe
from tidemill.worker.runners.messages import WaitAnswer, WaitBegin, WaitEnd
from tidemill.worker.waits import LentSlot, SlotLender, refused


class ProcessWaits:
    """The worker's side, for one run in a process. `on_lent` is told True when its place among the processes
    comes free as well, and False when the handler resumes: the awaited job may need a process."""

    def __init__(self, attempt: Attempt, on_lent: Callable[[bool], None]) -> None:
        self._attempt, self._on_lent = attempt, on_lent
        lender = ATTEMPT_WAITS.get()
        self._lender = lender if isinstance(lender, SlotLender) else None
        self._open: list[LentSlot] = []

    async def begin(self, target: WaitTarget) -> WaitAnswer:
        definition, lender = self._attempt.definition, self._lender
        try:
            if definition is None or definition.isolate or lender is None:
                raise refused(self._attempt.job.id, target, "a process of its own")
            slot = lender.lend(self._attempt, target)
        except WaitRefused as error:
            return WaitAnswer(str(error), lasting=error.lasting)
        if slot is not None:
            self._open.append(slot)
            lender.note(self._attempt)
            if len(self._open) == 1:
                self._on_lent(True)
        return WaitAnswer()

    def end(self, target: WaitTarget) -> None:
        slot = next((slot for slot in self._open if slot.target == target), None)
        if slot is not None:
            self._open.remove(slot)
            slot.end()
            if not self._open:
                self._on_lent(False)

    def close(self) -> None:
        """The run is over, also when the process died in the middle of a wait."""
        for slot in list(self._open):
            self.end(slot.target)


class ChildWaits:
    """The child's side. `jobs` are those of the handler that runs."""

    def __init__(self, pipe: WorkerPipe) -> None:
        self._pipe, self._loop = pipe, asyncio.get_running_loop()
        self._targets: list[WaitTarget] = []
        self.jobs: tuple[Claimed, ...] = ()

    async def begin(self, target: WaitTarget) -> LentSlot | None:
        current = CURRENT.get()
        if current is None or (current.id, current.fence) not in {(job.id, job.fence) for job in self.jobs}:
            return None
        if asyncio.get_running_loop() is not self._loop:
            raise refused(current.id, target, "a thread")
        answer = await asyncio.wrap_future(self._pipe.ask(WaitBegin(target)))
        if isinstance(answer, WaitAnswer) and answer.problem is not None:
            raise WaitRefused(answer.problem, lasting=answer.lasting)
        self._targets.append(target)
        return LentSlot(
            current.id, target, by_job=self._by_job, note=lambda: None, end=partial(self._end, target)
        )

    def _by_job(self) -> dict[str, Sequence[WaitTarget]]:
        return dict.fromkeys((job.id for job in self.jobs), tuple(self._targets))

    def _end(self, target: WaitTarget) -> None:
        self._targets.remove(target)
        self._pipe.send(WaitEnd(target))
