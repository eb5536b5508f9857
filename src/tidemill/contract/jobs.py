"""The verbs that move jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from tidemill.core.changes import Amended, Change
from tidemill.core.claims import ClaimRequest, Claims, Heartbeat, Settled, Settlement
from tidemill.core.filters import Filter
from tidemill.core.job import Error, Group, NewJob
from tidemill.core.queues import Inserted

MEMORY_OF_IDS = 3600.0
"""How long an id is known after its job is gone, in seconds. Read it as `jobs.MEMORY_OF_IDS`, through the
module: `benchmarks.retention` sets a shorter time."""

PROMOTE_AT_ONCE = 250
"""How many due jobs of a queue one claim promotes at most: no claim is ever a long one."""


class Reading(msgspec.Struct, frozen=True):
    """The store's clocks, read together."""

    wall: float
    boot: float


class Extended(msgspec.Struct, frozen=True):
    """Which listed jobs are no longer the worker's: their attempts must stop.
    `returned` were running in its name, not listed, and have been handed back."""

    lost: tuple[str, ...]
    returned: tuple[str, ...] = ()


class Reclaimed(msgspec.Struct, frozen=True):
    """`ready` may run again, `poison` reached the crash limit and failed."""

    ready: tuple[str, ...]
    poison: tuple[str, ...]


class Pruned(msgspec.Struct, frozen=True):
    """`more` asks for another call soon: the limit was reached. `early` has the number of jobs per queue that
    left by count before their age was over."""

    pruned: int
    expired: int
    more: bool
    early: dict[str, int] = {}


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A request written straight into the store, not yet a job. `options` is a JSON object."""

    seq: int
    id: str
    task: str
    payload: bytes
    options: bytes
    arrived: float


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """An arrival that cannot become a job: it is kept as a failed one, naming the field."""

    queue: str
    error: Error


class Admission(msgspec.Struct, frozen=True):
    """What a worker made of an arrival."""

    arrival: Arrival
    queue: str
    verdict: NewJob | Refused


class Jobs(Protocol):
    """Every verb is one atomic step. No verb takes `now`: the store owns the clock.

    J1  A verb that raised a StoreError changed nothing, or what it changed is found again
        when the same call is repeated: insert by job id, claim by number, settle by claim.
    J2  A job is in exactly one state, and moves only as `core.states.TRANSITIONS` says.
    """

    async def insert(self, groups: Sequence[Group]) -> list[list[Inserted]]:
        """One answer per job, in order.

        J10 A group is accepted or refused as a whole; groups do not affect each other.
        J11 Repeating an id answers its first verdict, also MEMORY_OF_IDS after the job is gone.
        J12 FULL: pending jobs of the queue plus the group's new ones would pass `max_length`.
            Limits hold under concurrency.
        J13 INVALID: `core.job.problem_with` found something; the answer says what.
        J14 A held unique key is resolved as `core.uniqueness.resolve` says, within one group too. A
            pending holder past its expiry is cancelled first: it holds nothing any more.
        J15 An accepted job survives whatever the store promises to survive.
        J16 A job due in the future is `scheduled`; it never starts before that time.
        """
        ...

    async def arrivals(self, limit: int, after: int = 0) -> list[Arrival]:
        """Requests waiting to be admitted, oldest first, from behind the one numbered `after`."""
        ...

    async def admit(self, admissions: Sequence[Admission]) -> int:
        """Turn arrivals into jobs and forget the arrivals, in one step. Answers how many.

        J20 An arrival is admitted once, however often and by however many it is tried.
        J21 A refused arrival becomes a failed job with that error, and one that the store finds a problem
            with keeps its key, priority, timeout, trace and tags. Length limits do not apply.
        """
        ...

    async def claim(self, request: ClaimRequest) -> Claims:
        """The right to run up to `limit` jobs.

        J30 Due jobs of the queues are promoted first, PROMOTE_AT_ONCE of each at most, oldest due first.
        J31 Order: `core.lanes.pick`; inside a lane (priority, due, seq).
        J32 One fence for all jobs of a claim; it only grows. The claim id is random.
        J33 A number that is not above the worker's last is a repetition: it returns the jobs of that
            claim the worker still holds, and claims nothing new.
        J34 A paused queue gives nothing; a pause with a time ends by itself.
        J35 Running jobs of a queue never exceed `concurrency`, of a key never `key_concurrency`.
        J36 A job past its expiry is cancelled instead ("expired"), `core.lanes.PASS_AT_ONCE` at most.
        J37 By ids: each is claimed, blocked (not ready, paused, or at a limit) or gone.
        J38 `next_due` is the time to the next scheduled job or the end of a pause or an override; `more`
            tells whether open ready jobs were left.
        J39 Shares are served in order, then what is left of `limit`. A store may give fewer than there are
            where all would make it a long step; `more` says so.
        """
        ...

    async def settle(self, settlements: Sequence[Settlement], request: ClaimRequest | None = None) -> Settled:
        """Record outcomes, and claim the next jobs in the same step.

        J40 Answers per item: ok (or charged, P17), again, stale, gone (`core.claims.answer_to`); only ok
            changes anything, and one item never stops the others. A job that is gone but remembered by
            its claim answers again.
        J41 The job after is `core.transitions.settled`.
        J42 A run that ends for good releases its waiting successor; a retry with a successor
            waiting ends as cancelled ("superseded") and releases it.
        J43 A job given back keeps its seq.
        """
        ...

    async def extend(self, heartbeat: Heartbeat) -> Extended:
        """Renew leases and record progress, notes and log lines.

        J50 A listed claim that is current gets a new lease if it asked for one, and its news is kept;
            a line is dated by the store's clock, less its age.
        J51 A listed claim that is not current is answered as lost and changes nothing.
        J52 A running job of this worker, of a claim number ≤ `received`, that is not listed goes back
            uncounted.
        J53 The worker is known to the reader until its lease is over.
        """
        ...

    async def reclaim(self, dead: Sequence[str] = ()) -> Reclaimed:
        """Take back running jobs whose lease is over, and those of workers known to be dead.

        J60 A job whose lease runs is not touched, unless its worker is in `dead`.
        J61 The job after is `core.transitions.reclaimed`: in company only suspect, alone a crash.
        J62 The old claim is refused from then on.
        J63 Leases of another boot are over.
        """
        ...

    async def amend(self, wanted: Filter, change: Change, limit: int = 1000) -> Amended:
        """An operator's change to the jobs a filter means, oldest first, `limit` at most.

        J70 `core.changes` says which jobs it applies to and what they become; whom the filter means is
            `core.matching.matches`. One with a `problem` is refused (ConfigurationError).
        J71 After a cancel returned nothing new of the job starts, and its holder is refused.
        J72 Ending a job releases its waiting successor.
        J73 A deleted job is remembered as any job that is gone.
        """
        ...

    async def prune(self, limit: int = 1000) -> Pruned:
        """Drop ended jobs by their queue's retention, cancel expired ones, forget old ids.

        J80 Oldest ended first, by age and by count per queue and state.
        J81 A key held for a period keeps its job until the period is over.
        J82 A job that is gone is remembered by id for MEMORY_OF_IDS.
        J83 A job of a flow is not its queue's to drop: it goes when the flow's `until` is over, and then the
            flow. What is dropped counts as `pruned`, flows too.
        J84 A job that leaves by count though its retention has an age that is not over is counted in `early`
            and as `dropped_early` in the history of its queue.
        """
        ...

    async def read_clock(self) -> Reading:
        """What the store's clocks say now."""
        ...
