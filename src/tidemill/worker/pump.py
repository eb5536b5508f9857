"""The one conversation with the store: settle what ended, claim what comes next, in one trip.

One trip is in flight at a time. What ends meanwhile goes with the next one, so batches grow
with the load by themselves and a lone outcome leaves at once. Where jobs are so short that they
are claimed ahead, many outcomes go apart from the next claim: the store settles them while the
worker takes in what it was given, and neither waits for the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tidemill.contract.store import Store
from tidemill.contract.wakeups import queue_topic
from tidemill.core.claims import ClaimRequest, Claims
from tidemill.worker.attempt import Attempt
from tidemill.worker.bell import Bell
from tidemill.worker.hands import Hands
from tidemill.worker.options import WorkerOptions
from tidemill.worker.pace import Pace
from tidemill.worker.producer import Producer
from tidemill.worker.settler import Settler

STALL = 0.25
"""When no job claimed ahead started for this long, all of them go back to the others."""

MANY = 64
"""Outcomes that are worth a trip of their own ..."""
UNTOLD_AT_MOST = 1000
"""... and how many may gather behind one before nothing more is claimed."""

_NOT_BEFORE = 0.001
_LEFTOVERS = 0.02


class Pump:
    """`adopt` takes claimed jobs into hand, with the earliest time at which the store took their units (by
    the event loop's clock) and the time of the request (by the boot clock). `stalled` hands back
    what was claimed ahead. `also` are queues that may be served besides those of the options: they are
    listened to from the start."""

    def __init__(
        self,
        store: Store,
        options: WorkerOptions,
        hands: Hands,
        *,
        pace: Pace,
        producer: Producer,
        settler: Settler,
        boot: Callable[[], float],
        adopt: Callable[[Claims, float, float], None],
        stalled: Callable[[], None],
        also: Sequence[str] = (),
    ) -> None:
        self._store, self._options = store, options
        self._hands, self._pace = hands, pace
        self._producer, self._settler = producer, settler
        self._boot, self._adopt, self._stalled = boot, adopt, stalled
        self._loop = asyncio.get_running_loop()
        self._topics = [queue_topic(queue) for queue in dict.fromkeys((*options.queues, *also))]
        self.bell = Bell(store.listen(self._topics), self.look)
        self.resting: asyncio.Future[None] | None = None
        self._looking = True
        self._arming = False
        self._claiming = True
        self._idle = False
        self._settling: asyncio.Task[None] | None = None
        self._stall: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        if self.resting is not None and not self.resting.done():
            self.resting.set_result(None)

    def look(self) -> None:
        """There may be work: ask for it when there is room."""
        self._looking = True
        self._idle = False
        self.wake()

    def stop_claiming(self) -> None:
        self._claiming = False
        self.bell.disarm()
        self._store.ring(self._topics)  # a ring meant for this worker is passed on
        self.wake()

    async def run(self) -> None:
        """Ends when nothing is held and nothing more will be asked for."""
        try:
            while not self._over:
                if self._settling is not None and self._settling.done():
                    self._settling.result()  # an error: else it would be gone
                if not self._has_reason:
                    await self._rest()
                else:
                    await self._trip()
                    # Jobs started by this trip may end within the next turn of the loop: their
                    # outcomes share the next trip.
                    await asyncio.sleep(0)
        finally:
            if self._stall is not None:
                self._stall.cancel()
            if self._settling is not None:
                self._settling.cancel()
                await asyncio.gather(self._settling, return_exceptions=True)

    @property
    def _over(self) -> bool:
        done = self._idle and self._options.until_idle
        return (done or not self._claiming) and not self._hands.held and self._settling is None

    @property
    def _has_reason(self) -> bool:
        return bool(self._hands.outcomes and self._settling is None) or self._wants_work

    @property
    def _wants_work(self) -> bool:
        if self._settling is not None and len(self._hands.outcomes) >= UNTOLD_AT_MOST:
            return False
        return self._looking and self._claiming and self._producer.room > 0

    async def _rest(self) -> None:
        self.resting = self._loop.create_future()
        try:
            await self.resting
        finally:
            self.resting = None

    async def _trip(self) -> None:
        request = self._producer.request() if self._wants_work else None
        batch = self._outcomes(apart=request is not None)
        alone = len(self._hands.held) == len(batch)
        self._idle = False
        if self._arming and request is not None:
            self._arming = False
            self.bell.arm()
        began, began_boot = self._loop.time(), self._boot()
        settled, sent = await self._settler.deliver(self._store, batch, request)
        self._pace.trip_took(self._loop.time() - began)
        if request is not None:
            claims = settled.claims or Claims(jobs=[])
            self._adopt(claims, self._taken_at(claims, began, sent), began_boot)
            self._received(request, claims, alone=alone)
        else:
            self._told()

    def _taken_at(self, claims: Claims, began: float, sent: float) -> float:
        """The earliest time at which the store took the units. A repeated claim says no `waited` (P20): any
        of the requests may have claimed, so the units are as old as the first. Otherwise the last request
        claimed, and the units are younger by what the store waited before it took them."""
        if claims.waited is None:
            return began
        return sent + min(claims.waited, self._loop.time() - sent)

    def _outcomes(self, *, apart: bool) -> list[Attempt]:
        """What goes with the trip. They leave later while others are being settled, and at once, on their
        own, if there are many and jobs are claimed `apart` from them."""
        if self._settling is not None:
            return []
        batch, self._hands.outcomes = self._hands.outcomes, []
        if apart and len(batch) >= MANY and self._producer.is_ahead:
            self._settling = self._loop.create_task(self._settle(batch))
            return []
        return batch

    async def _settle(self, batch: list[Attempt]) -> None:
        try:
            await self._settler.deliver(self._store, batch, None)
            self._settling = None
            self._told()
        finally:
            self.wake()

    def _told(self) -> None:
        if not self._hands.held and self._options.until_idle:
            self._looking = True

    def _received(self, request: ClaimRequest, claims: Claims, *, alone: bool) -> None:
        self._hands.received = request.number
        got = self._producer.served(claims.jobs)
        if got:
            self.bell.found_work()
            self._watch_for_a_stall()
        if got >= request.limit or (got and claims.more):
            self.bell.disarm()
            if claims.more and self._producer.room <= 0:
                self._store.ring(self._topics)  # whoever leaves work behind wakes the next
        elif not self.bell.armed:
            self._arming = True  # before the next look: a ring before this was for nobody
        elif not got:
            self._looking = False
            self._idle = alone and not claims.more and not claims.lingers
            patience = self._patience(claims)
            self.bell.park(patience, is_poll=patience >= self._options.poll)
            if not alone:  # what was settled meanwhile may have made jobs that this claim came too early for
                self._told()

    def _patience(self, claims: Claims) -> float:
        due = self._options.poll if claims.next_due is None else max(claims.next_due, _NOT_BEFORE)
        return min(self._options.poll, due, _LEFTOVERS if claims.more else self._options.poll)

    def _watch_for_a_stall(self) -> None:
        if self._hands.ahead and self._stall is None:
            due = self._loop.time() + STALL
            self._stall = self._loop.call_at(due, self._check, self._hands.ahead[0], due)

    def _check(self, first: object, due: float) -> None:
        """Short jobs were expected and long ones came: others may be free to run the rest. When this
        look itself comes late, the whole loop stood still and nothing follows from it."""
        self._stall = None
        late = self._loop.time() - due > STALL / 2
        if self._hands.ahead and self._hands.ahead[0] is first and not late:
            self._pace.stalled()
            self._stalled()
        self._watch_for_a_stall()
