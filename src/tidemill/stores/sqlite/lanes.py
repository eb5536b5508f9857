"""The lanes of one queue as a claim sees them: which are open, and who shuts them.

Lanes that need the same pools are a group. A group is passed over by one row, a lane that a keyed pool
refused, or whose batch waits for company, is not in the index of open lanes: neither costs a claim anything,
whatever stands in line there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from tidemill.core import calls, extras
from tidemill.core import ledger as books
from tidemill.core.batching import Batching
from tidemill.core.calls import UNRIPE, Call, Unripe
from tidemill.core.flow_jobs import InFlow
from tidemill.core.lanes import Ahead, Gate, OpenLane, Picked
from tidemill.core.ledger import Reserved, Stopped
from tidemill.core.needs import Need, group_of_lane, key_of
from tidemill.core.queues import QueueSettings
from tidemill.stores.sqlite.ledger import LANES as SQL
from tidemill.stores.sqlite.ledger import waits_for
from tidemill.stores.sqlite.transaction import Transaction

UNLIMITED = 2**62
SHUT_AT_ONCE = 1000
"""How many lanes one claim finds shut at most: the next goes on from there."""
_CHUNK = 64
_BEFORE_ALL = (-(2**31), -1, -1)
ALONE = Call(1, ())


class Ready(msgspec.Struct, array_like=True, frozen=True):
    """A ready job as `claim.sql: ready` packs it."""

    seq: int
    id: str
    task: str
    payload: str
    priority: int
    lane: str
    attempts: int
    crashes: int
    generation: int
    timeout: float | None
    trace: str | None
    created: float
    due: float
    part: str
    expires: float | None
    packed_needs: tuple[Need, ...] | None = None
    batching: Batching | None = None
    packed_extra: tuple[Need, ...] | None = None
    flow: InFlow | None = None

    @property
    def extra(self) -> tuple[Need, ...]:
        return self.packed_extra or ()

    @property
    def needs(self) -> tuple[Need, ...]:
        return self.packed_needs or ()


class Look(NamedTuple):
    """At a queue, before anything is taken from it. `has_groups`: open lanes need pools."""

    due: float | None
    has_groups: int
    wake: float | None

    @property
    def waits(self) -> bool:
        """Some jobs need pools: they may be shut, now or by this claim."""
        return bool(self.has_groups) or self.wake is not None


class Rooms:
    """How many jobs of each key may start now; as this claim takes some, fewer."""

    def __init__(self, transaction: Transaction, queue: str, settings: QueueSettings, running: str) -> None:
        self._transaction, self._queue, self._running = transaction, queue, running
        self._limit = settings.key_concurrency
        self._rooms: dict[str, int] = {}

    def of(self, lane: str) -> int:
        if self._limit is None or not (key := key_of(lane)):
            return UNLIMITED
        if key not in self._rooms:
            running: int = self._transaction.execute(self._running, (self._queue, key)).get
            self._rooms[key] = self._limit - running
        return self._rooms[key]

    def take(self, lane: str, jobs: int) -> None:
        key = key_of(lane)
        if key in self._rooms:
            self._rooms[key] -= jobs


class Offer:
    """Of each open group its lanes, in the order they are served; those found full are passed over from
    now on. `pooled`: some of them need pools."""

    def __init__(
        self, transaction: Transaction, queue: str, rooms: Rooms, limit: int, *, pooled: bool
    ) -> None:
        self._limit = limit
        groups = [""]
        if pooled:
            rows = transaction.execute(SQL.open_groups, (queue, transaction.boot))
            groups = [group for (group,) in rows]
        self._groups = {group: _lanes(transaction, queue, rooms, limit, group) for group in groups}
        self._followed = 0

    @property
    def is_cut(self) -> bool:
        return self._followed >= SHUT_AT_ONCE

    def first(self) -> list[OpenLane]:
        return [lane for lanes in self._groups.values() for lane in islice(lanes, self._limit)]

    def following(self, group: str) -> OpenLane | None:
        self._followed += 1
        return None if self.is_cut else next(self._groups[group], None)


def _lanes(transaction: Transaction, queue: str, rooms: Rooms, limit: int, group: str) -> Iterator[OpenLane]:
    """Apart from the offer: a generator that knows its keeper is left to the garbage collector, and every
    claim makes one."""
    after, count = _BEFORE_ALL, limit
    while True:
        rows = transaction.execute(SQL.open_lanes, (queue, group, *after, count)).fetchall()
        for name, served, priority, seq in rows:
            room = rooms.of(name)
            if room > 0:
                yield OpenLane(name, served, priority, seq, room, group)
            else:
                transaction.execute(SQL.full, (queue, name))
        if len(rows) < count:
            return
        _, served, priority, seq = rows[-1]
        after, count = (priority, served, seq), max(count, _CHUNK)


class Doors:
    """What the jobs of a claim take of their pools, and who is refused."""

    def __init__(self, transaction: Transaction, queue: str, rooms: Rooms) -> None:
        self._transaction, self._queue, self._rooms = transaction, queue, rooms
        self.taken: dict[str, tuple[Reserved, ...]] = {}
        self.calls: dict[str, str] = {}
        self._called: set[str] = set()
        self._full: set[str] = set()
        self._unripe: dict[str, Unripe] = {}
        self._stopped: dict[str, tuple[Stopped, int]] = {}

    def admits(self, job: Ready, ahead: Ahead[Ready], most: int) -> int | Gate:
        most = min(most, self._rooms.of(job.lane))
        if most <= 0:  # another lane has the same key
            self._full.add(job.lane)
            return Gate.LANE_SHUT
        answer = self._begun(job, ahead, most)
        if isinstance(answer, Unripe):
            self._unripe[job.lane] = answer
            return Gate.LANE_SHUT
        if isinstance(answer, Stopped):
            gate = answer.gate(job.lane)
            name = group_of_lane(job.lane) if gate is Gate.GROUP_SHUT else job.lane
            self._stopped[name] = (answer, job.priority)
            return gate
        if answer.reserved:
            self.taken[job.id] = answer.reserved
        self._rooms.take(job.lane, answer.jobs)
        return answer.jobs

    def _begun(self, job: Ready, ahead: Ahead[Ready], most: int) -> Unripe | Stopped | Call:
        if job.batching is not None:
            return self._call(job.batching, ahead(job.batching.max_items), most)
        if not (job.packed_needs or job.packed_extra):
            return ALONE
        ledger, lane = self._transaction.ledger, (self._queue, job.lane)
        answer = extras.ask_for(ledger, job, ledger.now, lane)
        return answer if isinstance(answer, Stopped) else Call(1, answer)

    def _call(self, rule: Batching, waiting: Sequence[Ready], most: int) -> Unripe | Stopped | Call:
        """B1 to B4."""
        ledger, now, lane = self._transaction.ledger, self._transaction.now, waiting[0].lane
        answer = calls.begin(
            ledger,
            rule,
            waiting,
            most,
            lambda job: job.expires is not None and job.expires <= now,
            self._ripe_at(lane),
            ledger.now,
            (self._queue, lane),
        )
        if isinstance(answer, Call):
            self._called.add(lane)
            self.calls.update((job.id, waiting[0].id) for job in waiting[: answer.jobs])
        return answer

    def _ripe_at(self, lane: str) -> float | None:
        """Whoever is left behind a call waits by his own time."""
        if lane in self._called:
            return None
        known: float | None = self._transaction.execute(
            SQL.ripe_at, (self._queue, lane, waits_for(UNRIPE))
        ).get
        return known

    def shut(self, picked: Picked[Ready]) -> None:
        """P12, B2."""
        transaction, queue = self._transaction, self._queue
        for lane in picked.shut_lanes:
            if lane in self._full:
                transaction.execute(SQL.full, (queue, lane))
                continue
            unripe = self._unripe.get(lane)
            shut = self._shut(lane) if unripe is None else unripe.shut(transaction.boot)
            lacks = 0 if unripe is None else unripe.lacks
            transaction.execute(SQL.shut, (shut.again, waits_for(shut.place), lacks, queue, lane))
        for group in picked.shut_groups:
            shut = self._shut(group)
            row = (queue, group, shut.pool, shut.priority, shut.until, shut.again)
            transaction.execute(SQL.shut_group, row)

    def _shut(self, name: str) -> books.Shut:
        (stopped, priority), ledger = self._stopped[name], self._transaction.ledger
        ends = ledger.override_ends(stopped.need.pool)
        return books.shut_by(stopped, priority, ends, ledger.now)


def next_wait(transaction: Transaction, queue: str) -> float | None:
    """The boot time when the first wait of a shut group or lane is over."""
    until: float | None = transaction.execute(SQL.next_wait, (queue, transaction.boot)).get
    return until


def lingers(transaction: Transaction, queue: str) -> bool:
    """A batch waits for company."""
    return bool(transaction.execute(SQL.lingers, (queue, waits_for(UNRIPE))).get)
