"""The worker's main loop: settles outcomes, claims jobs, and waits for a wake-up when idle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tidemill.contract.coordination import WakeupListener, queue_topic
from tidemill.contract.store import Store
from tidemill.core.claims import ClaimRequest, ClaimResult
from tidemill.worker.attempt import Attempt
from tidemill.worker.attempt_starter import AttemptStarter
from tidemill.worker.claim_planner import ClaimAhead, ClaimPlanner
from tidemill.worker.executor import Executor
from tidemill.worker.in_flight import InFlight, Slots
from tidemill.worker.options import REARM_SECONDS, WorkerOptions
from tidemill.worker.outbox import DispatchSignal, Outbox
from tidemill.worker.settler import Settler


class IdleWait:
    """Waits for a wake-up while the worker is idle. `park` starts one wait. After the wait, the dispatcher
    claims jobs."""

    def __init__(self, listener: WakeupListener, signal: DispatchSignal) -> None:
        self._listener, self._signal = listener, signal
        self._parked = asyncio.Event()
        self._timeout = 0.0
        self._loop = asyncio.get_running_loop()
        self._armed_at = 0.0
        self._listening = False
        self._is_poll = False
        self._polled = False
        self.armed = False

    def arm(self) -> None:
        self._armed_at = self._loop.time()
        self._listener.arm()
        self.armed = self._listening = True

    def disarm(self) -> None:
        self.armed = False
        if self._listening:
            self._listener.disarm()
            self._listening = False

    def park(self, seconds: float, *, is_poll: bool) -> None:
        """Starts a wait of at most `seconds`. `is_poll=True` means that no job is expected at the end of the
        wait."""
        self._timeout, self._is_poll, self._polled = seconds, is_poll, False
        self._parked.set()

    def found_work(self) -> None:
        """Records that a claim returned jobs. If no wake-up announced them, the listener registers again
        before the next claim."""
        if self._polled:
            self._polled = self.armed = False  # the wake-up was lost: perhaps the store forgot the listener

    async def run(self) -> None:
        try:
            while True:
                await self._parked.wait()
                self._parked.clear()
                woken = await self._listener.wait(self._timeout)
                # A woken listener is disarmed later: there is work to fetch, and the claim after the next
                # arming finds jobs of later wake-ups. A listener whose time is over stays armed: a claim
                # that finds nothing may park it again.
                self.armed = not woken and self._loop.time() - self._armed_at < REARM_SECONDS
                self._polled = not woken and self._is_poll
                self._signal.request_claim()
        finally:
            self.disarm()
            self._listener.close()


STALL_SECONDS = 0.25
"""Jobs that wait in the worker for a slot are released when none of them started for this long."""

MIN_SEPARATE_OUTCOMES = 64
"""Outcomes that are worth a separate settle request."""
MAX_UNSETTLED_OUTCOMES = 1000
"""Outcomes that may wait behind a separate settle request before claiming stops."""

_MIN_IDLE_SECONDS = 0.001
_BACKLOG_RETRY_SECONDS = 0.02


class Dispatcher:
    """The main loop of a worker. It settles outcomes and claims jobs in one request to the store.

    `extra_queues`: queues from which the worker may claim later. It listens to their wake-ups from the
    start."""

    def __init__(
        self,
        store: Store,
        options: WorkerOptions,
        in_flight: InFlight,
        *,
        slots: Slots,
        outbox: Outbox,
        signal: DispatchSignal,
        claim_ahead: ClaimAhead,
        planner: ClaimPlanner,
        settler: Settler,
        attempt_starter: AttemptStarter,
        executor: Executor,
        boot: Callable[[], float],
        extra_queues: Sequence[str] = (),
    ) -> None:
        self._store, self._options = store, options
        self._in_flight, self._slots, self._outbox, self._signal = in_flight, slots, outbox, signal
        self._claim_ahead, self._planner, self._settler = claim_ahead, planner, settler
        self._attempt_starter, self._executor, self._boot = attempt_starter, executor, boot
        self._loop = asyncio.get_running_loop()
        self._topics = [queue_topic(queue) for queue in dict.fromkeys((*options.queues, *extra_queues))]
        self.idle_wait = IdleWait(store.listen(self._topics), signal)
        self._arming = False
        self._claiming = True
        self._idle = False
        self._settling: asyncio.Task[None] | None = None
        self._stall: asyncio.TimerHandle | None = None

    def stop_claiming(self) -> None:
        self._claiming = False
        self.idle_wait.disarm()
        self._store.wake(self._topics)  # passes on wake-ups meant for this worker
        self._signal.set()

    async def run(self) -> None:
        """Runs until the worker holds no jobs and will not claim any more. With the option `until_idle` this
        is so when no job is left to claim."""
        try:
            while not self._is_over:
                if self._settling is not None and self._settling.done():
                    self._settling.result()  # raises its error, which would be lost otherwise
                if not self._has_work:
                    await self._signal.wait()
                else:
                    await self._round_trip()
                    # Jobs started by this request may end within the next turn of the loop; their outcomes
                    # then share the next request.
                    await asyncio.sleep(0)
        finally:
            if self._stall is not None:
                self._stall.cancel()
            if self._settling is not None:
                self._settling.cancel()
                await asyncio.gather(self._settling, return_exceptions=True)

    @property
    def _is_over(self) -> bool:
        done = self._idle and self._options.until_idle and not self._signal.claim_requested
        return (done or not self._claiming) and not self._in_flight.held and self._settling is None

    @property
    def _has_work(self) -> bool:
        return bool(self._outbox and self._settling is None) or self._wants_work

    @property
    def _wants_work(self) -> bool:
        if self._settling is not None and len(self._outbox) >= MAX_UNSETTLED_OUTCOMES:
            return False
        return self._signal.claim_requested and self._claiming and self._planner.room > 0

    async def _round_trip(self) -> None:
        request = self._planner.request() if self._wants_work else None
        batch = self._outcomes(apart=request is not None)
        alone = len(self._in_flight.held) == len(batch)
        self._idle = False
        if self._arming and request is not None:
            self._arming = False
            self.idle_wait.arm()
        began, began_boot = self._loop.time(), self._boot()
        settled, sent = await self._settler.deliver(self._store, batch, request)
        self._claim_ahead.add_round_trip(self._loop.time() - began)
        if request is not None:
            claims = settled.claims or ClaimResult(jobs=[])
            self._attempt_starter.accept(claims, self._taken_at(claims, began, sent), began_boot)
            self._received(request, claims, alone=alone)
        else:
            self._after_settle()

    def _taken_at(self, claims: ClaimResult, began: float, sent: float) -> float:
        """Returns the earliest event-loop time at which the store may have reserved the units of the claimed
        jobs (P20).

        A claim may have been sent several times: first at `began`, last at `sent`."""
        if claims.waited is None:
            return began
        return sent + min(claims.waited, self._loop.time() - sent)

    def _outcomes(self, *, apart: bool) -> list[Attempt]:
        """Removes the ended attempts from the outbox and returns them. The caller settles them in its next
        request.

        With `apart=True`, a separate request may settle many outcomes. The result is then empty."""
        if self._settling is not None:
            return []
        batch = self._outbox.take()
        if apart and len(batch) >= MIN_SEPARATE_OUTCOMES and self._planner.is_ahead:
            self._settling = self._loop.create_task(self._settle(batch))
            return []
        return batch

    async def _settle(self, batch: list[Attempt]) -> None:
        try:
            await self._settler.deliver(self._store, batch, None)
            self._settling = None
            self._after_settle()
        finally:
            self._signal.set()

    def _after_settle(self) -> None:
        if not self._in_flight.held and self._options.until_idle:
            self._signal.claim_requested = True

    def _received(self, request: ClaimRequest, claims: ClaimResult, *, alone: bool) -> None:
        self._in_flight.received = request.number
        got = self._planner.served(claims.jobs)
        if got:
            self.idle_wait.found_work()
            self._watch_for_stall()
        if got >= request.limit or (got and claims.more):
            self.idle_wait.disarm()
            if claims.more and self._planner.room <= 0:
                self._store.wake(self._topics)  # wakes another worker for the jobs left behind
        elif not self.idle_wait.armed:
            self._arming = True  # before the next claim: earlier wake-ups reached no listener
        elif not got:
            self._signal.claim_requested = False
            self._idle = alone and not claims.more and not claims.batch_waits
            seconds = self._wait_seconds(claims)
            self.idle_wait.park(seconds, is_poll=seconds >= self._options.poll)
            if not alone:  # outcomes settled meanwhile may have made jobs ready after this claim
                self._after_settle()

    def _wait_seconds(self, claims: ClaimResult) -> float:
        due = self._options.poll if claims.next_due is None else max(claims.next_due, _MIN_IDLE_SECONDS)
        return min(self._options.poll, due, _BACKLOG_RETRY_SECONDS if claims.more else self._options.poll)

    def _watch_for_stall(self) -> None:
        if self._slots.buffered and self._stall is None:
            due = self._loop.time() + STALL_SECONDS
            self._stall = self._loop.call_at(due, self._check_stall, self._slots.buffered[0], due)

    def _check_stall(self, first: object, due: float) -> None:
        """Releases the jobs that wait in this worker for a slot, if none has started since this check was
        planned.

        - `first`: the first waiting attempt when this check was planned.
        - `due`: the planned event-loop time of the check. If the check runs much later, it releases
          nothing."""
        self._stall = None
        late = self._loop.time() - due > STALL_SECONDS / 2  # the event loop was blocked
        if self._slots.buffered and self._slots.buffered[0] is first and not late:
            self._claim_ahead.stalled()
            self._executor.release_unstarted()
        self._watch_for_stall()
