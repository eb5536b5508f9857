"""Decides what a lane of a batch task does when its turn comes: start a call, or wait."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Protocol, TypeVar

import msgspec

from tidemill.core import accounts, ledger
from tidemill.core.accounts import UnitDenial
from tidemill.core.batching import (
    BatchCandidate,
    BatchPolicy,
    PooledJob,
    call_needs,
    largest_fitting_count,
    max_call_jobs,
    missing_jobs,
    seconds_until_full,
)
from tidemill.core.ledger import AccountKey, ClaimDenial, HeldReservation, LaneBlock, Ledger
from tidemill.core.needs import Need
from tidemill.core.reservations import UnitRequest
from tidemill.core.windows import Instant

BATCH_WAIT_KEY: AccountKey = ("", None)
"""The key of a lane that waits for more jobs: no pool has this name."""


class BatchJob(PooledJob, Protocol):
    """A job that may share a call with other jobs. `batching` is None for a job that never shares a call."""

    @property
    def batching(self) -> BatchPolicy | None: ...


class ReadyBatchJob(BatchCandidate, Protocol):
    """A ready job of a batch task."""

    @property
    def id(self) -> str: ...
    @property
    def priority(self) -> int: ...


S = TypeVar("S", bound=ReadyBatchJob)


class BatchWait(msgspec.Struct, frozen=True):
    """The answer if a lane has to wait for more jobs. Its call starts after `wait` seconds, or earlier if
    `missing_jobs` more jobs arrive."""

    wait: float
    missing_jobs: int

    def lane_block(self, boot: float) -> LaneBlock:
        return LaneBlock(pool="", key=None, until=boot + self.wait, retry_at=boot + self.wait, priority=0)


class BatchStart(msgspec.Struct, frozen=True):
    """The answer if a call starts, with the first `jobs` jobs of the lane. `reserved` are the call's
    reservations. They belong to the first of these jobs."""

    jobs: int
    reserved: tuple[HeldReservation, ...]


def start_batch(  # noqa: PLR0917 - the state of a lane at its turn
    pool_ledger: Ledger,
    rule: BatchPolicy,
    waiting: Sequence[S],
    most: int,
    is_expired: Callable[[S], bool],
    batch_due_at: float | None,
    now: Instant,
    lane: tuple[str, str],
) -> BatchWait | ClaimDenial | BatchStart:
    """Decides whether a lane of a batch task starts a call now, and reserves the call's units. Returns
    `BatchWait` if the lane waits for more jobs, and `ClaimDenial` if a pool denies the units.

    - `rule`: the batch policy of the lane's first job.
    - `waiting`: the first `max_items` jobs of the lane; at most `most` of them may start now.
    - `batch_due_at`: the boot-clock time of the latest start, None if no earlier claim set one (I26).
    - `lane`: the pair of queue and lane name."""
    wait = min(
        seconds_until_full(rule, waiting, now.wall),
        math.inf if batch_due_at is None else batch_due_at - now.boot,
    )
    if wait > 0:
        return BatchWait(wait, missing_jobs(rule, waiting))
    alive = list(takewhile(lambda job: not is_expired(job), waiting))
    return _reserve_call(pool_ledger, rule, alive[: min(max_call_jobs(rule, alive), most)], now, lane)


def single_call_needs(job: BatchJob) -> tuple[Need, ...]:
    """Returns the needs of a call that contains only this job."""
    return job.needs if job.batching is None else call_needs(job.batching, [job])


def _reserve_call(
    pool_ledger: Ledger, rule: BatchPolicy, jobs: Sequence[ReadyBatchJob], now: Instant, lane: tuple[str, str]
) -> ClaimDenial | BatchStart:
    """Reserves one call for as many of the first `jobs` as the pools admit. If no job fits, returns the
    denial for the first job."""
    first = jobs[0]

    def fits(count: int) -> bool:
        return _fits_pools(pool_ledger, first, call_needs(rule, jobs[:count]), now, lane)

    count = largest_fitting_count(len(jobs), fits) if first.needs and len(jobs) > 1 else len(jobs)
    needs = call_needs(rule, jobs[: max(1, count)])
    answer = ledger.reserve_all(pool_ledger, first.id, first.priority, needs, now, lane)
    return answer if isinstance(answer, ClaimDenial) else BatchStart(max(1, count), answer)


def _fits_pools(
    pool_ledger: Ledger, first: ReadyBatchJob, needs: Sequence[Need], now: Instant, lane: tuple[str, str]
) -> bool:
    """True if all pools would admit a call with these `needs` and first job `first`. Reserves nothing."""
    for need in needs:
        known = pool_ledger.load((need.pool, need.key))
        if known is not None:
            scope = ledger.hold_scope(*lane, need)
            answer = accounts.request_units(
                *known, UnitRequest(first.id, need.units, first.priority, scope), now
            )
            if isinstance(answer, UnitDenial):
                return False
    return True
