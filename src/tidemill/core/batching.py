"""Several jobs in one call: when enough of them wait, and how many of them a call takes.

Jobs of a batch task stand in lanes of their own, so a lane is either all batches or none. A call takes a
prefix of its lane, and only a store can say when: it alone sees the jobs of all clients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from tidemill.core.needs import Need
from tidemill.core.units import Units


class Batching(msgspec.Struct, frozen=True, kw_only=True):
    """max_items: a call takes so many jobs at most. max_units: and so many units of its jobs. linger:
    seconds a job waits for company. call: what a call costs beside its jobs, by pool; a job's own `needs`
    are what it adds."""

    max_items: int
    linger: float = 0.0
    max_units: Units = msgspec.field(default_factory=dict)
    call: dict[str, Units] = msgspec.field(default_factory=dict)

    def problem(self) -> str | None:
        if self.max_items < 1:
            return f"max_items: must be 1 or more, is {self.max_items}"
        if not (math.isfinite(self.linger) and self.linger >= 0):
            return f"linger: must be 0 or more seconds, is {self.linger}"
        for unit, amount in self.max_units.items():
            if not (math.isfinite(amount) and amount > 0):
                return f"max_units: {unit} must be above 0, is {amount}"
        return None


class Item(Protocol):
    """A ready job as a batch sees it."""

    @property
    def due(self) -> float: ...
    @property
    def needs(self) -> tuple[Need, ...]: ...
    @property
    def crashes(self) -> int: ...
    @property
    def part(self) -> str: ...


def ripe_in(rule: Batching, waiting: Sequence[Item], now: float) -> float:
    """Seconds until the first jobs of a lane are worth a call; 0 when they are. `waiting` are its first
    `max_items`, in order, `now` is wall time. Part of a split batch lacks nobody. A job due after now was
    filed before the clock was set back, and has waited long enough."""
    first = waiting[0]
    if len(waiting) >= rule.max_items or first.part or first.crashes:
        return 0.0
    if prefix(rule, waiting) < len(waiting):
        return 0.0
    oldest = min(item.due for item in waiting)
    return 0.0 if oldest > now else max(0.0, oldest + rule.linger - now)


def prefix(rule: Batching, waiting: Sequence[Item]) -> int:
    """How many of the first jobs one call may take by its own rule. A suspect job, whose worker died, goes
    alone: poison never takes its neighbours along."""
    total: Units = {}
    for at, item in enumerate(waiting[: rule.max_items]):
        if at and (item.crashes or waiting[0].crashes):
            return at
        for unit, amount in _largest(item.needs).items():
            total[unit] = total.get(unit, 0.0) + amount
        if at and any(total.get(unit, 0.0) > most for unit, most in rule.max_units.items()):
            return at
    return min(len(waiting), rule.max_items)


def needs_of_call(rule: Batching, items: Sequence[Item]) -> tuple[Need, ...]:
    """What one call with these jobs takes of their pools: what a call costs, and what each job adds. What
    every call costs unasked, such as one request, it costs once."""
    return tuple(
        Need(
            need.pool,
            need.key,
            _added(rule.call.get(need.pool, {}), [item.needs[at].units for item in items]),
        )
        for at, need in enumerate(items[0].needs)
    )


def longest(count: int, fits: Callable[[int], bool]) -> int:
    """The most jobs up to `count` for which `fits` is true, 0 when it is not even for one."""
    low, high = 0, count
    while low < high:
        middle = high if low == 0 and high == count else (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _added(call: Units, items: Sequence[Units]) -> Units:
    total = dict(call)
    for units in items:
        for unit, amount in units.items():
            total[unit] = total.get(unit, 0.0) + amount
    return total


def _largest(needs: tuple[Need, ...]) -> Units:
    """Of each unit what the pool that counts most of it does: pools may count alike."""
    units: Units = {}
    for need in needs:
        for unit, amount in need.units.items():
            units[unit] = max(units.get(unit, 0.0), amount)
    return units
