"""The least a store can be: rows in somebody's records, looked up one by one and as few as possible.

Shows that the verbs need nothing but what they ask for, and what writing their changes takes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tidemill.contract.reader import ATTEMPTS_KEPT, LOG_LINES
from tidemill.core.calls import UNRIPE
from tidemill.core.pool_history import Remark
from tidemill.engine import wants
from tidemill.engine.changes import Changes, Moved
from tidemill.engine.ledger import Left
from tidemill.engine.order import Key, Order
from tidemill.engine.records import Records
from tidemill.engine.wants import Beginning, GroupRow, LaneRow, Numbers, QueueRow, Rows, Want


class RecordsSource:
    """`usual` is how many of an order are given unasked, `refusals` which of the next commits are refused."""

    def __init__(self, records: Records, usual: int, refusals: list[bool]) -> None:
        self._records, self._usual, self._refusals = records, usual, refusals
        self._fences = 0

    async def look(self, wanted: Mapping[Want, int]) -> tuple[Rows, Numbers]:
        records = self._records
        clock, given = records.clock, (records.picks, records.seq, records.fence)
        numbers = Numbers(clock.wall(), clock.boot(), clock.boot_id, *given)
        rows = {want: self._answer(want, count) for want, count in wanted.items()}
        for want in wanted:
            if isinstance(want, wants.Ahead) and self._usual > 1 and want.queue in records.queues:
                rows |= {ahead: self._answer(ahead, want.lanes) for ahead in self._ahead(want)}
        return rows, numbers

    def _ahead(self, want: wants.Ahead) -> Iterator[Want]:
        records, queue = self._records, self._records.queues[want.queue]
        name, lanes = want.queue, queue.lanes
        yield from (wants.QueueOf(name), wants.Scheduled(name), wants.Wakes(name))
        yield wants.ShutLanes(name, UNRIPE)
        boot, wall = records.clock.boot(), records.clock.wall()
        yield from (wants.JobOf(key[-1]) for key in queue.scheduled.walk() if key[0] <= wall)
        due = [lane for again, lane in self._wakes(name, self._usual).first if again <= boot]
        served = [key[-1] for order in lanes._orders.values() for key in order.slice(0, want.lanes)]
        yield from (wants.OpenLanes(name, group) for group in lanes._orders)
        each = want.limit + 1 if len(served) == 1 else max(2, want.limit // max(1, len(served)) + 1)
        for lane in {*due, *served}:
            yield wants.LaneOf(name, lane)
            yield from map(wants.JobOf, lanes.ids(lane, 0, each))

    async def take_seqs(self, count: int) -> list[int]:
        return [self._records.next_seq() for _ in range(count)]

    async def take_fence(self) -> int:
        self._fences += 1
        return self._records.next_fence()

    async def commit(self, changes: Changes, rows: Rows) -> bool:
        if self._refusals and self._refusals.pop():
            self._records.fence -= self._fences  # as if nobody had asked: memory is beside it, and compared
            return False
        for want in changes.read:
            assert self._answer(want, _looked(rows[want])) == rows[want], f"{want} was not what it is"
        _write(self._records, changes)
        return True

    def _answer(self, want: Want, count: int) -> Any:  # noqa: C901, PLR0912 - a line for each kind
        records, books = self._records, self._records.books
        match want:
            case wants.JobOf(id_):
                return records.jobs.get(id_)
            case wants.Recalled(request):
                return records.memory.get(request)
            case wants.HoldersOf(queue, key):
                return _by_seq(records, records.keys.of((queue, key)))
            case wants.SuccessorsOf(job):
                return _by_seq(records, records.successors.of(job))
            case wants.RunningOf(worker):
                return _by_seq(records, records.running.of(worker))
            case wants.Overdue(dead):
                over = records.overdue(records.clock.boot(), frozenset(dead))
                return _by_seq(records, (job.id for job in over))
            case wants.PoolOf(name):
                pool = books.pools.get(name)
                return pool and type(pool)(pool.declared, pool.override)
            case wants.PoolNames():
                return tuple(books.pools)
            case wants.AccountOf(place):
                return books.accounts.get(place)
            case wants.PlacesOf(pool):
                return tuple(books.places_of(pool))
            case wants.ReservedBy(claim):
                return tuple(books.reserved.get(claim, ()))
            case wants.ReservedAt(place):
                return books.reservations(place)
            case wants.ClaimsOn(pool):
                return tuple(books.claims_on(pool))
            case wants.LeftOver(dead):
                return tuple(books.left_over(records.clock.boot(), frozenset(dead)))
            case wants.UnheardOf(claim):
                return books.unheard.get(claim)
            case wants.WorkerOf(id_):
                return records.workers.get(id_)
            case wants.StepsOf(job):
                return tuple(records.checkpoints.get(job, {}).values())
            case wants.CourseOf(kind, id_):
                return records.courses.get((kind, id_))
            case wants.ArrivalOf(seq):
                return records.arrivals.get(seq)
            case wants.WaitingFor(place):
                return tuple(
                    name
                    for name, queue in records.queues.items()
                    if queue.lanes._shut.of(place)
                    or any(mark.place == place for mark in queue.lanes.shut_groups.values())
                )
            case wants.Ahead():
                return None  # the verb asks for all of it by itself
        return self._of_queue(want, count)

    def _of_queue(self, want: Any, count: int) -> Any:
        if isinstance(want, wants.QueueOf):
            return self._queue(want.name)
        queue = self._records.queues.get(want.queue)
        match want:
            case wants.CountOf():
                return 0 if queue is None else queue.counts.of(want.state)
            case wants.RunningIn():
                return 0 if queue is None else queue.running_in.of(want.key)
            case wants.ShutLanes():
                return () if queue is None else tuple(queue.lanes._shut.of(want.place))
            case wants.Scheduled():
                return Beginning() if queue is None else _beginning(queue.scheduled, count or self._usual)
            case wants.OpenLanes():
                order = None if queue is None else queue.lanes._orders.get(want.group)
                return Beginning() if order is None else _beginning(order, count or self._usual)
            case wants.Wakes():
                return Beginning() if queue is None else self._wakes(want.queue, count)
            case wants.LaneOf():
                return None if queue is None else self._lane(want.queue, want.lane, count)
        raise AssertionError(want)

    def _queue(self, name: str) -> QueueRow | None:
        queue = self._records.queues.get(name)
        if queue is None:
            return None
        sizes, marks = queue.lanes._sizes, queue.lanes.shut_groups
        groups = {group: GroupRow(sizes[group], marks.get(group)) for group in {*sizes, *marks}}
        return QueueRow(queue.declared, queue.override, queue.pause, groups)

    def _lane(self, queue: str, name: str, count: int) -> LaneRow | None:
        lane = self._records.queues[queue].lanes._lanes.get(name)
        if lane is None:
            return None
        return LaneRow(
            lane.served, lane.shut, lane.lacks, lane.ripe, _beginning(lane.jobs, count or self._usual)
        )

    def _wakes(self, queue: str, count: int) -> Beginning:
        lanes = self._records.queues[queue].lanes._lanes
        times = sorted((lane.shut.again, name) for name, lane in lanes.items() if lane.shut is not None)
        first = times[: count or self._usual]
        return Beginning(tuple(first), complete=len(first) == len(times))


def _by_seq(records: Records, ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(ids, key=lambda id_: records.jobs[id_].seq))


def _beginning(order: Order, count: int) -> Beginning:
    first: list[Key] = order.slice(0, count)
    return Beginning(tuple(first), complete=len(first) == len(order))


def _looked(row: Any) -> int:
    if isinstance(row, LaneRow):
        row = row.jobs
    return len(row.first) if isinstance(row, Beginning) else 0


def _write(records: Records, changes: Changes) -> None:
    for name, row in changes.queues.items():
        queue = records.queue(name)
        queue.declared, queue.override, queue.pause = row.declared, row.override, row.pause
    for moved in sorted(changes.jobs, key=_place):
        _move(records, moved)
    records.end_step()
    for (name, lane), state in changes.lanes.items():
        if state is not None:
            _set_lane(records, name, lane, state)
    for (name, group), mark in changes.groups.items():
        marks = records.queues[name].lanes.shut_groups
        marks.pop(group, None)
        if mark is not None:
            marks[group] = mark
    records.picks += changes.picked
    _write_rows(records, changes)
    _write_reservations(records, changes)
    _append(records, changes)


def _write_rows(records: Records, changes: Changes) -> None:
    for request, known in changes.remembered.items():
        records.memory.pop(request, None)
        records.memory[request] = known
    for seq in changes.arrivals:
        del records.arrivals[seq]
    records.workers.update(changes.workers)
    for at, course in changes.courses.items():
        if course is not None:
            records.put_course(course)
        elif at in records.courses:
            records.drop_course(records.courses[at])
    records.take_stirs(changes.taken)
    for stir in changes.stirs:
        records.stir(*stir.course, stir.job)
    for job, steps in changes.checkpoints.items():
        records.checkpoints[job] = {checkpoint.step: checkpoint for checkpoint in steps}
    records.books.pools.update(changes.pools)
    for place, account in changes.accounts.items():
        records.books.accounts[place] = account
        records.books._looked[place] = records.clock.wall()


def _place(moved: Moved) -> tuple[bool, int]:
    """New jobs last and in their order: records keep them by seq."""
    job = moved.after or moved.before
    assert job is not None
    return moved.before is None, job.seq


def _move(records: Records, moved: Moved) -> None:
    if moved.after is not None:
        records.put(moved.after)
    elif moved.before is not None:
        job = moved.before
        records.queues[job.queue].unfile(job)
        records._unlink(job)
        del records.jobs[job.id]
        records._forget_details(job.id)


def _set_lane(records: Records, queue: str, name: str, row: LaneRow) -> None:
    lanes = records.queues[queue].lanes
    lane = lanes._lanes[name]
    lanes._take_out(name, lane)
    lanes._unmark(name, lane)
    lane.served = row.served
    if row.shut is None:
        lanes._put_in(name, lane)
    else:
        lanes._put_in(name, lane)
        lanes.shut(name, row.shut, row.lacks)
    lane.lacks, lane.ripe = row.lacks, row.ripe


def _write_reservations(records: Records, changes: Changes) -> None:
    books = records.books
    for claim, held in changes.reserved.items():
        for gone in books.reserved.pop(claim, ()):
            books._open.change(gone.place, -1)
        books.hold(claim, held)
    for claim, left in changes.left.items():
        books.left.pop(claim, None)
        if isinstance(left, Left):
            books.left[claim] = left
    for claim, since in changes.unheard.items():
        books.unheard.pop(claim, None)
        if since is not None:
            books.unheard[claim] = since


def _append(records: Records, changes: Changes) -> None:
    for job, attempts in changes.attempts.items():
        records.attempts.setdefault(job, deque(maxlen=ATTEMPTS_KEPT)).extend(attempts)
    for job, lines in changes.logs.items():
        for line in lines:
            of_job = records.logs.setdefault(job, {})
            of_job.setdefault((line.generation, line.attempt), deque(maxlen=LOG_LINES)).append(line)
    for (name, minute), counts in changes.history.items():
        records.queue(name).history.setdefault(minute, Counter()).update(counts)
    for (pool, minute), what in changes.pool_history.items():
        minutes = records.books.history.setdefault(pool, {})
        minutes[minute] = minutes.get(minute, Remark()).plus(what)
