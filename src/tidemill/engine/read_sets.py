"""Read sets: the rows that each store method loads before it runs. Loading them first saves round trips to
the database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from tidemill.contract.copy import StoreCopy
from tidemill.contract.documents import check_advances
from tidemill.contract.jobs import Admission
from tidemill.core.batch_start import single_call_needs
from tidemill.core.claims import ClaimRequest, Heartbeat, Settlement
from tidemill.core.documents import Advance, remembered_id
from tidemill.core.jobs import Job, JobGroup, NewJob, job_lane
from tidemill.core.lane_selection import MAX_BLOCKED_LANES_PER_CLAIM
from tidemill.core.operator_changes import OperatorChange, RetryJobs
from tidemill.core.states import State
from tidemill.engine import queries
from tidemill.engine.queries import RowQuery

FollowUp = Callable[[RowQuery, Any], Iterable[RowQuery]]


def no_follow_up(_want: RowQuery, _row: Any) -> Iterable[RowQuery]:
    return ()


class ReadSet(msgspec.Struct, frozen=True):
    """The rows that a store method loads before it runs.

    - `first`: its first queries.
    - `follow`: gets a query and the loaded row, and returns further queries."""

    first: tuple[RowQuery, ...]
    follow: FollowUp = no_follow_up


def insert(groups: Sequence[JobGroup]) -> ReadSet:
    return ReadSet(
        tuple(
            query for group in groups for job in group.jobs for query in _new_job_queries(group.queue, job)
        ),
        _follow_change,
    )


def admit(admissions: Sequence[Admission]) -> ReadSet:
    first: list[RowQuery] = []
    for admission in admissions:
        first.append(queries.ArrivalBySeq(admission.arrival.seq))
        if isinstance(admission.verdict, NewJob):
            first += _new_job_queries(admission.queue, admission.verdict)
        first += [
            queries.JobById(admission.arrival.id),
            queries.KnownIdByRequest(admission.arrival.id),
        ]
        first.append(queries.QueueByName(admission.queue))
    return ReadSet(tuple(first), _follow_change)


def advance(advances: Sequence[Advance]) -> ReadSet:
    check_advances(advances)  # before loading: a server does not accept text with a NUL
    first: list[RowQuery] = []
    for item in advances:
        first += [
            queries.DocumentById(item.kind, item.id),
            queries.KnownIdByRequest(remembered_id(item.kind, item.id)),
        ]
        for made in item.jobs:
            first += _new_job_queries(made.queue, made.job)
    return ReadSet(tuple(first), _follow_change)


def claim(request: ClaimRequest) -> ReadSet:
    first: list[RowQuery] = [queries.WorkerById(request.worker)]
    if request.ids is not None:
        return ReadSet((*first, *map(queries.JobById, request.ids)), _follow_change)
    # Each claimed call blocks at most one lane; that many more are blocked without a job, in a share and in
    # the rest.
    lanes = request.limit + 2 * MAX_BLOCKED_LANES_PER_CLAIM + 1
    first += [queries.ClaimPrefetch(share.queue, request.limit, lanes) for share in request.shares]
    return ReadSet(tuple(first), _follow_claim)


def settle(settlements: Sequence[Settlement], request: ClaimRequest | None) -> ReadSet:
    first: list[RowQuery] = []
    for item in settlements:
        claimed = (item.job, item.fence, item.claim)
        first += [queries.JobById(item.job), queries.ClaimReservations(claimed)]
        if item.spent is not None:
            account_keys = {(seen.pool, seen.key) for seen in item.spent.observations}
            first += [query for account_key in account_keys for query in _account_queries(account_key)]
    if request is not None:
        first += claim(request).first
    reporting = {(item.job, item.fence, item.claim) for item in settlements if item.spent is not None}

    def follow(query: RowQuery, row: Any) -> Iterator[RowQuery]:
        yield from _follow_change(query, row)
        if isinstance(query, queries.ClaimReservations) and not row and query.claim in reporting:
            # The units may have been recounted; then the report still counts.
            yield queries.UnconfirmedSince(query.claim)

    return ReadSet(tuple(first), follow)


def extend(heartbeat: Heartbeat) -> ReadSet:
    held = [queries.JobById(held_job.job) for held_job in heartbeat.held]
    listed = frozenset(held)

    def follow(query: RowQuery, row: Any) -> Iterator[RowQuery]:
        if isinstance(query, queries.WorkerRunningJobs):
            yield from map(queries.JobById, row or ())
        elif query not in listed:  # the job goes back, with all consequences
            yield from _follow_take_back(query, row)

    return ReadSet(
        (queries.WorkerById(heartbeat.worker), queries.WorkerRunningJobs(heartbeat.worker), *held),
        follow,
    )


def reclaim(dead: Sequence[str]) -> ReadSet:
    over = tuple(sorted(set(dead)))
    workers = [queries.WorkerById(worker) for worker in over]
    return ReadSet((queries.OverdueJobs(over), queries.AbandonedClaims(over), *workers), _follow_take_back)


def change_jobs(jobs: Iterable[str]) -> ReadSet:
    return ReadSet(tuple(map(queries.JobById, jobs)), _follow_take_back)


def amend(jobs: Iterable[str], change: OperatorChange) -> ReadSet:
    """Returns the read set for an operator's change to these jobs."""
    meant = tuple(jobs)
    steps = map(queries.JobCheckpoints, meant if isinstance(change, RetryJobs) else ())
    return ReadSet((*map(queries.JobById, meant), *steps), _follow_take_back)


def job_checkpoints(job: str) -> ReadSet:
    return ReadSet((queries.JobById(job), queries.JobCheckpoints(job)))


def queues(names: Iterable[str]) -> ReadSet:
    return ReadSet(tuple(map(queries.QueueByName, names)))


def pools(names: Iterable[str]) -> ReadSet:
    return ReadSet(
        tuple(query for name in names for query in (queries.PoolByName(name), queries.PoolAccountKeys(name))),
        _follow_change,
    )


def account(pool: str, key: str | None) -> ReadSet:
    return ReadSet(tuple(_account_queries((pool, key))), _follow_change)


def copy_in(copies: StoreCopy) -> ReadSet:
    first: list[RowQuery] = [queries.QueueByName(name) for name in copies.queues]
    for copy in copies.jobs:
        job = copy.job
        lane = queries.LaneByName(job.queue, job.lane)
        first += [queries.JobById(job.id), queries.QueueByName(job.queue), lane]
        if copy.checkpoints:
            first.append(queries.JobCheckpoints(job.id))
    first += [queries.DocumentById(document.kind, document.id) for document in copies.documents]
    for known in copies.ids:
        first += [queries.JobById(known.request), queries.KnownIdByRequest(known.request)]
    for name, pool in copies.pools.items():
        first += [
            queries.PoolByName(name),
            *(queries.AccountByKey((name, key)) for key in pool.accounts),
        ]
    return ReadSet(tuple(first))


def _new_job_queries(queue: str, job: NewJob) -> Iterator[RowQuery]:
    yield from (queries.JobById(job.id), queries.KnownIdByRequest(job.id))
    yield from (queries.QueueByName(queue), queries.LaneByName(queue, job_lane(job)))
    if job.unique is not None:
        yield queries.UniqueHolders(queue, job.unique.key)
    for need in single_call_needs(job):
        yield queries.PoolByName(need.pool)


def _account_queries(account_key: tuple[str, str | None]) -> Iterator[RowQuery]:
    yield from (
        queries.PoolByName(account_key[0]),
        queries.AccountByKey(account_key),
        queries.BlockedQueues(account_key),
        queries.AccountReservationCount(account_key),
    )


def _follow_claim(query: RowQuery, row: Any) -> Iterator[RowQuery]:
    """Yields the queries that follow a job's row in a claim, such as its pools and accounts."""
    if isinstance(query, queries.JobById) and isinstance(row, Job):
        if row.state is State.SCHEDULED:
            yield queries.LaneByName(row.queue, row.lane)
        for need in (*row.needs, *row.deferred_needs):
            yield from (queries.PoolByName(need.pool), queries.AccountByKey((need.pool, need.key)))


def _follow_take_back(query: RowQuery, row: Any) -> Iterator[RowQuery]:
    """Yields the queries that follow a loaded row when running jobs return to their lane."""
    yield from _follow_change(query, row)
    if isinstance(query, queries.JobById) and row is not None and row.claim:
        yield queries.ClaimReservations((row.id, row.fence, row.claim))
    elif isinstance(query, queries.ClaimReservations) and row:  # the units are recounted
        yield queries.UnconfirmedSince(query.claim)


def _follow_change(query: RowQuery, row: Any) -> Iterator[RowQuery]:  # noqa: C901 - one line for each kind of row
    """Yields the queries for the rows that may change together with a loaded row, such as the queue and the
    lane of a job."""
    if row is None:
        return
    match query:
        case queries.JobById():
            yield from (
                queries.QueueByName(row.queue),
                queries.LaneByName(row.queue, row.lane),
                queries.JobSuccessors(row.id),
            )
            for need in (*row.needs, *row.deferred_needs):
                yield from _account_queries((need.pool, need.key))
        case queries.UniqueHolders() | queries.JobSuccessors() | queries.OverdueJobs():
            yield from map(queries.JobById, row)
        case queries.BlockedQueues():
            for queue in row:
                yield from (
                    queries.QueueByName(queue),
                    queries.BlockedLanes(queue, query.account_key),
                )
        case queries.BlockedLanes():
            yield from (queries.LaneByName(query.queue, lane) for lane in row)
        case queries.ClaimReservations():
            for held in row:
                yield from _account_queries(held.account_key)
        case queries.AbandonedClaims() | queries.PoolClaims():
            yield from map(queries.ClaimReservations, row)
        case queries.PoolAccountKeys():
            for account_key in row:
                yield from _account_queries(account_key)
