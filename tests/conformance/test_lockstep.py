"""The lockstep machine agrees with itself, and notices a store that breaks a promise."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, Phase, settings
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace

from tidemill.clock import Clock, Entropy
from tidemill.contract.jobs import Extended, Pruned, Reclaimed
from tidemill.contract.reader import Page
from tidemill.core.changes import Amended, Change
from tidemill.core.checkpoints import Step, Try
from tidemill.core.claims import ClaimRequest, Claims, Heartbeat, Settled, Settlement
from tidemill.core.courses import Advance, Advanced
from tidemill.core.filters import Filter
from tidemill.core.job import Group
from tidemill.core.outcomes import Answer
from tidemill.core.queues import Inserted, QueueChanges, QueueSettings
from tidemill.engine.indexes import Index
from tidemill.stores.memory import MemoryStore
from tidemill.testing.conformance.lockstep import DIFFERS, SETTINGS, arrive_in_memory, run_lockstep

CATCH = settings(
    max_examples=1500,  # it stops at the first that catches; a rare one took 300
    stateful_step_count=50,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
SEED = 1
"""By which each is caught within a few histories: others take two hundred for some."""


def test_memory_in_lockstep_with_memory() -> None:
    """A few histories: whatever else runs in lockstep would differ from a model that differs from itself."""
    run_lockstep(MemoryStore, arrive_in_memory, settings(SETTINGS, max_examples=10))


class NoFence(MemoryStore):
    """Settles for whoever asks."""

    async def settle(self, settlements: Sequence[Settlement], request: ClaimRequest | None = None) -> Settled:
        current = await self.get([item.job for item in settlements])
        forged = [
            item if job is None else replace(item, fence=job.fence, claim=job.claim)
            for item, job in zip(settlements, current, strict=True)
        ]
        return await super().settle(forged, request)


class NoFenceOnProgress(MemoryStore):
    """Believes any heartbeat about a running job."""

    async def extend(self, heartbeat: Heartbeat) -> Extended:
        current = await self.get([held.job for held in heartbeat.held])
        held = tuple(
            held if job is None else replace(held, fence=job.fence, claim=job.claim)
            for held, job in zip(heartbeat.held, current, strict=True)
        )
        return await super().extend(replace(heartbeat, held=held))


class ClaimsTwice(MemoryStore):
    """Takes every claim for a new one."""

    async def claim(self, request: ClaimRequest) -> Claims:
        with self.verb() as records:
            records.workers.pop(request.worker, None)
        return await super().claim(request)


class ForgetsIds(MemoryStore):
    """A job that is gone is forgotten at once."""

    async def insert(self, groups: Sequence[Group]) -> list[list[Inserted]]:
        with self.verb() as records:
            records.memory.clear()
        return await super().insert(groups)


class WallClockLeases(MemoryStore):
    """Takes jobs back by their age on the wall clock."""

    async def reclaim(self, dead: Sequence[str] = ()) -> Reclaimed:
        with self.verb() as records:
            now = records.clock.wall()
            for job in list(records.jobs.values()):
                if job.state == "running" and job.started is not None and now - job.started > 30:
                    records.put(replace(job, lease=0.0))
        return await super().reclaim(dead)


class PrunesHeldKeys(MemoryStore):
    """Forgets that a key is held for a period."""

    async def prune(self, limit: int = 1000) -> Pruned:
        with self.verb() as records:
            for job in list(records.jobs.values()):
                if job.finished is not None and job.unique_holds:
                    records.put(replace(job, unique_holds=False))
        return await super().prune(limit)


class DropsSuccessors(MemoryStore):
    """The end of a run releases nobody."""

    async def settle(self, settlements: Sequence[Settlement], request: ClaimRequest | None = None) -> Settled:
        with self.verb() as records:
            waiting, records.successors = records.successors, Index()
            answer = await super().settle(settlements, request)
            records.successors = waiting
        return answer


class OverridesForGood(MemoryStore):
    """Overlooks that an override ends."""

    async def override(
        self,
        queue: str,
        changes: QueueChanges,
        *,
        by: str,
        reason: str | None = None,
        until: float | UnsetType | None = UNSET,
    ) -> None:
        await super().override(queue, changes, by=by, reason=reason, until=None)


class WholeOverrides(MemoryStore):
    """What an override does not name falls back to the default."""

    async def override(
        self,
        queue: str,
        changes: QueueChanges,
        *,
        by: str,
        reason: str | None = None,
        until: float | UnsetType | None = UNSET,
    ) -> None:
        changes = QueueChanges(**(asdict(QueueSettings()) | changes.given()))
        await super().override(queue, changes, by=by, reason=reason, until=until)


class ReplacesOverrides(MemoryStore):
    """The second override takes the place of the first."""

    async def override(
        self,
        queue: str,
        changes: QueueChanges,
        *,
        by: str,
        reason: str | None = None,
        until: float | UnsetType | None = UNSET,
    ) -> None:
        await self.clear_override(queue)
        await super().override(queue, changes, by=by, reason=reason, until=until)


class FindsByCase(MemoryStore):
    """Takes a searched text as it is written."""

    async def find(
        self, wanted: Filter, limit: int = 100, cursor: int | None = None, looks: int | None = None
    ) -> Page:
        page = await super().find(replace(wanted, text=None), 10_000, cursor, looks)
        text = wanted.text or ""
        jobs = tuple(job for job in page.jobs if text in f"{job.task}{job.payload.decode()}{job.reason}")
        return Page(jobs[:limit], jobs[limit - 1].seq if len(jobs) > limit else None)


class LastResultStands(MemoryStore):
    """Each result of a step takes the place of the one before."""

    async def keep_step(
        self, job: str, by: Try, step: Step, result: bytes, *, paid: bool
    ) -> tuple[Answer, bytes]:
        with self.verb() as records:
            records.checkpoints.get(job, {}).pop(step, None)
        return await super().keep_step(job, by, step, result, paid=paid)


class AdvancesFromAnything(MemoryStore):
    """Takes whatever comes for an advance of the course as it is."""

    async def advance(self, advances: Sequence[Advance]) -> list[Advanced]:
        found = [(await self.courses(item.kind, [item.id]))[0] for item in advances]
        forged = [
            item if course is None else replace(item, expected=course.revision)
            for item, course in zip(advances, found, strict=True)
        ]
        return await super().advance(forged)


class TakesEveryEnd(MemoryStore):
    """An advance takes the ends it has not seen, too."""

    async def advance(self, advances: Sequence[Advance]) -> list[Advanced]:
        with self.verb() as records:
            all_of_them = tuple(records.stirs)
        return await super().advance([replace(item, taken=all_of_them) for item in advances])


class OverlooksPeople(MemoryStore):
    """What a person ends is no end of a flow's job."""

    async def amend(self, wanted: Filter, change: Change, limit: int = 1000) -> Amended:
        with self.verb() as records:
            before = dict(records.stirs)
            answer = await super().amend(wanted, change, limit)
            records.stirs = before
        return answer


class PrunesFlows(MemoryStore):
    """A queue drops jobs of flows like any other."""

    async def prune(self, limit: int = 1000) -> Pruned:
        with self.verb() as records:
            for job in list(records.jobs.values()):
                if job.finished is not None and job.flow is not None:
                    records.put(replace(job, flow=None))
        return await super().prune(limit)


BROKEN = [
    NoFence,
    NoFenceOnProgress,
    ClaimsTwice,
    ForgetsIds,
    WallClockLeases,
    PrunesHeldKeys,
    DropsSuccessors,
    OverridesForGood,
    WholeOverrides,
    ReplacesOverrides,
    FindsByCase,
    LastResultStands,
    AdvancesFromAnything,
    TakesEveryEnd,
    OverlooksPeople,
    PrunesFlows,
]


@pytest.mark.parametrize("broken", BROKEN)
def test_i6_a_broken_promise_is_caught(broken: type[MemoryStore]) -> None:
    def make(clock: Clock, entropy: Entropy) -> MemoryStore:
        return broken(clock, entropy)

    with pytest.raises(AssertionError, match=DIFFERS):
        run_lockstep(make, arrive_in_memory, CATCH, drawn_from=SEED)
