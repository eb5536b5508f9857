"""A worker written by somebody else: it keeps to the contract, and does no more than that.

When a claim's reply is lost it does not ask again, it goes on with the next number: what it
was given and never saw has to come back through its heartbeat, and count as nothing (I8)."""

from __future__ import annotations

import asyncio
import random

from tests.simulation.handlers import Handlers, script_of
from tests.simulation.ledger import Run
from tests.simulation.network import Network
from tests.simulation.workload import QUEUES
from tidemill.core.claims import Claimed, ClaimRequest, Heartbeat, Held, Settlement, Share
from tidemill.core.outcomes import Done, Release
from tidemill.errors import StoreUnavailable


class Stranger:
    def __init__(
        self, name: str, store: Network, handlers: Handlers, chance: random.Random, lease: float
    ) -> None:
        self._name, self._store, self._handlers = name, store, handlers
        self._chance, self._lease = chance, lease
        self._held: dict[str, Claimed] = {}
        self._number = self._received = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beat())
            while True:
                await asyncio.sleep(self._chance.uniform(0.2, 1.5))
                await self._turn()

    async def _turn(self) -> None:
        self._number += 1
        shares = tuple(Share(queue, 2) for queue in QUEUES)
        request = ClaimRequest(
            worker=self._name, number=self._number, shares=shares, limit=2, lease=self._lease
        )
        try:
            claims = await self._store.claim(request)
        except StoreUnavailable:
            self._received = self._number  # whatever it was, it is not here
            return
        self._held = {job.id: job for job in claims.jobs}
        self._received = self._number
        for job in claims.jobs:
            await self._work(job)

    async def _work(self, job: Claimed) -> None:
        """It can do quick jobs of tasks it knows, and hands back what is not for it."""
        ledger = self._handlers.ledger
        script = script_of(job.payload)
        mine = script.kind == "quick" and not job.suspect and job.task == "work"
        if mine:
            run = Run(job.id, job.attempt, job.generation, self._name, isolated=False, at=ledger.now())
            ledger.starts.append(run)
            await asyncio.sleep(script.seconds)
            ledger.commits.append(run)
        outcome = Done(str(script.serial).encode()) if mine else Release()
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
                held=tuple(Held(job=job.id, fence=job.fence, claim=job.claim) for job in held),
            )
            try:
                await self._store.extend(heartbeat)
            except StoreUnavailable:
                continue
