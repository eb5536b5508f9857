"""What the answers of look.lua mean."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha1
from typing import Any

from msgspec.structs import replace

from tidemill.core.calls import UNRIPE
from tidemill.engine import wants
from tidemill.engine.order import Key
from tidemill.engine.records import KnownWorker
from tidemill.engine.wants import Beginning, GroupRow, LaneRow, Want
from tidemill.stores.redis import arrivals, keys, rows
from tidemill.stores.redis.looks import Words, field_of, words_of
from tidemill.stores.redis.records import seq_and_id, unpacked
from tidemill.stores.redis.wire import Argument

LONG = 1000
"""What is longer is compared by its digest."""

One = tuple[Want, Any, list[Words]]
"""A want that was answered, its row, and what must still be so for it to be true."""
Found = Iterator[One]


def found(want: Want, answer: Any, boot: float) -> Found:  # noqa: C901, PLR0912 - a line for each kind
    """The row of a want, and of others that came with it."""
    match want:
        case wants.JobOf(id_):
            yield _job(id_, answer)
        case wants.QueueOf():
            yield _queue(want, answer)
        case wants.LaneOf():
            yield from _lane(want, answer)
        case wants.OpenLanes():
            yield want, _beginning(answer, _place), []
        case wants.Scheduled():
            yield want, _beginning(answer, lambda member, due: (due, *seq_and_id(member))), []
        case wants.Wakes():
            yield want, _beginning(answer, lambda lane, again: (again, lane.decode())), []
        case wants.Ahead():
            yield want, None, []
            for words, answered in answer:
                yield from _found_ahead(want.queue, words, answered, boot)
        case wants.StepsOf(job):
            yield _steps(job, answer)
        case wants.WorkerOf():
            yield _worker(want, answer)
        case wants.ArrivalOf(seq):
            row = arrivals.arrival_of(*answer[0]) if answer else None
            yield want, row, [("entry", keys.ARRIVALS, arrivals.name_of(seq), len(answer))]
        case wants.UnheardOf(claim):
            check = ("score", keys.UNHEARD, keys.claim(claim), answer or "")
            yield want, None if answer is None else float(answer), [check]
        case _:
            yield _field(want, field, answer) if (field := field_of(want)) else _list(want, answer, boot)


def _list(want: Want, answer: Sequence[bytes], boot: float) -> One:
    """Names of others. Those that are rows themselves are compared when they were read: then one that is gone
    is noticed, and how many there are shows that none has come."""
    match want:
        case wants.Overdue():
            members = sorted(map(seq_and_id, answer))
            return want, tuple(id_ for _, id_ in members), []
        case wants.HoldersOf() | wants.SuccessorsOf():
            check = ("order", words_of(want, 0)[2], *answer)
            return want, tuple(seq_and_id(member)[1] for member in answer), [check]
        case wants.RunningOf(worker):
            members = sorted(map(seq_and_id, answer))
            return want, tuple(id_ for _, id_ in members), [("members", keys.held(worker), *answer)]
        case wants.PlacesOf(pool):
            places = tuple((pool, key.decode() or None) for key in answer)
            return want, places, [("fields", keys.accounts(pool), len(answer))]
        case wants.ClaimsOn(pool):
            held = ((keys.claim_of(name), rows.reserved_of(text)) for name, text in _pairs(answer))
            return want, tuple(claim for claim, kept in held if any(one.pool == pool for one in kept)), []
        case wants.LeftOver(dead):
            left = ((keys.claim_of(name), rows.left_of(text)) for name, text in _pairs(answer))
            return want, tuple(claim for claim, to in left if to.lease <= boot or to.worker in dead), []
    return want, tuple(name.decode() for name in answer), _as_many(want, len(answer))


def _as_many(want: Want, count: int) -> list[Words]:
    """Whoever frees units must know who waits for them."""
    match want:
        case wants.WaitingFor(place):
            return [("fields", keys.waiting(keys.place(place)), count)]
        case wants.ShutLanes(queue, place) if place != UNRIPE:
            return [("size", keys.shut(queue, keys.place(place)), count)]
    return []


def _found_ahead(queue: str, words: Sequence[bytes], answer: Any, boot: float) -> Found:
    kind, *rest = (word.decode() for word in words)
    match kind, *rest:
        case "queue", _:
            yield from found(wants.QueueOf(queue), answer, boot)
        case "scheduled", *_:
            yield from found(wants.Scheduled(queue), answer, boot)
        case "wakes", *_:
            yield from found(wants.Wakes(queue), answer, boot)
        case "open", _, group, _:
            yield from found(wants.OpenLanes(queue, group), answer, boot)
        case "call", "SMEMBERS", _:
            yield from found(wants.ShutLanes(queue, UNRIPE), answer, boot)
        case "lane", _, lane, _:
            yield from found(wants.LaneOf(queue, lane), answer, boot)
        case _:
            for id_, one in zip(rest, answer, strict=True):
                yield _job(id_, one)


def _job(id_: str, answer: Sequence[Any]) -> One:
    record, lease = (*answer, None, None)[:2]
    checks = [_unchanged(keys.JOBS, id_, record)]
    if record is None:
        return wants.JobOf(id_), None, checks
    job = unpacked(id_, record, None if lease is None else float(lease))
    if lease is not None:
        checks.append(("hash", keys.running(job.queue), record[3:9] + id_.encode(), lease))
    return wants.JobOf(id_), job, checks


def _queue(want: wants.QueueOf, answer: Sequence[Any]) -> One:
    text, marked, sizes, is_plain = answer
    checks = [_unchanged(keys.QUEUES, want.name, text), _unchanged(keys.MARKS, want.name, marked)]
    if text is None:
        return want, None, checks
    marks = {} if marked is None else rows.marks_of(marked)
    lanes = {group.decode(): int(size) for group, size in _pairs(sizes)}
    if is_plain:
        lanes[""] = lanes.get("", 0) + 1
    groups = {group: GroupRow(lanes.get(group, 0), marks.get(group)) for group in lanes.keys() | marks.keys()}
    return want, replace(rows.queue_of(text), groups=groups), checks


def _lane(want: wants.LaneOf, answer: Sequence[Any]) -> Found:
    """The lane of plain jobs is compared with nothing: many serve it at once, and its row is nobody's."""
    text, total, members, records = answer
    jobs = _beginning((total, members), _in_lane)
    for key, record in zip(jobs.first, records, strict=False):
        yield _job(key[-1], (record,))
    if want.lane == "":
        yield want, LaneRow(int(text or 0), jobs=jobs) if total else None, []
    else:
        check = _unchanged(keys.lanes(want.queue), want.lane, text)
        yield want, None if text is None else rows.lane_of(text, jobs), [check]


def _in_lane(member: bytes, priority: float) -> Key:
    (due,) = struct.unpack_from(">d", member)
    return int(priority), due, *seq_and_id(member[8:])


def _place(member: bytes, priority: float) -> Key:
    return int(priority), int.from_bytes(member[:6]), int.from_bytes(member[6:12]), member[12:].decode()


def _beginning(answer: Sequence[Any], key: Callable[[bytes, float], Key]) -> Beginning:
    total, members = answer
    first = tuple(key(member, float(score)) for member, score in _pairs(members))
    return Beginning(first, complete=len(first) == total)


def _steps(job: str, answer: Sequence[bytes]) -> One:
    key = keys.steps(job)
    checks: list[Words] = [("fields", key, len(answer) // 2)]
    checks += [_unchanged(key, field, text) for field, text in _pairs(answer)]
    in_order = sorted(text for _, text in _pairs(answer))
    return wants.StepsOf(job), tuple(map(rows.step_of, in_order)), checks


def _worker(want: wants.WorkerOf, answer: Sequence[Any]) -> One:
    text, lease, number = answer
    checks = [
        _unchanged(keys.WORKERS, want.id, text),
        _unchanged(keys.NUMBERS, want.id, number),
        ("score", keys.ALIVE, want.id, lease or ""),
    ]
    if text is None:
        return want, None, checks
    return want, KnownWorker(rows.worker_of(want.id, text), float(lease), int(number)), checks


def _field(want: Want, field: tuple[str, Argument], text: bytes | None) -> One:
    if isinstance(want, wants.RunningIn | wants.CountOf | wants.ReservedAt):
        return want, int(text or 0), [("count", *field, int(text or 0))]
    return want, _row(want, text), [_unchanged(*field, text)]


def _row(want: Want, text: bytes | None) -> Any:
    if text is None:
        return () if isinstance(want, wants.ReservedBy) else None
    match want:
        case wants.Recalled(request):
            return rows.remembered_of(request, text)
        case wants.PoolOf():
            return rows.pool_of(text)
        case wants.AccountOf():
            return rows.account_of(text)
        case wants.ReservedBy():
            return rows.reserved_of(text)
        case wants.CourseOf(kind, id_):
            return rows.course_of(kind, id_, text)
    raise AssertionError(want)


def _unchanged(key: str, field: Argument, text: bytes | None) -> Words:
    if text is None:
        return "none", key, field
    if len(text) > LONG:
        return "digest", key, field, sha1(text, usedforsecurity=False).hexdigest()
    return "hash", key, field, text


def _pairs(flat: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    return zip(flat[::2], flat[1::2], strict=True)
