"""Delivers outcomes: as often as it takes, and never twice with effect."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tidemill.contract.store import Store
from tidemill.core.claims import ClaimRequest, Settled, Settlement
from tidemill.core.outcomes import Answer, Crashed, Done, Fail, Outcome, Release, Retrying, Snooze
from tidemill.errors import StoreError
from tidemill.worker.attempt import Attempt
from tidemill.worker.hands import Hands
from tidemill.worker.log import logger
from tidemill.worker.stats import Stats

FIRST_WAIT = 0.05
LONGEST_WAIT = 5.0


class Settler:
    def __init__(self, hands: Hands, stats: Stats) -> None:
        self._hands, self._stats = hands, stats
        self._refusals_told = False
        self._failing = False

    async def deliver(self, store: Store, batch: Sequence[Attempt], request: ClaimRequest | None) -> Settled:
        """After an error the same settlements and the same claim number are sent again: what got
        through the first time is answered `again`, and the same jobs are returned."""
        settlements = [
            Settlement(a.job.id, a.job.fence, a.job.claim, a.outcome) for a in batch if a.outcome is not None
        ]
        settled = await self._insist(store, settlements, request)
        self._stats.trips += 1
        self._answered(batch, settled.answers)
        return settled

    async def _insist(
        self, store: Store, settlements: list[Settlement], request: ClaimRequest | None
    ) -> Settled:
        wait = FIRST_WAIT
        while True:
            try:
                settled = await store.settle(settlements, request)
            except StoreError as error:
                if not self._failing:
                    self._failing = True
                    self._stats.outages += 1
                    logger().error("store unavailable", error=str(error), outcomes_kept=len(settlements))
                await asyncio.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT)
            else:
                if self._failing:
                    self._failing = False
                    logger().info("store available again")
                return settled

    def _answered(self, batch: Sequence[Attempt], answers: Sequence[Answer]) -> None:
        held, stats = self._hands.held, self._stats
        for attempt, answer in zip(batch, answers, strict=True):
            outcome = attempt.outcome
            if held.get(attempt.job.id) is attempt:
                del held[attempt.job.id]
            if answer is Answer.STALE or answer is Answer.GONE:
                self._refused(attempt, answer)
            elif type(outcome) is Done:
                stats.done += 1
            else:
                self._count(attempt, outcome)

    def _count(self, attempt: Attempt, outcome: Outcome | None) -> None:
        job, stats = attempt.job, self._stats
        match outcome:
            case Release():
                stats.released += 1
            case Snooze():
                stats.snoozed += 1
            case Retrying(delay, error):
                stats.retried += 1
                _tell("job will be retried", attempt, error=error.type, message=error.message, delay=delay)
            case Fail(error, reason):
                stats.failed += 1
                _tell("job failed", attempt, error=error.type, message=error.message, reason=reason)
            case Crashed(error):
                stats.crashed += 1
                _tell(
                    "job crashed", attempt, error=error.type, message=error.message, crashes=job.crashes + 1
                )

    def _refused(self, attempt: Attempt, answer: Answer) -> None:
        """Normal after a pause longer than the lease: told once, then only counted."""
        if answer is Answer.STALE:
            self._stats.stale += 1
        else:
            self._stats.gone += 1
        if not self._refusals_told:
            self._refusals_told = True
            _tell("outcome refused", attempt, answer=str(answer), note="further refusals are only counted")


def _tell(event: str, attempt: Attempt, **more: object) -> None:
    job = attempt.job
    logger().warning(event, job=job.id, task=job.task, attempt=job.attempt, trace=job.trace or job.id, **more)
