"""What a verb may want to know, row by row, and how a store answers.

A want is a name for one answer, None where there is no such thing. A store that is asked for one may answer
others with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tidemill.core.courses import Kind
from tidemill.core.ledger import PLACE, Shut
from tidemill.core.queues import Override, Pause, QueueSettings
from tidemill.core.states import State
from tidemill.engine.ledger import Claim
from tidemill.engine.order import Key


class Want(msgspec.Struct, frozen=True, tag=True):
    """Something that is looked up."""


class JobOf(Want, frozen=True):
    """→ Job"""

    id: str


class Recalled(Want, frozen=True):
    """→ Remembered, whether or not its time is over"""

    request: str


class HoldersOf(Want, frozen=True):
    """→ tuple of ids: the jobs that may hold a unique key (`unique_holds` or live), by seq"""

    queue: str
    key: str


class SuccessorsOf(Want, frozen=True):
    """→ tuple of ids: the jobs that wait for it to end, by seq"""

    job: str


class RunningOf(Want, frozen=True):
    """→ tuple of ids: the jobs running in a worker's name, by seq"""

    worker: str


class RunningIn(Want, frozen=True):
    """→ int: how many jobs of a key run, whatever their lanes"""

    queue: str
    key: str


class CountOf(Want, frozen=True):
    """→ int: how many jobs of a queue are in a state"""

    queue: str
    state: State


class QueueOf(Want, frozen=True):
    """→ QueueRow; None for a queue that nobody declared, overrode or paused and that never had a job"""

    name: str


class LaneOf(Want, frozen=True):
    """→ LaneRow with at least the first `count` of its jobs; `count` is not part of its name"""

    queue: str
    lane: str


class OpenLanes(Want, frozen=True):
    """→ Beginning of (head priority, served, head seq, lane) of the open lanes of a group"""

    queue: str
    group: str


class Scheduled(Want, frozen=True):
    """→ Beginning of (due, seq, id): those that are due, PROMOTE_AT_ONCE at most, and the next one"""

    queue: str


class Wakes(Want, frozen=True):
    """→ Beginning of (again, lane) of the lanes that are shut: those whose time is over, and the next one"""

    queue: str


class ShutLanes(Want, frozen=True):
    """→ tuple of lanes of the queue that are shut, waiting for that account"""

    queue: str
    place: PLACE


class WaitingFor(Want, frozen=True):
    """→ tuple of queues that have lanes or groups shut, waiting for that account"""

    place: PLACE


class PoolOf(Want, frozen=True):
    """→ engine.ledger.Pool"""

    name: str


class PoolNames(Want, frozen=True):
    """→ tuple of all declared names"""


class AccountOf(Want, frozen=True):
    """→ Account"""

    place: PLACE


class PlacesOf(Want, frozen=True):
    """→ tuple of the accounts there are of a pool"""

    pool: str


class ReservedBy(Want, frozen=True):
    """→ tuple of Reserved, in the order they were taken"""

    claim: Claim


class ReservedAt(Want, frozen=True):
    """→ int: how many reservations of an account are open"""

    place: PLACE


class ClaimsOn(Want, frozen=True):
    """→ tuple of the claims that hold units of a pool"""

    pool: str


class LeftOver(Want, frozen=True):
    """→ tuple of the claims that were left their units, and whose time is over or whose worker is dead"""

    dead: tuple[str, ...]


class UnheardOf(Want, frozen=True):
    """→ float: the wall time since which the units of a claim are counted anew"""

    claim: Claim


class Overdue(Want, frozen=True):
    """→ tuple of ids of running jobs whose lease is over or whose worker is dead, by seq"""

    dead: tuple[str, ...]


class WorkerOf(Want, frozen=True):
    """→ KnownWorker"""

    id: str


class StepsOf(Want, frozen=True):
    """→ tuple of Checkpoint, in the order they were first begun"""

    job: str


class ArrivalOf(Want, frozen=True):
    """→ Arrival"""

    seq: int


class CourseOf(Want, frozen=True):
    """→ Course"""

    kind: Kind
    id: str


class Ahead(Want, frozen=True):
    """→ anything. What a claim of `limit` jobs from the queue usually meets, answered as other wants: its
    QueueOf, Scheduled with the JobOf of those that are due, Wakes with the LaneOf of those whose time is
    over, ShutLanes of core.calls.UNRIPE, the first `lanes` OpenLanes of every group, the LaneOf of these with
    their first jobs and the JobOf of those: `limit` + 1 of an only lane, max(2, limit // lanes + 1) of each
    of several."""

    queue: str
    limit: int
    lanes: int


class Beginning(msgspec.Struct, frozen=True):
    """The first of an order; `complete` when there are no more."""

    first: tuple[Key, ...] = ()
    complete: bool = True


UNKNOWN = Beginning((), complete=False)


class GroupRow(msgspec.Struct, frozen=True):
    """Lanes that need the same pools: how many there are, shut ones too, and why they are shut together."""

    size: int
    shut: Shut | None = None


class QueueRow(msgspec.Struct, frozen=True):
    """`groups` are those that have lanes, or a mark."""

    declared: QueueSettings = QueueSettings()
    override: Override | None = None
    pause: Pause | None = None
    groups: dict[str, GroupRow] = {}


class LaneRow(msgspec.Struct, frozen=True):
    """As engine.lanes.Lane. `jobs` begins with (priority, due, seq, id) of its head."""

    served: int
    shut: Shut | None = None
    lacks: int = 0
    ripe: float | None = None
    jobs: Beginning = Beginning()


class Numbers(msgspec.Struct, frozen=True):
    """Store-wide: the clocks when the step began to look, how many picks there were so far, and which place
    in line and which fence were given last."""

    wall: float
    boot: float
    boot_id: str
    picks: int
    seq: int
    fence: int


Rows = Mapping[Want, Any]


class Unloaded(Exception):
    """A step wants to know what was not looked up yet. `count`: of a beginning, how many."""

    def __init__(self, want: Want, count: int = 0) -> None:
        super().__init__(want, count)
        self.want, self.count = want, count
