"""Queues and their lanes, as a step wants to know them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from asyncpg import Record

from tidemill.contract.jobs import PROMOTE_AT_ONCE
from tidemill.core.calls import UNRIPE
from tidemill.core.job import Job
from tidemill.core.ledger import Shut
from tidemill.core.queues import Override, Pause, QueueSettings
from tidemill.engine import wants
from tidemill.engine.order import Key
from tidemill.engine.wants import Beginning, GroupRow, LaneRow, QueueRow
from tidemill.stores.postgres.columns import words
from tidemill.stores.postgres.look_books import key_text, place_of
from tidemill.stores.postgres.rows import COLUMNS, job_of
from tidemill.stores.postgres.statements import load
from tidemill.stores.postgres.view import Found, View, put_jobs

SQL = load("look_lanes")
_PLAIN = SQL.plain.replace("{columns}", COLUMNS)
_HEADS = SQL.heads.replace("{columns}", COLUMNS)
_DUE = SQL.due.replace("{columns}", COLUMNS)
_DECLARED = msgspec.json.Decoder(QueueSettings)
_OVERRIDE = msgspec.json.Decoder(Override)
_PAUSE = msgspec.json.Decoder(Pause)

USUAL = 8
"""Keys of an order that are given unasked. Of plain jobs fewer: they are locked."""
USUAL_PLAIN = 2
MOST_OF_BATCHES = 2000
"""Jobs of one lane that are looked up for a claim of batches."""

Lane = tuple[str, str]
"""Queue and name."""


def settings_of(declared: str, override: str | None, pause: str | None) -> QueueRow:
    return QueueRow(
        _DECLARED.decode(declared),
        None if override is None else _OVERRIDE.decode(override),
        None if pause is None else _PAUSE.decode(pause),
    )


def _mark_of(row: Record) -> Shut | None:
    """Of a lane or a group; None for one that is open."""
    if row["again"] is None:
        return None
    place = place_of(row["pool"], row["key"])
    return Shut(*place, until=row["until"], again=row["again"], priority=row["urgency"])


async def queues(view: View, wanted: Iterable[wants.QueueOf], found: Found) -> None:
    names = [want.name for want in wanted]
    found.update(dict.fromkeys(map(wants.QueueOf, names)))
    known = await view.fetch(SQL.queues, names)
    groups = {name: {"": GroupRow(1)} for name in names}  # of the lane '', which is there for good
    for row in await view.fetch(SQL.groups, names):
        size = row["lanes"] + (not row["grp"])
        groups[row["queue"]][row["grp"]] = GroupRow(size, _mark_of(row))
    for name, *texts in known:
        set_ = settings_of(*texts)
        found[wants.QueueOf(name)] = QueueRow(set_.declared, set_.override, set_.pause, groups[name])


async def lanes(view: View, wanted: Mapping[wants.LaneOf, int], found: Found) -> None:
    for want, count in wanted.items():
        if not want.lane:
            await _look_at_plain(view, want.queue, count or USUAL_PLAIN, found)
    counts = {(want.queue, want.lane): count or USUAL for want, count in wanted.items() if want.lane}
    if counts:
        rows = await view.fetch(SQL.keys, *_counted(counts))
        keys: dict[Lane, list[Key]] = defaultdict(list)
        for queue, lane, *key in rows:
            keys[queue, lane].append(tuple(key))
        await _put_lanes(view, counts, keys, found)


def _counted(counts: Mapping[Lane, int]) -> tuple[list[str], list[str], list[str | None]]:
    """One more than is wanted of each: it tells whether that is all."""
    return [queue for queue, _ in counts], [lane for _, lane in counts], words(n + 1 for n in counts.values())


async def _put_lanes(
    view: View, counts: Mapping[Lane, int], keys: Mapping[Lane, list[Key]], found: Found
) -> None:
    found.update(dict.fromkeys(wants.LaneOf(*at) for at in counts))
    for row in await view.fetch(SQL.lanes, *_counted(counts)[:2]):
        at = row["queue"], row["lane"]
        jobs = _beginning(keys.get(at, []), counts[at])
        found[wants.LaneOf(*at)] = LaneRow(row["served"], _mark_of(row), row["lacks"], row["ripe"], jobs)


def _beginning(keys: list[Any], count: int) -> Beginning:
    return Beginning(tuple(keys[:count]), complete=len(keys) <= count)


def _key(job: Job) -> Key:
    return (job.priority, job.due, job.seq, job.id)


async def _look_at_plain(view: View, queue: str, count: int, found: Found) -> None:
    """The first of the lane ''. Whoever looks again sees at least the same ones: they are locked."""
    known = view.plain.get(queue)
    if known is None or (known.count < count and not known.is_all):
        jobs = put_jobs(await view.fetch(_PLAIN, queue, count), found)
        if known is None:
            rows = await view.fetch(SQL.lanes, [queue], [""])
            served = rows[0]["served"] if rows else 0
        else:
            served = known.served
        known = view.plain[queue] = Plain(jobs, count, served)
    row = None
    if known.jobs:
        keys = tuple(map(_key, known.jobs))
        row = LaneRow(known.served, jobs=Beginning(keys, complete=known.is_all))
    found[wants.LaneOf(queue, "")] = row
    if queue in view.open:
        _put_open(view, queue, found)


class Plain(msgspec.Struct):
    """What is known of a lane '': its first jobs, how many were asked for, when it was last served."""

    jobs: list[Job]
    count: int
    served: int

    @property
    def is_all(self) -> bool:
        return len(self.jobs) < self.count


async def open_lanes(view: View, wanted: Mapping[wants.OpenLanes, int], found: Found) -> None:
    for want, count in wanted.items():
        most = count or USUAL
        rows = await view.fetch(SQL.open, want.queue, want.group, most + 1)
        places = [tuple(row) for row in rows]
        if want.group:
            found[want] = _beginning(places, most)
        else:
            view.open[want.queue] = _beginning(places, most)
            if want.queue in view.plain:
                _put_open(view, want.queue, found)
            else:
                await _look_at_plain(view, want.queue, USUAL_PLAIN, found)


def _put_open(view: View, queue: str, found: Found) -> None:
    """The lane '' among the others of its group. Its head is in no row: it is whoever is first."""
    others, plain = view.open[queue], view.plain[queue]
    places = list(others.first)
    if plain.jobs:
        head = plain.jobs[0]
        place = (head.priority, plain.served, head.seq, "")
        if others.complete or place < places[-1]:
            places = sorted([*places, place])
    found[wants.OpenLanes(queue, "")] = Beginning(tuple(places), complete=others.complete)


async def scheduled(view: View, wanted: Mapping[wants.Scheduled, int], found: Found) -> None:
    wall = view.numbers.wall
    for want, count in wanted.items():
        due = put_jobs(await view.fetch(_DUE, want.queue, wall, PROMOTE_AT_ONCE + 1), found)
        keys: list[Key] = [(job.due, job.seq, job.id) for job in due]
        complete = False
        if len(keys) <= PROMOTE_AT_ONCE:
            most = max(1, count)
            later = [tuple(row) for row in await view.fetch(SQL.later, want.queue, wall, most + 1)]
            keys += later[:most]
            complete = len(later) <= most
        found[want] = Beginning(tuple(keys), complete=complete)


async def wakes(view: View, wanted: Mapping[wants.Wakes, int], found: Found) -> None:
    for want, count in wanted.items():
        most = max(count, 8 * USUAL)
        rows = await view.fetch(SQL.wakes, want.queue, most + 1)
        found[want] = _beginning([tuple(row) for row in rows], most)


async def shut_lanes(view: View, wanted: Iterable[wants.ShutLanes], found: Found) -> None:
    at = list(wanted)
    rows = await view.fetch(
        SQL.shut,
        [want.queue for want in at],
        [want.place[0] for want in at],
        [key_text(want.place[1]) for want in at],
    )
    shut: dict[wants.ShutLanes, list[str]] = {want: [] for want in at}
    for queue, pool, key, lane in rows:
        shut[wants.ShutLanes(queue, place_of(pool, key))].append(lane)
    for want, names in shut.items():
        found[want] = tuple(names)


async def waiting_for(view: View, wanted: Iterable[wants.WaitingFor], found: Found) -> None:
    at = list(wanted)
    pools, keys = [want.place[0] for want in at], [key_text(want.place[1]) for want in at]
    waiting: dict[wants.WaitingFor, list[str]] = {want: [] for want in at}
    for pool, key, queue in await view.fetch(SQL.waiting_for, pools, keys):
        waiting[wants.WaitingFor(place_of(pool, key))].append(queue)
    for want, names in waiting.items():
        found[want] = tuple(names)


async def ahead(view: View, wanted: Iterable[wants.Ahead], found: Found) -> None:
    for want in wanted:
        found[want] = None
        await _ahead(view, want, found)


async def _ahead(view: View, want: wants.Ahead, found: Found) -> None:
    queue, limit = want.queue, want.limit
    await queues(view, [wants.QueueOf(queue)], found)
    row: QueueRow | None = found[wants.QueueOf(queue)]
    if row is None:
        return
    await scheduled(view, {wants.Scheduled(queue): 0}, found)
    await wakes(view, {wants.Wakes(queue): 0}, found)
    over = [lane for again, lane in found[wants.Wakes(queue)].first if again <= view.numbers.boot]
    await lanes(view, {wants.LaneOf(queue, lane): 0 for lane in over}, found)
    # Whether there are any that wait for company: more than this step can open are enough to know.
    rows = await view.fetch(SQL.unripe, queue, UNRIPE[0], want.lanes + len(over) + 1)
    found[wants.ShutLanes(queue, UNRIPE)] = tuple(row["lane"] for row in rows)
    boot = view.numbers.boot
    groups = {
        group: of.shut is None or not of.shut.holds(boot) for group, of in row.groups.items() if of.size
    }
    for group, is_open in groups.items():  # of those that are shut only whether a head is more urgent
        await open_lanes(view, {wants.OpenLanes(queue, group): want.lanes if is_open else 0}, found)
    opened = [group for group, is_open in groups.items() if is_open]
    offered = {group: found[wants.OpenLanes(queue, group)].first for group in opened}
    count = sum(min(limit, len(places)) for places in offered.values()) + len(over)
    each = limit + 1 if count <= 1 else max(2, limit // count + 1)
    names = {place[3] for places in offered.values() for place in places}
    if "" in names:
        await _look_at_plain(view, queue, each, found)
    await _heads(view, {(queue, lane): each for lane in sorted({*names, *over}) if lane}, limit, found)


async def _heads(view: View, counts: dict[Lane, int], limit: int, found: Found) -> None:
    """Lanes with the jobs they begin with. A batch takes many at once."""
    if not counts:
        return
    jobs = _by_lane(await view.fetch(_HEADS, *_counted(counts)))
    larger: dict[Lane, int] = {}
    for at, of_lane in jobs.items():
        if (rule := of_lane[0].batching) is not None:
            most = min(MOST_OF_BATCHES, rule.max_items * (counts[at] if len(counts) > 1 else limit))
            if most > counts[at] and len(of_lane) > counts[at]:
                larger[at] = most
    if larger:
        jobs |= _by_lane(await view.fetch(_HEADS, *_counted(larger)))
        counts = counts | larger
    for of_lane in jobs.values():
        found.update((wants.JobOf(job.id), job) for job in of_lane)
    await _put_lanes(view, counts, {at: list(map(_key, of_lane)) for at, of_lane in jobs.items()}, found)


def _by_lane(rows: Iterable[Record]) -> dict[Lane, list[Job]]:
    jobs: dict[Lane, list[Job]] = defaultdict(list)
    for job in map(job_of, rows):
        jobs[job.queue, job.lane].append(job)
    return dict(jobs)
