"""What becomes of a lane of batches when its turn comes: it waits, its pools refuse, or one call starts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Protocol, TypeVar

import msgspec

from tidemill.core import accounts, ledger
from tidemill.core.accounts import Denied
from tidemill.core.batching import (
    Batching,
    Costing,
    Waiting,
    lacking,
    longest,
    needs_of_call,
    prefix,
    ripe_in,
)
from tidemill.core.ledger import PLACE, Ledger, Reserved, Shut, Stopped
from tidemill.core.needs import Need
from tidemill.core.reserving import Ask
from tidemill.core.windows import Instant

UNRIPE: PLACE = ("", None)
"""What a lane waits for that waits for company: no pool has that name."""


class Batched(Costing, Protocol):
    """A job that may share a call."""

    @property
    def batching(self) -> Batching | None: ...


class Standing(Waiting, Protocol):
    """A ready job of a batch task."""

    @property
    def id(self) -> str: ...
    @property
    def priority(self) -> int: ...


S = TypeVar("S", bound=Standing)


class Unripe(msgspec.Struct, frozen=True):
    """`wait` in seconds; the lane is looked at before when `lacks` more jobs have come."""

    wait: float
    lacks: int

    def shut(self, boot: float) -> Shut:
        return Shut(pool="", key=None, until=boot + self.wait, again=boot + self.wait, priority=0)


class Call(msgspec.Struct, frozen=True):
    """The first `jobs` of the lane start together. What they take belongs to the first of them."""

    jobs: int
    reserved: tuple[Reserved, ...]


def begin(  # noqa: PLR0917 - what a store knows when a lane's turn comes
    books: Ledger,
    rule: Batching,
    waiting: Sequence[S],
    most: int,
    is_expired: Callable[[S], bool],
    ripe_at: float | None,
    now: Instant,
    lane: tuple[str, str],
) -> Unripe | Stopped | Call:
    """`waiting` are the first `max_items` jobs of the lane, of which `most` may start now; the rule is the
    head's. `ripe_at` is the boot time when the lane was once found to be ripe: stepping the wall clock
    makes nobody wait longer (I26)."""
    wait = min(ripe_in(rule, waiting, now.wall), math.inf if ripe_at is None else ripe_at - now.boot)
    if wait > 0:
        return Unripe(wait, lacking(rule, waiting))
    alive = list(takewhile(lambda job: not is_expired(job), waiting))
    return _reserved(books, rule, alive[: min(prefix(rule, alive), most)], now, lane)


def needs_alone(job: Batched) -> tuple[Need, ...]:
    """What a call with this job and no other takes."""
    return job.needs if job.batching is None else needs_of_call(job.batching, [job])


def _reserved(
    books: Ledger, rule: Batching, jobs: Sequence[Standing], now: Instant, lane: tuple[str, str]
) -> Stopped | Call:
    """As many of the first as the pools let through, one at least."""
    first = jobs[0]

    def fits(count: int) -> bool:
        return _fits(books, first, needs_of_call(rule, jobs[:count]), now, lane)

    count = longest(len(jobs), fits) if first.needs and len(jobs) > 1 else len(jobs)
    needs = needs_of_call(rule, jobs[: max(1, count)])
    answer = ledger.ask_all(books, first.id, first.priority, needs, now, lane)
    return answer if isinstance(answer, Stopped) else Call(max(1, count), answer)


def _fits(books: Ledger, first: Standing, needs: Sequence[Need], now: Instant, lane: tuple[str, str]) -> bool:
    """Asks without taking anything."""
    for need in needs:
        known = books.load((need.pool, need.key))
        if known is not None:
            line = ledger.line_of(*lane, need)
            answer = accounts.ask(*known, Ask(first.id, need.units, first.priority, line), now)
            if isinstance(answer, Denied):
                return False
    return True
