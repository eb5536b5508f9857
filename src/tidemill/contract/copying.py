"""Everything a store holds, carried into another: what `tidemill db copy` is made of.

Nothing of it depends on either store's clock or on claims that are held: who copies has seen to it that no
worker is alive, and has taken back what their last claims left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from tidemill.contract.jobs import Arrival
from tidemill.contract.pools import PoolMinute
from tidemill.contract.reader import AttemptRecord, LogLine, Minute
from tidemill.core.accounts import Account
from tidemill.core.checkpoints import Checkpoint
from tidemill.core.courses import Course
from tidemill.core.job import Job
from tidemill.core.pools import PoolOverride, PoolSettings
from tidemill.core.queues import Override, Pause, QueueSettings, Verdict
from tidemill.core.states import State
from tidemill.errors import ConfigurationError


class JobCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A job, with all that is kept of it. The others as their readers answer them."""

    job: Job
    attempts: tuple[AttemptRecord, ...] = ()
    logs: tuple[LogLine, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()


class IdCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is remembered (J11): what it was told, and which claim of its job was the last."""

    request: str
    verdict: Verdict
    job: str
    fence: int = 0
    claim: int = 0


class IdPage(msgspec.Struct, frozen=True):
    """`cursor` continues where this page ends; None when it is the last."""

    ids: tuple[IdCopy, ...]
    cursor: str | None


class QueueCopy(msgspec.Struct, frozen=True, kw_only=True):
    declared: QueueSettings
    override: Override | None = None
    pause: Pause | None = None
    history: tuple[Minute, ...] = ()


class PoolCopy(msgspec.Struct, frozen=True, kw_only=True):
    """`accounts` by key, None for that of a pool without keys."""

    declared: PoolSettings
    override: PoolOverride | None = None
    accounts: Mapping[str | None, Account] = {}
    history: tuple[PoolMinute, ...] = ()


class Copies(msgspec.Struct, frozen=True, kw_only=True):
    """What is carried over in one step. `fence`: the highest that was given so far."""

    jobs: Sequence[JobCopy] = ()
    ids: Sequence[IdCopy] = ()
    queues: Mapping[str, QueueCopy] = {}
    pools: Mapping[str, PoolCopy] = {}
    arrivals: Sequence[Arrival] = ()
    courses: Sequence[Course] = ()
    fence: int = 0


def checked(copies: Copies) -> Copies:
    for copy in copies.jobs:
        if copy.job.state is State.RUNNING:
            raise ConfigurationError(
                f"job {copy.job.id!r} is running and cannot be copied: end its worker, and reclaim it"
            )
    return copies


class Copying(Protocol):
    async def copy_jobs(self, after: int = 0, limit: int = 100) -> list[JobCopy]:
        """U5 The jobs behind that place in line (`Job.seq`), oldest first."""
        ...

    async def copy_ids(self, cursor: str = "") -> IdPage:
        """U6 Requests that are remembered, page by page; one may come twice."""
        ...

    async def copy_in(self, copies: Copies) -> None:
        """U7 Takes jobs, ids, queues, pools and courses in, in one step, or nothing; then the rest. Jobs
        stand in line in the order given, behind those that are there. A job, a course or a request whose id
        is known stays as it is: a copy may be repeated. Ids are remembered anew for MEMORY_OF_IDS. Courses
        are put on the agenda without an end: what became of their jobs is to be looked up. Queues and pools
        are written over; their minutes are added to those that are there; an account counts as one of
        another boot. From then on only higher fences than `fence` are given. A running job is refused
        (ConfigurationError): its holder would speak to the store it came from.
        """
        ...
