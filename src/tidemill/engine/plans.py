"""What each verb is known to want before it begins, and what follows from what was found.

A step that wants something else asks for it when it comes to it; every such question is another trip to the
store, and this is what spares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from tidemill.contract.copying import Copies
from tidemill.contract.courses import checked
from tidemill.contract.jobs import Admission
from tidemill.core.calls import needs_alone
from tidemill.core.changes import Change, RetryNow
from tidemill.core.claims import ClaimRequest, Heartbeat, Settlement
from tidemill.core.courses import Advance, memory_id
from tidemill.core.job import Group, Job, NewJob, lane_of
from tidemill.core.lanes import GIVE_WAY_AT_ONCE
from tidemill.core.states import State
from tidemill.engine import wants
from tidemill.engine.wants import Want

Follow = Callable[[Want, Any], Iterable[Want]]


def nothing(_want: Want, _row: Any) -> Iterable[Want]:
    return ()


class Plan(msgspec.Struct, frozen=True):
    """`follow` is asked about every row that was found."""

    first: tuple[Want, ...]
    follow: Follow = nothing


def insert(groups: Sequence[Group]) -> Plan:
    return Plan(tuple(w for group in groups for job in group.jobs for w in _new(group.queue, job)), _changing)


def admit(admissions: Sequence[Admission]) -> Plan:
    first: list[Want] = []
    for admission in admissions:
        first.append(wants.ArrivalOf(admission.arrival.seq))
        if isinstance(admission.verdict, NewJob):
            first += _new(admission.queue, admission.verdict)
        first += [wants.JobOf(admission.arrival.id), wants.Recalled(admission.arrival.id)]
        first.append(wants.QueueOf(admission.queue))
    return Plan(tuple(first), _changing)


def advance(advances: Sequence[Advance]) -> Plan:
    checked(advances)  # before it is looked for: text with a NUL in it is none to a server
    first: list[Want] = []
    for item in advances:
        first += [wants.CourseOf(item.kind, item.id), wants.Recalled(memory_id(item.kind, item.id))]
        for made in item.jobs:
            first += _new(made.queue, made.job)
    return Plan(tuple(first), _changing)


def claim(request: ClaimRequest) -> Plan:
    first: list[Want] = [wants.WorkerOf(request.worker)]
    if request.ids is not None:
        return Plan((*first, *map(wants.JobOf, request.ids)), _changing)
    # Each job that is taken makes one lane give way; so many do without a job, of a share and of the rest.
    lanes = request.limit + 2 * GIVE_WAY_AT_ONCE + 1
    first += [wants.Ahead(share.queue, request.limit, lanes) for share in request.shares]
    return Plan(tuple(first), _claiming)


def settle(settlements: Sequence[Settlement], request: ClaimRequest | None) -> Plan:
    first: list[Want] = []
    for item in settlements:
        claimed = (item.job, item.fence, item.claim)
        first += [wants.JobOf(item.job), wants.ReservedBy(claimed)]
        if item.spent is not None:
            places = {(seen.pool, seen.key) for seen in item.spent.observations}
            first += [want for place in places for want in _place(place)]
    if request is not None:
        first += claim(request).first
    telling = {(item.job, item.fence, item.claim) for item in settlements if item.spent is not None}

    def follow(want: Want, row: Any) -> Iterator[Want]:
        yield from _changing(want, row)
        if isinstance(want, wants.ReservedBy) and not row and want.claim in telling:
            yield wants.UnheardOf(want.claim)  # it may have been counted anew, and is heard after all

    return Plan(tuple(first), follow)


def extend(heartbeat: Heartbeat) -> Plan:
    held = [wants.JobOf(one.job) for one in heartbeat.held]
    listed = frozenset(held)

    def follow(want: Want, row: Any) -> Iterator[Want]:
        if isinstance(want, wants.RunningOf):
            yield from map(wants.JobOf, row or ())
        elif want not in listed:  # it goes back, and whatever follows from that
            yield from _taking_back(want, row)

    return Plan((wants.WorkerOf(heartbeat.worker), wants.RunningOf(heartbeat.worker), *held), follow)


def reclaim(dead: Sequence[str]) -> Plan:
    over = tuple(sorted(set(dead)))
    workers = [wants.WorkerOf(worker) for worker in over]
    return Plan((wants.Overdue(over), wants.LeftOver(over), *workers), _taking_back)


def change(jobs: Iterable[str]) -> Plan:
    return Plan(tuple(map(wants.JobOf, jobs)), _taking_back)


def amend(jobs: Iterable[str], change: Change) -> Plan:
    """A retry forgets what was begun."""
    meant = tuple(jobs)
    steps = map(wants.StepsOf, meant if isinstance(change, RetryNow) else ())
    return Plan((*map(wants.JobOf, meant), *steps), _taking_back)


def steps(job: str) -> Plan:
    return Plan((wants.JobOf(job), wants.StepsOf(job)))


def queues(names: Iterable[str]) -> Plan:
    return Plan(tuple(map(wants.QueueOf, names)))


def pools(names: Iterable[str]) -> Plan:
    return Plan(
        tuple(want for name in names for want in (wants.PoolOf(name), wants.PlacesOf(name))), _changing
    )


def account(pool: str, key: str | None) -> Plan:
    return Plan(tuple(_place((pool, key))), _changing)


def copy_in(copies: Copies) -> Plan:
    first: list[Want] = [wants.QueueOf(name) for name in copies.queues]
    for copy in copies.jobs:
        job = copy.job
        first += [wants.JobOf(job.id), wants.QueueOf(job.queue), wants.LaneOf(job.queue, job.lane)]
        if copy.checkpoints:
            first.append(wants.StepsOf(job.id))
    first += [wants.CourseOf(course.kind, course.id) for course in copies.courses]
    for known in copies.ids:
        first += [wants.JobOf(known.request), wants.Recalled(known.request)]
    for name, pool in copies.pools.items():
        first += [wants.PoolOf(name), *(wants.AccountOf((name, key)) for key in pool.accounts)]
    return Plan(tuple(first))


def _new(queue: str, job: NewJob) -> Iterator[Want]:
    yield from (wants.JobOf(job.id), wants.Recalled(job.id))
    yield from (wants.QueueOf(queue), wants.LaneOf(queue, lane_of(job)))
    if job.unique is not None:
        yield wants.HoldersOf(queue, job.unique.key)
    for need in needs_alone(job):
        yield wants.PoolOf(need.pool)


def _place(place: tuple[str, str | None]) -> Iterator[Want]:
    yield from (
        wants.PoolOf(place[0]),
        wants.AccountOf(place),
        wants.WaitingFor(place),
        wants.ReservedAt(place),
    )


def _claiming(want: Want, row: Any) -> Iterator[Want]:
    """Jobs that are about to be claimed: what their pools say, and where one stands that has come due."""
    if isinstance(want, wants.JobOf) and isinstance(row, Job):
        if row.state is State.SCHEDULED:
            yield wants.LaneOf(row.queue, row.lane)
        for need in (*row.needs, *row.extra):
            yield from (wants.PoolOf(need.pool), wants.AccountOf((need.pool, need.key)))


def _taking_back(want: Want, row: Any) -> Iterator[Want]:
    """Running jobs that go back to the line, and the units they were given."""
    yield from _changing(want, row)
    if isinstance(want, wants.JobOf) and row is not None and row.claim:
        yield wants.ReservedBy((row.id, row.fence, row.claim))
    elif isinstance(want, wants.ReservedBy) and row:  # they are counted anew
        yield wants.UnheardOf(want.claim)


def _changing(want: Want, row: Any) -> Iterator[Want]:  # noqa: C901 - one line for each kind of row
    """Rows that are about to change: where they stand, who waits for them."""
    if row is None:
        return
    match want:
        case wants.JobOf():
            yield from (
                wants.QueueOf(row.queue),
                wants.LaneOf(row.queue, row.lane),
                wants.SuccessorsOf(row.id),
            )
            for need in (*row.needs, *row.extra):
                yield from _place((need.pool, need.key))
        case wants.HoldersOf() | wants.SuccessorsOf() | wants.Overdue():
            yield from map(wants.JobOf, row)
        case wants.WaitingFor():
            for queue in row:
                yield from (wants.QueueOf(queue), wants.ShutLanes(queue, want.place))
        case wants.ShutLanes():
            yield from (wants.LaneOf(want.queue, lane) for lane in row)
        case wants.ReservedBy():
            for held in row:
                yield from _place(held.place)
        case wants.LeftOver() | wants.ClaimsOn():
            yield from map(wants.ReservedBy, row)
        case wants.PlacesOf():
            for place in row:
                yield from _place(place)
