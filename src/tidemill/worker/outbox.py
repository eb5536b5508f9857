"""The outbox: holds outcomes until the dispatcher sends them to the store. The last report of an attempt
(progress, log lines) is sent first."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from tidemill.worker.attempt import Attempt


class DispatchSignal:
    """Wakes the dispatcher. `claim_requested` is True if the dispatcher should claim jobs."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.waiter: asyncio.Future[None] | None = None
        self.claim_requested = True

    def set(self) -> None:
        """Wakes the dispatcher if it is waiting. A call while it is not waiting has no effect."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def request_claim(self) -> None:
        """Requests a claim as soon as a slot is free, because jobs may be ready. Wakes the dispatcher."""
        self.claim_requested = True
        self.set()

    async def wait(self) -> None:
        """Waits until `set` is called. Calls of `set` before the wait do not count."""
        self.waiter = self._loop.create_future()
        try:
            await self.waiter
        finally:
            self.waiter = None


class ReportBuffer:
    """Tells the heartbeat about new reports (progress and log lines). It also holds ended attempts until
    their last report is sent.

    `has_new`: True if there are reports for the next heartbeat. Any thread may call `notify`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wakeup: asyncio.Event | None = None
        self._final: deque[Attempt] = deque()
        self.has_new = False

    @property
    def has_final(self) -> bool:
        """True if an ended attempt waits until its last report is sent."""
        return bool(self._final)

    def notify(self) -> None:
        """Requests a heartbeat, because there is a new report. Any thread may call it."""
        if not self.has_new:
            self.has_new = True
            self._wake()

    def hold(self, attempt: Attempt) -> bool:
        """Holds an ended attempt until its last report is sent, and returns True. Returns False if the
        attempt has no unsent report."""
        if not attempt.has_report:
            return False
        self._final.append(attempt)
        self._wake()
        return True

    def take_final(self) -> list[Attempt]:
        """Returns the held attempts and removes them from the buffer."""
        taken = []
        while self._final:
            taken.append(self._final.popleft())
        return taken

    def attach(self, loop: asyncio.AbstractEventLoop, wakeup: asyncio.Event) -> None:
        """Connects the buffer to the heartbeat. From now on a new report sets `wakeup` on the event loop
        `loop`."""
        self._loop, self._wakeup = loop, wakeup

    def detach(self) -> None:
        """Disconnects the heartbeat. New reports no longer wake its event loop."""
        self._loop = None

    def _wake(self) -> None:
        loop, wakeup = self._loop, self._wakeup
        if loop is not None and wakeup is not None:
            try:
                loop.call_soon_threadsafe(wakeup.set)
            except RuntimeError:  # the loop has just been closed: the worker is stopping
                return


class Outbox:
    """The ended attempts whose outcomes the dispatcher has not sent to the store yet."""

    def __init__(self, reports: ReportBuffer, signal: DispatchSignal) -> None:
        self._reports, self._signal = reports, signal
        self._attempts: list[Attempt] = []

    def __len__(self) -> int:
        return len(self._attempts)

    def put(self, attempt: Attempt) -> None:
        """Adds an ended attempt and wakes the dispatcher. An attempt with an unsent report is held until the
        heartbeat has sent it."""
        if (attempt.report is not None or attempt.is_batch) and self._reports.hold(attempt):
            return
        if attempt.is_batch:
            self._attempts.extend(attempt.to_settle())
        else:
            self._attempts.append(attempt)
        if self._signal.waiter is not None:
            self._signal.set()

    def put_unstarted(self, attempt: Attempt) -> None:
        """Adds an attempt that was never started. It does not wake the dispatcher; the caller does."""
        self._attempts.extend(attempt.to_settle())

    def put_reported(self, attempts: Iterable[Attempt]) -> None:
        """Adds attempts whose last report was sent, or could not be sent, and wakes the dispatcher."""
        for attempt in attempts:
            self._attempts.extend(attempt.to_settle())
        self._signal.set()

    def take(self) -> list[Attempt]:
        """Returns all attempts and empties the outbox."""
        taken, self._attempts = self._attempts, []
        return taken
