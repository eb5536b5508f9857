"""Delivers outcomes: as often as it takes, and never twice with effect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tidemill.contract.store import Store
from tidemill.core.claims import ClaimRequest, Settled, Settlement
from tidemill.core.outcomes import Answer, Done
from tidemill.errors import StoreError
from tidemill.telemetry.events import StoreBack, StoreLost
from tidemill.worker.attempt import Attempt, Stop
from tidemill.worker.emitter import Emitter, described
from tidemill.worker.endings import Endings
from tidemill.worker.hands import Hands
from tidemill.worker.pool_telling import tell
from tidemill.worker.stats import Stats
from tidemill.worker.times import Times

FIRST_WAIT = 0.05
LONGEST_WAIT = 5.0


class Settler:
    """`on_flow` is told the flow of every job that was settled."""

    def __init__(
        self, hands: Hands, stats: Stats, emitter: Emitter, times: Times, on_flow: Callable[[str], None]
    ) -> None:
        self._hands, self._stats, self._emitter = hands, stats, emitter
        self._times, self._on_flow = times, on_flow
        self._endings = Endings(stats, emitter, times.missed)
        self._loop = asyncio.get_running_loop()
        self._failing, self._lost_at = 0, 0.0

    async def deliver(
        self, store: Store, batch: Sequence[Attempt], request: ClaimRequest | None
    ) -> tuple[Settled, float]:
        """After an error the same settlements and the same claim number are sent again: what got
        through the first time is answered `again`, and the same jobs are returned. The second is the time
        of the loop when the call began that was answered."""
        settlements = [
            Settlement(a.job.id, a.job.fence, a.job.claim, a.outcome)
            if a.spending is None and a.charged is None
            else a.settlement(a.outcome)
            for a in batch
            if a.outcome is not None
        ]
        settled, sent = await self._insist(store, settlements, request)
        self._stats.trips += 1
        self._answered(batch, settled.answers)
        tell(self._emitter, settled.news)
        if settled.claims is not None:
            tell(self._emitter, settled.claims.news)
        if self._endings.crashed:
            await self._endings.ask_about_crashes(store)
        return settled, sent

    async def _insist(
        self, store: Store, settlements: list[Settlement], request: ClaimRequest | None
    ) -> tuple[Settled, float]:
        wait, is_lost = FIRST_WAIT, False
        try:
            while True:
                sent = self._loop.time()
                try:
                    settled = await store.settle(settlements, request)
                except StoreError as error:
                    if not is_lost:
                        is_lost = True
                        self._lost(error)
                    await asyncio.sleep(wait)
                    wait = min(2 * wait, LONGEST_WAIT)
                else:
                    if is_lost and self._failing == 1:
                        self._emitter.worker_event(StoreBack, seconds=self._loop.time() - self._lost_at)
                    return settled, sent
        finally:
            self._failing -= is_lost

    def _lost(self, error: StoreError) -> None:
        """Told once, however many trips meet it, and over when the last of them got through."""
        self._failing += 1
        if self._failing > 1:
            return
        self._lost_at = self._loop.time()
        self._stats.outages += 1
        # Not only those of this trip: others may be under way, or gather behind it.
        untold = sum(attempt.outcome is not None for attempt in self._hands.held.values())
        self._emitter.worker_event(StoreLost, outcomes=untold, **described(error))

    def _answered(self, batch: Sequence[Attempt], answers: Sequence[Answer]) -> None:
        held, stats, endings = self._hands.held, self._stats, self._endings
        tell_done, ran = endings.wants_done, []
        for attempt, answer in zip(batch, answers, strict=True):
            if held.get(attempt.job.id) is attempt:
                del held[attempt.job.id]
            if attempt.spending is not None:
                endings.tell_problems(attempt)
            if attempt.stop is Stop.LOST:
                continue  # only what it used was told; it has been counted
            if answer is Answer.CHARGED:
                attempt.outcome = attempt.charged
            if attempt.job.flow is not None:
                self._on_flow(attempt.job.flow.id)
            if answer is Answer.STALE or answer is Answer.GONE:
                endings.refused(attempt, answer)
            elif type(attempt.outcome) is Done:
                stats.done += 1
                ran.append(attempt)
                if tell_done:
                    endings.done(attempt)
            else:
                endings.count(attempt)
                ran += endings.ran(attempt)
        self._times.note(ran)
