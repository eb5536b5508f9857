"""Sends outcomes to the store. During an outage it repeats the request; a repeated request has no second
effect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tidemill.contract.store import Store
from tidemill.core.claims import ClaimRequest, Settlement, SettleResult
from tidemill.core.outcomes import Snooze, Success, WriteAnswer
from tidemill.errors import StoreError
from tidemill.telemetry.events import StoreLost, StoreRecovered
from tidemill.worker.attempt import Attempt, CancelReason
from tidemill.worker.event_emitter import EventEmitter, OutcomeEvents, emit_pool_changes, error_fields
from tidemill.worker.flow_advancer import FlowAdvancer
from tidemill.worker.in_flight import InFlight
from tidemill.worker.metrics import AttemptMetrics, WorkerStats

FIRST_RETRY_SECONDS = 0.05
MAX_RETRY_SECONDS = 5.0


class Settler:
    """Sends outcomes and claim requests to the store.

    - `advancer`: gets the flow of every settled job, so that the flow can advance.
    - `on_dependency`: is called with each attempt whose handler could not use a dependency, and its
      outcome."""

    def __init__(
        self,
        in_flight: InFlight,
        stats: WorkerStats,
        emitter: EventEmitter,
        metrics: AttemptMetrics,
        advancer: FlowAdvancer,
        *,
        on_dependency: Callable[[Attempt, Snooze], None],
    ) -> None:
        self._in_flight, self._stats, self._emitter = in_flight, stats, emitter
        self._metrics, self._advancer, self._on_dependency = metrics, advancer, on_dependency
        self._outcome_events = OutcomeEvents(
            stats, emitter, on_missed=metrics.missed, on_dependency=self._dependency_unavailable
        )
        self._loop = asyncio.get_running_loop()
        self._failing, self._lost_at = 0, 0.0

    async def deliver(
        self, store: Store, batch: Sequence[Attempt], request: ClaimRequest | None
    ) -> tuple[SettleResult, float]:
        """Settles the outcomes of `batch` (ended attempts) and claims jobs if `request` is not None. Returns
        the store's answer and the event-loop time at which the answered request was sent.

        After an error it sends the same request again."""
        settlements = [
            Settlement(a.job.id, a.job.fence, a.job.claim, a.outcome)
            if a.usage is None and a.charged is None
            else a.settlement(a.outcome)
            for a in batch
            if a.outcome is not None
        ]
        settled, sent = await self._settle_with_retry(store, settlements, request)
        self._stats.trips += 1
        self._answered(batch, settled.answers)
        emit_pool_changes(self._emitter, settled.pool_changes)
        if settled.claims is not None:
            emit_pool_changes(self._emitter, settled.claims.pool_changes)
        if self._outcome_events.crashed:
            await self._outcome_events.emit_crashes(store)
        return settled, sent

    async def _settle_with_retry(
        self, store: Store, settlements: list[Settlement], request: ClaimRequest | None
    ) -> tuple[SettleResult, float]:
        wait, is_lost = FIRST_RETRY_SECONDS, False
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
                    wait = min(2 * wait, MAX_RETRY_SECONDS)
                else:
                    if is_lost and self._failing == 1:
                        self._emitter.worker_event(StoreRecovered, seconds=self._loop.time() - self._lost_at)
                    return settled, sent
        finally:
            self._failing -= is_lost

    def _dependency_unavailable(self, attempt: Attempt, outcome: Snooze) -> None:
        self._metrics.waits_for_dependency(attempt, str(outcome.dependency))
        self._on_dependency(attempt, outcome)

    def _lost(self, error: StoreError) -> None:
        """Counts a request that failed because the store cannot be reached. Only the first failure of an
        outage emits an event."""
        self._failing += 1
        if self._failing > 1:
            return
        self._lost_at = self._loop.time()
        self._stats.outages += 1
        # All outcomes, not only those of this request: other requests may be under way or waiting.
        unsettled = sum(attempt.outcome is not None for attempt in self._in_flight.held.values())
        self._emitter.worker_event(StoreLost, outcomes=unsettled, **error_fields(error))

    def _answered(self, batch: Sequence[Attempt], answers: Sequence[WriteAnswer]) -> None:
        held, stats, outcome_events = self._in_flight.held, self._stats, self._outcome_events
        emits_done, ran = outcome_events.wants_done, []
        for attempt, answer in zip(batch, answers, strict=True):
            if held.get(attempt.job.id) is attempt:
                del held[attempt.job.id]
            if attempt.usage is not None:
                outcome_events.emit_problems(attempt)
            if attempt.stop is CancelReason.LOST:
                continue  # counted before; this settlement only reported its usage
            if answer is WriteAnswer.CHARGED:
                attempt.outcome = attempt.charged
            if attempt.job.flow is not None:
                self._advancer.note(attempt.job.flow.id)
            if answer is WriteAnswer.STALE or answer is WriteAnswer.GONE:
                outcome_events.emit_refused(attempt, answer)
            elif type(attempt.outcome) is Success:
                stats.done += 1
                ran.append(attempt)
                if emits_done:
                    outcome_events.emit_done(attempt)
            else:
                outcome_events.record(attempt)
                ran += outcome_events.ran_to_end(attempt)
        self._metrics.note(ran)
