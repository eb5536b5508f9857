"""Everything a step changed, as commands."""

from __future__ import annotations

from collections import Counter

from tidemill.contract.reader import ATTEMPTS_KEPT, LOG_LINES
from tidemill.core.checkpoints import Checkpoint
from tidemill.core.ledger import PLACE, Reserved, Shut
from tidemill.engine import wants
from tidemill.engine.changes import Changes
from tidemill.engine.wants import LaneRow, QueueRow, Rows
from tidemill.stores.redis import arrivals, keys, rows
from tidemill.stores.redis.course_writes import write_courses
from tidemill.stores.redis.job_writes import write_job
from tidemill.stores.redis.rows import encode
from tidemill.stores.redis.writes import FORGOTTEN, Writes


def writes_of(changes: Changes, looked: Rows, now: float) -> Writes:
    writes = Writes()
    for moved in changes.jobs:
        write_job(writes, moved)
    _queues(writes, changes, looked)
    for (queue, lane), row in changes.lanes.items():
        _lane(writes, queue, lane, looked.get(wants.LaneOf(queue, lane)), row)
    _ids_and_workers(writes, changes)
    _pools(writes, changes, looked, now)
    for job, kept in changes.checkpoints.items():
        _steps(writes, job, looked.get(wants.StepsOf(job)) or (), kept)
    _appended(writes, changes)
    write_courses(writes, changes, looked)
    return writes


def _queues(writes: Writes, changes: Changes, looked: Rows) -> None:
    for name, row in changes.queues.items():
        writes.set(keys.QUEUES, name, rows.queue_text(row))
    for name in {queue for queue, _ in changes.groups}:
        before: QueueRow = looked.get(wants.QueueOf(name)) or QueueRow()
        marks = {group: one.shut for group, one in before.groups.items() if one.shut is not None}
        for (queue, group), mark in changes.groups.items():
            if queue == name:
                _mark(writes, marks, queue, group, mark)
        if marks:
            writes.set(keys.MARKS, name, rows.marks_text(marks))
        else:
            writes.unset(keys.MARKS, name)


def _mark(writes: Writes, marks: dict[str, Shut], queue: str, group: str, mark: Shut | None) -> None:
    gone = marks.pop(group, None)
    if gone is not None:
        writes.tally(keys.waiting(keys.place(gone.place)), queue, -1)
    if mark is not None:
        marks[group] = mark
        writes.tally(keys.waiting(keys.place(mark.place)), queue, 1)


def _lane(writes: Writes, queue: str, lane: str, before: LaneRow | None, after: LaneRow | None) -> None:
    if lane == "":
        writes.touch(queue, lane, b"" if after is None else str(after.served).encode())
        return
    writes.touch(queue, lane, FORGOTTEN if after is None else rows.lane_text(after))
    shut_before, shut_after = (None if row is None else row.shut for row in (before, after))
    if shut_before == shut_after:
        return
    if shut_before is not None:
        place = keys.place(shut_before.place)
        writes.remove(keys.wakes(queue), lane)
        writes.exclude(keys.shut(queue, place), lane)
        writes.tally(keys.waiting(place), queue, -1)
    if shut_after is not None:
        place = keys.place(shut_after.place)
        writes.add(keys.wakes(queue), shut_after.again, lane)
        writes.include(keys.shut(queue, place), lane)
        writes.tally(keys.waiting(place), queue, 1)


def _ids_and_workers(writes: Writes, changes: Changes) -> None:
    for request, known in changes.remembered.items():
        writes.set(keys.REMEMBERED, request, rows.remembered_text(request, known))
        writes.add(keys.FORGET, known.term.wall, request)
    for seq in changes.arrivals:
        writes.command("XDEL", keys.ARRIVALS, arrivals.name_of(seq))
    for worker, one in changes.workers.items():
        writes.set(keys.WORKERS, worker, rows.worker_text(one.info))
        writes.set(keys.NUMBERS, worker, one.number)
        writes.add(keys.ALIVE, one.lease, worker)


def _pools(writes: Writes, changes: Changes, looked: Rows, now: float) -> None:
    for name, pool in changes.pools.items():
        writes.set(keys.POOLS, name, rows.pool_text(pool))
    for place, account in changes.accounts.items():
        writes.set(keys.accounts(place[0]), place[1] or "", encode(account))
        if place[1] is not None:
            writes.add(keys.LOOKED, now, keys.place(place))
    for claim, held in changes.reserved.items():
        _reserved(writes, keys.claim(claim), looked.get(wants.ReservedBy(claim)) or (), held)
    for claim, left in changes.left.items():
        if left is None:
            writes.unset(keys.LEFT, keys.claim(claim))
        else:
            writes.set(keys.LEFT, keys.claim(claim), encode(left))
    for claim, since in changes.unheard.items():
        if since is None:
            writes.remove(keys.UNHEARD, keys.claim(claim))
        else:
            writes.add(keys.UNHEARD, since, keys.claim(claim))


def _reserved(
    writes: Writes, claim: bytes, before: tuple[Reserved, ...], after: tuple[Reserved, ...]
) -> None:
    if after:
        writes.set(keys.RESERVED, claim, encode(after))
    else:
        writes.unset(keys.RESERVED, claim)
    opened: Counter[PLACE] = Counter(one.place for one in after)
    opened.subtract(Counter(one.place for one in before))
    for place, by in opened.items():
        writes.tally(keys.RESERVED_AT, keys.place(place), by)


def _steps(writes: Writes, job: str, before: tuple[Checkpoint, ...], after: tuple[Checkpoint, ...]) -> None:
    """Numbered in the order they were first begun. A result may be large: only what changed is written."""
    known = {kept.step: kept for kept in before}
    numbers = {step: number for number, step in enumerate(known)}
    for kept in after:
        number = numbers.setdefault(kept.step, max(numbers.values(), default=-1) + 1)
        if known.pop(kept.step, None) != kept:
            writes.set(keys.steps(job), encode(kept.step), rows.step_text(number, kept))
    for step in known:
        writes.unset(keys.steps(job), encode(step))


def _appended(writes: Writes, changes: Changes) -> None:
    dropped = {moved.before.id for moved in changes.jobs if moved.before and moved.after is None}
    for job, attempts in changes.attempts.items():
        if job not in dropped:
            writes.command("RPUSH", keys.attempts(job), *map(encode, attempts))
            writes.command("LTRIM", keys.attempts(job), -ATTEMPTS_KEPT, -1)
    for job, lines in changes.logs.items():
        for line in lines:
            key = keys.lines(line.generation, line.attempt, job)
            writes.include(keys.logs(job), f"{line.generation}.{line.attempt}")
            writes.command("RPUSH", key, encode(line))
            writes.command("LTRIM", key, -LOG_LINES, -1)
    for (queue, minute), counts in changes.history.items():
        for what, by in counts.items():
            _minute(writes, keys.history(queue), minute, what)
            writes.count(keys.history(queue), f"{minute:.0f}:{what}", by)
    for (pool, minute), remark in changes.pool_history.items():
        key = keys.pool_history(pool)
        parts = {"calls": float(remark.calls)}
        parts |= {f"unit:{unit}": amount for unit, amount in remark.units.items()}
        parts |= {f"refusal:{reason}": float(times) for reason, times in remark.refusals.items()}
        for what, amount in parts.items():
            _minute(writes, key, minute, what)
            writes.command("PLUS", key, f"{minute:.0f}:{what}", repr(amount))


def _minute(writes: Writes, key: str, minute: float, what: str) -> None:
    """So that it is found when it is old."""
    writes.add(keys.MINUTES, minute, f"{key} {minute:.0f}:{what}")
