"""A worker that a test drives step by step."""

from __future__ import annotations

from tidemill.contract.store import Store
from tidemill.core.claims import (
    ClaimedJob,
    ClaimRequest,
    Heartbeat,
    HeldJob,
    LogEntry,
    QueueShare,
    Settlement,
)
from tidemill.core.outcomes import Outcome, Success

LEASE = 30.0


class ManualWorker:
    """Claims and settles jobs on request. It reports with every claim, unless it is `silent`."""

    def __init__(
        self, store: Store, queue: str = "feeds", concurrency: int = 10, *, silent: bool = False
    ) -> None:
        self.store, self.queue, self.concurrency, self.silent = store, queue, concurrency, silent
        self.id = f"hand-{queue}"
        self.number = 0

    async def beat(self, *held: HeldJob) -> None:
        await self.store.extend(
            Heartbeat(
                worker=self.id,
                received=0,
                lease=LEASE,
                held=held,
                host="mill",
                pid=7,
                queues=(self.queue,),
                concurrency=self.concurrency,
            )
        )

    async def claim(self, limit: int = 1) -> list[ClaimedJob]:
        if not self.silent:
            await self.beat()
        self.number += 1
        request = ClaimRequest(
            worker=self.id,
            number=self.number,
            shares=(QueueShare(self.queue, limit),),
            limit=limit,
            lease=LEASE,
        )
        return (await self.store.claim(request)).jobs

    async def say(self, job: ClaimedJob, *lines: str, progress: float | None = None) -> None:
        log_entries = tuple(LogEntry(line) for line in lines)
        await self.beat(
            HeldJob(job=job.id, fence=job.fence, claim=job.claim, progress=progress, log=log_entries)
        )

    async def settle(self, job: ClaimedJob, outcome: Outcome) -> None:
        await self.store.settle([Settlement(job.id, job.fence, job.claim, outcome)])

    async def run(self, *outcomes: Outcome) -> list[str]:
        """Claims a job for every outcome and settles it so; returns the ids."""
        jobs = await self.claim(len(outcomes))
        assert len(jobs) == len(outcomes)
        for job, outcome in zip(jobs, outcomes, strict=True):
            await self.settle(job, outcome)
        return [job.id for job in jobs]

    async def run_all(self) -> None:
        while jobs := await self.claim(100):
            for job in jobs:
                await self.settle(job, Success())
