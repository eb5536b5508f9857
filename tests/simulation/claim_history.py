"""All claims seen so far, recorded outside the store: which worker may settle which job, until when."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.simulation.store_monitor import VerbEvent, identity
from tidemill.core.claims import ClaimRequest, Heartbeat, Settlement
from tidemill.core.jobs import Job
from tidemill.core.outcomes import Crash, WriteAnswer
from tidemill.core.states import State


@dataclass(slots=True)
class ObservedClaim:
    """A claim as the store returned it. `alone` is computed here from the observed crashes, not by the
    store."""

    job: str
    fence: int
    id: int
    worker: str
    number: int
    generation: int
    at: float
    lease_end: float
    alone: bool
    renewed: float
    settled: bool = False
    revoked: bool = False

    @property
    def current(self) -> bool:
        return not self.settled and not self.revoked


@dataclass
class ClaimHistory:
    claims: dict[tuple[str, int, int], ObservedClaim] = field(default_factory=dict)
    by_job: dict[str, list[ObservedClaim]] = field(default_factory=dict)
    deleted: dict[str, tuple[float, Job]] = field(default_factory=dict)  # id → wall time, last version
    lone_crashes: Counter[tuple[str, int]] = field(default_factory=Counter)
    due: dict[str, float] = field(default_factory=dict)  # id → when it was first due
    logged: dict[str, set[str]] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)

    def claim(self, job: str, fence: int, claim: int) -> ObservedClaim | None:
        return self.claims.get((job, fence, claim))

    def is_current(self, job: str, fence: int, claim: int) -> bool:
        known = self.claim(job, fence, claim)
        return known is not None and known.current

    def holder(self, job: str) -> ObservedClaim | None:
        claims = self.by_job.get(job)
        return claims[-1] if claims and claims[-1].current else None

    def see(self, event: VerbEvent) -> None:
        """Records a verb. Runs after every check, so that the checks see the state before the verb."""
        if event.verb == "settle":
            self._settle(event)
        elif event.verb == "extend":
            self._extend(event)
        self.due.update((job.id, job.due) for job in event.created())
        for id_, (before, after) in event.changes.items():
            if after is None and before is not None:
                self.deleted[id_] = (event.wall, before)
            self._revoke(event, before, after)
        self._claim(event)

    def _settle(self, event: VerbEvent) -> None:
        settlements: tuple[Settlement, ...] = event.call.args[0]
        for item, answer in zip(settlements, event.reply.answers, strict=True):
            self.seen[f"settle {answer}"] += 1
            claim = self.claim(item.job, item.fence, item.claim)
            if answer not in (WriteAnswer.OK, WriteAnswer.CHARGED) or claim is None:
                continue
            claim.settled = True
            outcome = item.charged if answer is WriteAnswer.CHARGED else item.outcome
            self.seen[type(outcome).__name__] += 1
            if isinstance(item.outcome, Crash) and claim.alone:
                self.lone_crashes[item.job, claim.generation] += 1

    def _extend(self, event: VerbEvent) -> None:
        heartbeat: Heartbeat = event.call.args[0]
        self.seen["returned"] += len(event.reply.returned)
        for held in heartbeat.held:
            claim = self.claim(held.job, held.fence, held.claim)
            if claim is None or not claim.current:
                self.seen["extend refused"] += 1
                continue
            claim.renewed = event.boot
            self.logged.setdefault(held.job, set()).update(entry.line for entry in held.log)
            if held.renew:
                claim.lease_end = event.boot + heartbeat.lease

    def _revoke(self, event: VerbEvent, before: Job | None, after: Job | None) -> None:
        if before is None or before.state is not State.RUNNING:
            return
        claim = self.claim(before.id, *identity(before))
        moved = after is None or after.state is not State.RUNNING or identity(after) != identity(before)
        if claim is None or claim.settled or not moved:
            return
        claim.revoked = True
        self.seen[f"revoked by {event.verb}"] += 1
        if event.verb == "reclaim" and claim.alone:
            self.lone_crashes[before.id, claim.generation] += 1

    def _claim(self, event: VerbEvent) -> None:
        request = claim_request(event)
        if request is None:
            return
        for job in event.claimed():
            # A settle in the same verb does not change the crash count of a job that it releases.
            claim = ObservedClaim(
                job.id,
                job.fence,
                job.claim,
                request.worker,
                request.number,
                job.generation,
                at=event.boot,
                lease_end=event.boot + request.lease,
                alone=job.crashes > 0,
                renewed=event.boot,
            )
            self.claims[job.id, job.fence, job.claim] = claim
            self.by_job.setdefault(job.id, []).append(claim)
            self.seen["claimed alone" if claim.alone else "claimed"] += 1


def claim_request(event: VerbEvent) -> ClaimRequest | None:
    if event.verb == "claim":
        request: ClaimRequest = event.call.args[0]
        return request
    if event.verb == "settle":
        return event.call.args[1]  # type: ignore[no-any-return]
    return None
