"""What a job needs of which pools."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from tidemill.core.units import Units, plus

if TYPE_CHECKING:
    from tidemill.core.pools import PoolSettings

SEPARATOR = "\x1f"
"""Between the parts of a lane's name. No key, no name of a pool and no task of batches may hold it."""
SEPARATORS_OF_BATCHES = 4


class Need(msgspec.Struct, frozen=True):
    """Units of one pool, taken with the claim. `key` is which of a keyed pool's windows are meant. `excused`
    counts the attempts in a row that a refusal decided which the handler had reported (`Release.excused`)."""

    pool: str
    key: str | None = None
    units: Units = msgspec.field(default_factory=dict)
    excused: int = 0

    @property
    def name(self) -> str:
        """For people."""
        return self.pool if self.key is None else f"{self.pool} of {self.key}"

    def problem(self, declared: PoolSettings | None, in_force: PoolSettings | None) -> str | None:
        """P10: why it can never be met, naming pool and unit. Where a person allows other amounts than the
        code, the larger one decides: an override ends."""
        if declared is None or in_force is None:
            return f"pool: nobody declared {self.pool!r}; declare it before jobs need it"
        if declared.keyed and self.key is None:
            return f"pool: {self.pool!r} has keys; say which one is meant"
        if not declared.keyed and self.key is not None:
            return f"pool: {self.pool!r} has no keys; leave the key {self.key!r} out"
        problem = declared.problem_with(self.units)
        if problem is None or in_force.problem_with(self.units) is None:
            return None
        return f"pool {self.pool!r}: {problem}"


def with_excuses(needs: tuple[Need, ...], count: int) -> tuple[Need, ...]:
    """The first need keeps the count for the job."""
    if not needs or needs[0].excused == count:
        return needs
    return (replace(needs[0], excused=count), *needs[1:])


def together(needs: tuple[Need, ...], more: tuple[Need, ...]) -> tuple[Need, ...]:
    """What several calls take, each pool and key once."""
    found = {(need.pool, need.key): need for need in needs}
    for need in more:
        place = (need.pool, need.key)
        known = found.get(place)
        found[place] = need if known is None else Need(*place, plus(known.units, need.units))
    return tuple(found.values())


def lane_of(key: str | None, needs: tuple[Need, ...], batch: str | None = None, part: str = "") -> str:
    """Jobs with the same key and the same pools stand in one line. Without pools a lane is its key. Jobs
    that share calls (`batch` is their task) stand apart from all others, and so does each part of a batch
    that was split."""
    if batch is not None:
        return SEPARATOR.join((key or "", group_of(needs), keys_of(needs), batch, part))
    if not needs:
        return key or ""
    return SEPARATOR.join((key or "", group_of(needs), keys_of(needs)))


def is_of_batches(lane: str) -> bool:
    return lane.count(SEPARATOR) >= SEPARATORS_OF_BATCHES


def aside(lane: str, seq: int) -> str:
    """A lane beside that one, in the same group, for one job that holds up the others."""
    return f"{lane}{SEPARATOR}{seq}"


def is_aside(lane: str) -> bool:
    """Every other kind of lane has an even number of separators."""
    return lane.count(SEPARATOR) % 2 == 1


def key_of(lane: str) -> str:
    return lane.partition(SEPARATOR)[0]


def group_in(lane: str) -> str:
    """The group a lane belongs to, '' when its jobs need no pool that others share."""
    return lane.split(SEPARATOR)[1] if SEPARATOR in lane else ""


ONLY_KEYED = SEPARATOR
"""The group of lanes that need pools but share none: it is never shut."""


def group_of_lane(lane: str) -> str:
    """What lanes are filed under, so that one mark passes over all that share a pool; '' without pools."""
    return "" if SEPARATOR not in lane else group_in(lane) or ONLY_KEYED


def group_of(needs: tuple[Need, ...]) -> str:
    """The unkeyed pools of a job: when one of them refuses, every lane of the group has to wait."""
    return "+".join(sorted(_quoted(need.pool) for need in needs if need.key is None))


def keys_of(needs: tuple[Need, ...]) -> str:
    """The keyed pools of a job: when one of them refuses, only its own lane has to wait."""
    keyed = ((need.pool, need.key) for need in needs if need.key is not None)
    return "+".join(sorted(f"{_quoted(pool)}/{_quoted(key)}" for pool, key in keyed))


def _quoted(name: str) -> str:
    """Keys are often addresses: two lists of pools must not read the same."""
    return name.replace("\\", "\\\\").replace("+", "\\+").replace("/", "\\/")
