"""Copies the content of one store into another store, for `tidemill db copy`.

Before a copy, the caller stops all workers and reclaims their last jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from tidemill.contract.jobs import Arrival
from tidemill.contract.pools import PoolMinute
from tidemill.contract.reader import AttemptRecord, LogLine, QueueMinute
from tidemill.core.accounts import Account
from tidemill.core.checkpoints import Checkpoint
from tidemill.core.documents import Document
from tidemill.core.jobs import Job
from tidemill.core.overrides import Override
from tidemill.core.pools import LimitChanges, PoolSettings
from tidemill.core.queues import InsertVerdict, Pause, QueueChanges, QueueSettings
from tidemill.core.states import State
from tidemill.errors import ConfigurationError


class JobCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A job with its attempts, log lines and checkpoints, each as the read methods return it."""

    job: Job
    attempts: tuple[AttemptRecord, ...] = ()
    logs: tuple[LogLine, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()


class IdCopy(msgspec.Struct, frozen=True, kw_only=True):
    """The id of an enqueue request that the store remembers (J11).

    - `verdict`: the first answer to the request.
    - `job`: the id of the created job, or of the job that held its unique key.
    - `fence`, `claim`: the last claim of that job; 0 if there was none."""

    request: str
    verdict: InsertVerdict
    job: str
    fence: int = 0
    claim: int = 0


class IdPage(msgspec.Struct, frozen=True):
    """A page of remembered ids of enqueue requests. `cursor` is the argument for the next page; None on the
    last page."""

    ids: tuple[IdCopy, ...]
    cursor: str | None


class QueueCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A queue's declared settings, override and pause, and its history with one entry per minute."""

    declared: QueueSettings
    override: Override[QueueChanges] | None = None
    pause: Pause | None = None
    history: tuple[QueueMinute, ...] = ()


class PoolCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A pool's declared settings, override, accounts and history.

    - `accounts`: the account of each key; a pool without keys has one account, under None.
    - `history`: one entry per minute."""

    declared: PoolSettings
    override: Override[LimitChanges] | None = None
    accounts: Mapping[str | None, Account] = {}
    history: tuple[PoolMinute, ...] = ()


class StoreCopy(msgspec.Struct, frozen=True, kw_only=True):
    """The content that one call of `copy_in` inserts. `fence` is the highest fence that the old store has
    given."""

    jobs: Sequence[JobCopy] = ()
    ids: Sequence[IdCopy] = ()
    queues: Mapping[str, QueueCopy] = {}
    pools: Mapping[str, PoolCopy] = {}
    arrivals: Sequence[Arrival] = ()
    documents: Sequence[Document] = ()
    fence: int = 0


def check_copies(copies: StoreCopy) -> StoreCopy:
    for copy in copies.jobs:
        if copy.job.state is State.RUNNING:
            raise ConfigurationError(
                f"job {copy.job.id!r} is running and cannot be copied: end its worker, and reclaim it"
            )
    return copies


class CopyStore(Protocol):
    """The methods that read and insert the whole content of a store."""

    async def copy_jobs(self, after: int = 0, limit: int = 100) -> list[JobCopy]:
        """Returns up to `limit` jobs, oldest first, each with its details.

        U5  All jobs returned have a sequence number (`Job.seq`) above `after`. To read the next page, pass
            the number of the last job."""
        ...

    async def copy_ids(self, cursor: str = "") -> IdPage:
        """Returns one page of the ids of enqueue requests that the store remembers.

        U6  Following `cursor` returns all ids; '' starts with the first page. An id may appear twice."""
        ...

    async def copy_in(self, copies: StoreCopy) -> None:
        """Inserts the content of another store. Raises ConfigurationError if a job is running. A copy can be
        repeated.

        U7  Jobs, ids, queues, pools and documents are inserted in one transaction, or not at all. Arrivals
            and the fence are written afterwards.

        - A job, document or request whose id is known stays unchanged.
        - New jobs are placed behind the existing jobs, in the given order.
        - Request ids are remembered for another KNOWN_ID_SECONDS.
        - Flows and schedules are put on the worklist, and the next advance looks up all their jobs.
        - Queues and pools are overwritten. The copied history is added to the existing history.
        - Accounts drop times of the boot clock, as after a restart.
        - From now on the store gives only fences above `fence`."""
        ...
