"""Waits of attempts for the results of other jobs.

An async attempt that waits lends its slot, so that the job it waits for can run here. It resumes at once
when the result is there: then more attempts than `concurrency` run, and never more than twice as many.
See ADR 0061.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tidemill.core.waits import WaitTarget, note_of
from tidemill.errors import WaitRefused
from tidemill.telemetry.current import CURRENT
from tidemill.worker.attempt import Attempt
from tidemill.worker.call import Call
from tidemill.worker.deadlock import DeadlockSearch
from tidemill.worker.hands import Hands

if TYPE_CHECKING:
    from tidemill.contract.store import Store

NOTES_ARE_OLD_AFTER = 1.0
"""Seconds. Other workers write notes every half a second: what was seen twice in this time is so."""
USE_A_FLOW = "let a flow run one job after the other: docs/how-to/flows.md"


class SlotLender:
    """The open waits of one worker's attempts. `on_room` is called when a slot comes free."""

    def __init__(self, hands: Hands, *, concurrency: int, on_room: Callable[[], None]) -> None:
        self._hands, self._concurrency, self._on_room = hands, concurrency, on_room
        self._loop = asyncio.get_running_loop()
        self._noted: dict[Attempt, str] = {}
        self.open: dict[Attempt, list[WaitTarget]] = {}

    async def begin(self, target: WaitTarget) -> LentSlot | None:
        attempt = self._current()
        if attempt is None:
            return None
        if asyncio.get_running_loop() is not self._loop:
            raise refused(attempt.job.id, target, "a thread")
        return self.lend(attempt, target)

    def lend(self, attempt: Attempt, target: WaitTarget) -> LentSlot | None:
        """An attempt has one slot, however many waits it has open."""
        if attempt.stop is not None:
            return None
        if attempt not in self.open:
            if len(self.open) >= self._concurrency:
                raise WaitRefused(
                    f"job {attempt.job.id} cannot wait for {target} now: as many attempts of this worker "
                    f"wait for other jobs as its concurrency allows ({self._concurrency}); {USE_A_FLOW}",
                    lasting=False,
                )
            self.open[attempt] = []
            self._hands.running -= 1
            self._on_room()
        self.open[attempt].append(target)
        return LentSlot(
            attempt.job.id,
            target,
            by_job=self.by_job,
            note=partial(self.note, attempt),
            end=partial(self._end, attempt, target),
        )

    def _end(self, attempt: Attempt, target: WaitTarget) -> None:
        targets = self.open.get(attempt)
        if targets is None or target not in targets:
            return  # the attempt ended before its wait
        targets.remove(target)
        if not targets:
            is_noted = attempt in self._noted
            self.attempt_ended(attempt)
            if is_noted:
                _show(attempt, None)

    def attempt_ended(self, attempt: Attempt) -> None:
        """It has its slot again, also when all others are taken."""
        if self.open.pop(attempt, None) is not None:
            self._noted.pop(attempt, None)
            self._hands.running += 1

    def note(self, attempt: Attempt) -> None:
        """Tell the store what the attempt waits for, if that has changed."""
        targets = self.open.get(attempt)
        if targets and self._noted.get(attempt) != (note := note_of(list(dict.fromkeys(targets)))):
            self._noted[attempt] = note
            _show(attempt, note)

    def by_job(self) -> dict[str, Sequence[WaitTarget]]:
        return {
            member.job.id: tuple(targets)
            for attempt, targets in self.open.items()
            for member in _members(attempt)
        }

    def _current(self) -> Attempt | None:
        """The attempt of the running code, unless it has ended: a task that it left behind is no attempt."""
        claimed = CURRENT.get()
        attempt = None if claimed is None else self._hands.held.get(claimed.id)
        if claimed is None or attempt is None or not self._hands.knows(claimed):
            return None
        attempt = attempt.call or attempt
        return None if attempt.outcome is not None or attempt.ended else attempt


class LentSlot:
    """One wait of an attempt whose slot is lent. `by_job` are the waits that are known here, `note` tells the
    store of this one, `end` gives the slot back."""

    def __init__(
        self,
        job: str,
        target: WaitTarget,
        *,
        by_job: Callable[[], Mapping[str, Sequence[WaitTarget]]],
        note: Callable[[], None],
        end: Callable[[], None],
    ) -> None:
        self._job, self.target = job, target
        self._by_job, self._note, self.end = by_job, note, end
        self._checks = 0
        self._suspected: float | None = None

    async def check(self, store: Store) -> None:
        """Most waits are over before the second check, and are not told to the store."""
        if self._checks:
            self._note()
        self._checks += 1
        found = await DeadlockSearch(store, self._by_job()).find(self._job)
        now = asyncio.get_running_loop().time()
        if found is None:
            self._suspected = None
        elif not found.by_notes:
            raise never_ends(self._job, self.target, found.reason)
        elif self._suspected is None:
            self._suspected = now
        elif now - self._suspected >= NOTES_ARE_OLD_AFTER:
            raise never_ends(self._job, self.target, found.reason)


def refused(job: str, target: WaitTarget, where: str) -> WaitRefused:
    return WaitRefused(
        f"job {job} cannot wait for {target} in {where}: the wait would keep a slot that {target} may need; "
        f"wait in an async handler, or {USE_A_FLOW}"
    )


def never_ends(job: str, target: WaitTarget, reason: str) -> WaitRefused:
    return WaitRefused(
        f"job {job} waits for {target}, which cannot end before job {job} does: {reason}; {USE_A_FLOW}"
    )


def _members(attempt: Attempt) -> Sequence[Attempt]:
    return attempt.runs if isinstance(attempt, Call) else (attempt,)


def _show(attempt: Attempt, note: str | None) -> None:
    for member in _members(attempt):
        member.show_wait(note)
