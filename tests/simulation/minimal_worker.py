"""A minimal third-party worker: it follows the contract and does nothing beyond it.

If the reply of a claim is lost, it does not repeat the claim and continues with the next number. Its
heartbeat must return the jobs that it never saw, without a charge (I8)."""

from __future__ import annotations

import asyncio
import random

from tests.simulation.handlers import Handlers, script_of
from tests.simulation.network import Network
from tests.simulation.outcome_log import HandlerRun
from tests.simulation.workload import QUEUES
from tidemill.core.claims import ClaimedJob, ClaimRequest, Heartbeat, HeldJob, QueueShare, Settlement
from tidemill.core.outcomes import JobRelease, Success
from tidemill.errors import StoreUnavailable


class MinimalWorker:
    def __init__(
        self, name: str, store: Network, handlers: Handlers, chance: random.Random, lease: float
    ) -> None:
        self._name, self._store, self._handlers = name, store, handlers
        self._chance, self._lease = chance, lease
        self._held: dict[str, ClaimedJob] = {}
        self._number = self._received = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beat())
            while True:
                await asyncio.sleep(self._chance.uniform(0.2, 1.5))
                await self._turn()

    async def _turn(self) -> None:
        self._number += 1
        shares = tuple(QueueShare(queue, 2) for queue in QUEUES)
        request = ClaimRequest(
            worker=self._name, number=self._number, shares=shares, limit=2, lease=self._lease
        )
        try:
            claims = await self._store.claim(request)
        except StoreUnavailable:
            self._received = self._number  # the job of the lost reply is not here
            return
        self._held = {job.id: job for job in claims.jobs}
        self._received = self._number
        for job in claims.jobs:
            await self._work(job)

    async def _work(self, job: ClaimedJob) -> None:
        """Runs quick jobs of known tasks, and releases the others."""
        outcome_log = self._handlers.outcome_log
        script = script_of(job.payload)
        mine = script.kind == "quick" and not job.suspect and job.task == "work"
        if mine:
            run = HandlerRun(
                job.id, job.attempt, job.generation, self._name, isolated=False, at=outcome_log.now()
            )
            outcome_log.starts.append(run)
            await asyncio.sleep(script.seconds)
            outcome_log.commits.append(run)
        outcome = Success(str(script.serial).encode()) if mine else JobRelease()
        for _ in range(5):
            try:
                await self._store.settle([Settlement(job.id, job.fence, job.claim, outcome)])
                break
            except StoreUnavailable:
                continue
        self._held.pop(job.id, None)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._lease / 3)
            received, held = self._received, list(self._held.values())
            heartbeat = Heartbeat(
                worker=self._name,
                received=received,
                lease=self._lease,
                held=tuple(HeldJob(job=job.id, fence=job.fence, claim=job.claim) for job in held),
            )
            try:
                await self._store.extend(heartbeat)
            except StoreUnavailable:
                continue
