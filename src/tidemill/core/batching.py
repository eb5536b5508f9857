"""Several jobs in one call: when enough of them wait, and how many of them a call takes.

Jobs of a batch task stand in lanes of their own, so a lane is either all batches or none. A call takes a
prefix of its lane, and only a store can say when: it alone sees the jobs of all clients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Protocol, TypeVar

import msgspec

from tidemill.core.needs import SEPARATOR, Need
from tidemill.core.units import Units

SUSPECT = 1
"""Crashes of a job that was in company when its worker died: the crash may be a neighbour's."""
MOST_ITEMS = 10_000
"""A claim reads as many jobs as its call may take, and no claim is ever a long one."""


class Batching(msgspec.Struct, frozen=True, kw_only=True):
    """max_items: a call takes so many jobs at most. max_units: and so many units of its jobs. linger:
    seconds a job waits for company. call: what a call costs beside its jobs, by pool; a job's own `needs`
    are what it adds."""

    max_items: int
    linger: float = 0.0
    max_units: Units = msgspec.field(default_factory=dict)
    call: dict[str, Units] = msgspec.field(default_factory=dict)

    def problem(self) -> str | None:
        if not 1 <= self.max_items <= MOST_ITEMS:
            return f"max_items: must lie between 1 and {MOST_ITEMS}, is {self.max_items}"
        if not (math.isfinite(self.linger) and self.linger >= 0):
            return f"linger: must be 0 or more seconds, is {self.linger}"
        for unit, amount in self.max_units.items():
            if not (math.isfinite(amount) and amount > 0):
                return f"max_units: {unit} must be above 0, is {amount}"
        for pool, units in self.call.items():
            for unit, amount in units.items():
                if not (math.isfinite(amount) and amount >= 0):
                    return f"call: {unit} of pool {pool!r} must be 0 or more, is {amount}"
        return None


class Costing(Protocol):
    @property
    def needs(self) -> tuple[Need, ...]: ...


class Waiting(Costing, Protocol):
    """A ready job as a batch sees it."""

    @property
    def due(self) -> float: ...
    @property
    def crashes(self) -> int: ...
    @property
    def part(self) -> str: ...


class Placed(Protocol):
    """A job that was claimed for a call."""

    @property
    def call(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def due(self) -> float: ...
    @property
    def seq(self) -> int: ...


P = TypeVar("P", bound=Placed)


def ripe_in(rule: Batching, waiting: Sequence[Waiting], now: float) -> float:
    """Seconds until the first jobs of a lane are worth a call; 0 when they are. `waiting` are its first
    `max_items`, in order, `now` is wall time. Part of a split batch lacks nobody. A job due after now was
    filed before the clock was set back, and has waited long enough."""
    if len(waiting) >= rule.max_items or waiting[0].part or waiting[0].crashes:
        return 0.0
    if prefix(rule, waiting) < len(waiting) or _is_full(rule, waiting):
        return 0.0
    oldest = min(job.due for job in waiting)
    return 0.0 if oldest > now else max(0.0, oldest + rule.linger - now)


def lacking(rule: Batching, waiting: Sequence[Waiting]) -> int:
    """How many more jobs may make an unripe lane ripe: one will do where units are counted."""
    return 1 if rule.max_units else rule.max_items - len(waiting)


def prefix(rule: Batching, waiting: Sequence[Waiting]) -> int:
    """How many of the first jobs one call may take by its own rule. Suspects, whose worker died, share a call
    with the same half of the call they were in, and with no other job: poison takes no neighbour along."""
    total: Units = {}
    for at, job in enumerate(waiting[: rule.max_items]):
        if at and not _may_share(waiting[0], job):
            return at
        _add(total, _largest(job.needs))
        if at and any(total.get(unit, 0.0) > most for unit, most in rule.max_units.items()):
            return at
    return min(len(waiting), rule.max_items)


def half_after_crash(job_id: str, part: str, call: str) -> str:
    """The part of a job whose worker died with a whole call. A job by itself does not know the others of its
    call, so a hash decides: about half of them go to each part, and another half the next time. A cyclic
    checksum would never separate some pairs."""
    whole = part or call
    digest = blake2b(f"{whole}/{job_id}".encode(), digest_size=1).digest()
    return f"{whole}/{digest[0] & 1}"


def _may_share(first: Waiting, job: Waiting) -> bool:
    """A job that crashed once more alone stays alone. All jobs of a lane have the same part."""
    if first.crashes == job.crashes == SUSPECT:
        return bool(first.part)
    return not first.crashes and not job.crashes


def needs_of_call(rule: Batching, jobs: Sequence[Costing]) -> tuple[Need, ...]:
    """What one call with these jobs takes of their pools: what a call costs, and what each job adds. What
    every call costs unasked, such as one request, it costs once. All of them need the same pools, in
    whatever order they name them."""
    totals = {(need.pool, need.key): dict(rule.call.get(need.pool, {})) for need in jobs[0].needs}
    for job in jobs:
        for need in job.needs:
            _add(totals[need.pool, need.key], need.units)
    return tuple(Need(pool, key, units) for (pool, key), units in totals.items())


def longest(count: int, fits: Callable[[int], bool]) -> int:
    """The most jobs up to `count` for which `fits` is true, 0 when it is not even for one. All or none are
    the usual answers, so they are tried first."""
    if fits(count):
        return count
    if count == 1 or not fits(1):
        return 0
    low, high = 1, count - 1
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def by_calls(jobs: Sequence[P]) -> list[P]:
    """Jobs of one claim, calls kept together and in the order of their lane. The others stay as they are."""
    calls: dict[str, list[P]] = {}
    for job in jobs:
        calls.setdefault(job.call or f"{SEPARATOR}{job.seq}", []).append(job)
    return [
        job
        for call in calls.values()
        for job in sorted(call, key=lambda job: (job.priority, job.due, job.seq))
    ]


def _is_full(rule: Batching, waiting: Sequence[Waiting]) -> bool:
    total: Units = {}
    for job in waiting:
        _add(total, _largest(job.needs))
    return any(total.get(unit, 0.0) >= most for unit, most in rule.max_units.items())


def _add(total: Units, more: Units) -> None:
    for unit, amount in more.items():
        total[unit] = total.get(unit, 0.0) + amount


def _largest(needs: tuple[Need, ...]) -> Units:
    """Of each unit what the pool that counts most of it does: pools may count alike."""
    units: Units = {}
    for need in needs:
        for unit, amount in need.units.items():
            units[unit] = max(units.get(unit, 0.0), amount)
    return units
