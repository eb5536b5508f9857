"""What the keys of a shard are called, without the root they begin with (docs/reference/redis-keys.md).

Names that people choose may hold any character, so where two of them meet in one key the first says how
long it is.
"""

from __future__ import annotations

import msgspec

from tidemill.core.courses import Kind
from tidemill.core.ledger import PLACE
from tidemill.core.states import FINAL, State
from tidemill.engine.ledger import Claim

JOBS = "jobs"
PAGES = "pages"
QUEUES = "queues"
COUNTS = "counts"
SERVED = "served"
MARKS = "marks"
EXPIRING = "expiring"
RUNNING_IN = "running_in"
REMEMBERED = "remembered"
FORGET = "forget"
WORKERS = "workers"
ALIVE = "alive"
NUMBERS = "numbers"
POOLS = "pools"
LOOKED = "looked"
RESERVED = "reserved"
RESERVED_AT = "reserved_at"
LEFT = "left"
UNHEARD = "unheard"
MINUTES = "minutes"
ARRIVALS = "arrivals"
STIRS = "stirs"
OUTLIVED = "outlived"

PAGE = 100
"""So many places in line share a page: few enough for Redis to keep it as one short block of bytes."""


def page(seq: int) -> str:
    return f"page:{seq // PAGE}"


def lane(queue: str, name: str) -> str:
    """The ready jobs of a lane, in its order."""
    return f"ready:{queue}" if name == "" else f"lane:{_both(queue, name)}"


def lanes(queue: str) -> str:
    return f"lanes:{queue}"


def open_lanes(queue: str, group: str) -> str:
    return f"open:{_both(queue, group)}"


def groups(queue: str) -> str:
    return f"groups:{queue}"


def wakes(queue: str) -> str:
    return f"wakes:{queue}"


def shut(queue: str, place: str) -> str:
    return f"shut:{_both(queue, place)}"


def waiting(place: str) -> str:
    return f"waiting:{place}"


def scheduled(queue: str) -> str:
    return f"scheduled:{queue}"


def running(queue: str) -> str:
    """The leases of its running jobs."""
    return f"running:{queue}"


def held(worker: str) -> str:
    """The jobs running in a worker's name."""
    return f"held:{worker}"


def ended(queue: str, state: State) -> str:
    assert state in FINAL, state  # noqa: S101 - an invariant of this package
    return f"{state.value}:{queue}"


def ended_parts(queue: str, state: State) -> str:
    """The same of jobs of flows, which are not their queue's to prune."""
    assert state in FINAL, state  # noqa: S101 - an invariant of this package
    return f"{state.value}_parts:{queue}"


def parts(flow: str) -> str:
    return f"parts:{flow}"


def part_ends(flow: str) -> str:
    """The letters of the states in which jobs of a flow have ended: their records may be long."""
    return f"part_ends:{flow}"


def courses(kind: Kind) -> str:
    return f"courses:{kind}"


def course_counts(kind: Kind) -> str:
    return f"course_counts:{kind}"


def listed(kind: Kind, state: str, name: str) -> str:
    """Courses by when they began; '' for any state or name."""
    return f"listed:{kind}:{_both(state, name)}"


def dues(kind: Kind) -> str:
    return f"dues:{kind}"


def stirred(kind: Kind) -> str:
    return f"stirred:{kind}"


def course(kind: Kind, id_: str) -> str:
    return f"{kind}:{id_}"


def course_of(name: str) -> tuple[Kind, str]:
    kind, _, id_ = name.partition(":")
    return Kind(kind), id_


def count(state: State, queue: str) -> str:
    return f"{state.value}:{queue}"


def retrying(queue: str) -> str:
    """Scheduled jobs that have run before."""
    return f"retrying:{queue}"


def unique(queue: str, key: str) -> str:
    return f"unique:{_both(queue, key)}"


def successors(job: str) -> str:
    return f"after:{job}"


def running_in(queue: str, key: str) -> str:
    return _both(queue, key)


def history(queue: str) -> str:
    return f"history:{queue}"


def pool_history(pool: str) -> str:
    return f"pool_history:{pool}"


def attempts(job: str) -> str:
    return f"attempts:{job}"


def logs(job: str) -> str:
    return f"logs:{job}"


def lines(generation: int, attempt: int, job: str) -> str:
    return f"lines:{generation}.{attempt}:{job}"


def steps(job: str) -> str:
    return f"steps:{job}"


def accounts(pool: str) -> str:
    return f"accounts:{pool}"


def place(of: PLACE) -> str:
    return msgspec.json.encode(of).decode()


def place_of(text: bytes) -> PLACE:
    return msgspec.json.decode(text, type=tuple[str, str | None])


def token(fence: int, claim_id: int) -> bytes:
    """As it stands in a job's record: what is compared when a holder speaks."""
    return fence.to_bytes(6) + claim_id.to_bytes(8)


def claim(of: Claim) -> bytes:
    job, fence, claim_id = of
    return token(fence, claim_id) + job.encode()


def claim_of(name: bytes) -> Claim:
    return name[14:].decode(), int.from_bytes(name[:6]), int.from_bytes(name[6:14])


def _both(first: str, second: str) -> str:
    return f"{len(first.encode())}:{first}:{second}"
