"""Needs: the units that a job needs from its pools. Also the names of lanes and groups, which follow from
these needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

if TYPE_CHECKING:
    from tidemill.core.pools import PoolSettings


Units = dict[str, float]
"""Amounts by unit."""

IMPLIED = {"requests": 1.0, "jobs": 1.0, "concurrent": 1.0}
"""The cost of every call, unless it states another."""


def plus(units: Units, other: Units) -> Units:
    """Returns the sum of the units of two calls. A missing unit counts with its implied cost, such as one
    request per call."""
    return {unit: _amount_of(units, unit) + _amount_of(other, unit) for unit in _all_units(units, other)}


def minus(all_: Units, units: Units) -> Units:
    """Returns the units that are left of `all_` after one call has taken `units`. A missing unit counts with
    its implied cost, such as one request per call."""
    return {
        unit: max(0.0, _amount_of(all_, unit) - _amount_of(units, unit)) for unit in _all_units(all_, units)
    }


def least(units: Units, other: Units) -> Units:
    return {unit: min(_amount_of(units, unit), _amount_of(other, unit)) for unit in _all_units(units, other)}


def _all_units(units: Units, other: Units) -> Units:
    return IMPLIED | units | other


def _amount_of(units: Units, unit: str) -> float:
    return units.get(unit, IMPLIED.get(unit, 0.0))


LANE_SEPARATOR = "\x1f"
"""Separates the parts of a lane's name. No key, pool name or batch task may contain it."""
BATCH_LANE_SEPARATORS = 4


class Need(msgspec.Struct, frozen=True):
    """The units of one pool that a job needs. The claim of the job reserves them.

    - `key`: selects the account of a pool with keys.
    - `excused`: how many attempts in a row did not count because of a provider's refusal. Only the first need
      of a job stores this number."""

    pool: str
    key: str | None = None
    units: Units = msgspec.field(default_factory=dict)
    excused: int = 0

    @property
    def name(self) -> str:
        """The pool with its key, as shown to people."""
        return self.pool if self.key is None else f"{self.pool} of {self.key}"

    def problem(self, declared: PoolSettings | None, in_force: PoolSettings | None) -> str | None:
        """Returns why the need can never be met, naming pool and unit (P10); None if it can. It is enough if
        one of the two settings allows the need.

        - `declared`: the pool's declared settings.
        - `in_force`: the settings with an operator's override."""
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


def with_excuse_count(needs: tuple[Need, ...], count: int) -> tuple[Need, ...]:
    """Returns the needs with the field `excused` of the first need set to `count`. Only the first need stores
    this number for its job."""
    if not needs or needs[0].excused == count:
        return needs
    return (replace(needs[0], excused=count), *needs[1:])


def combine_needs(needs: tuple[Need, ...], more: tuple[Need, ...]) -> tuple[Need, ...]:
    """Returns the needs of several calls added up, one need per pool and key."""
    found = {(need.pool, need.key): need for need in needs}
    for need in more:
        account_key = (need.pool, need.key)
        known = found.get(account_key)
        found[account_key] = need if known is None else Need(*account_key, plus(known.units, need.units))
    return tuple(found.values())


def lane_name(key: str | None, needs: tuple[Need, ...], batch: str | None = None, part: str = "") -> str:
    """Returns the name of the lane for jobs with this key and these pools.

    - `batch`: the task, if the jobs share calls.
    - `part`: the part of a failed batch that was split, '' for none."""
    if batch is not None:
        return LANE_SEPARATOR.join((key or "", pool_group(needs), pool_keys(needs), batch, part))
    if not needs:
        return key or ""
    return LANE_SEPARATOR.join((key or "", pool_group(needs), pool_keys(needs)))


def is_batch_lane(lane: str) -> bool:
    return lane.count(LANE_SEPARATOR) >= BATCH_LANE_SEPARATORS


def aside_lane(lane: str, seq: int) -> str:
    """Returns the name of a separate lane for one job that would otherwise block its lane. The new lane
    belongs to the same group. `seq` is the job's number in the order of arrival."""
    return f"{lane}{LANE_SEPARATOR}{seq}"


def is_aside_lane(lane: str) -> bool:
    """True if `aside_lane` made this lane name."""
    # `aside_lane` adds one separator; a normal lane name has an even number of them.
    return lane.count(LANE_SEPARATOR) % 2 == 1


def lane_key(lane: str) -> str:
    return lane.partition(LANE_SEPARATOR)[0]


def shared_group(lane: str) -> str:
    """Returns the names of the pools without keys that the jobs of this lane need, joined into one text. The
    text is '' if they need none."""
    return lane.split(LANE_SEPARATOR)[1] if LANE_SEPARATOR in lane else ""


KEYED_GROUP = LANE_SEPARATOR
"""The group of lanes that need pools but share none: it is never blocked."""


def lane_group(lane: str) -> str:
    """Returns the name of the group to which a lane belongs.

    - Lanes that need pools without keys: the names of these pools (`shared_group`).
    - Lanes that need only pools with keys, or only share calls: KEYED_GROUP, which is never blocked.
    - Lanes whose jobs need no pools and share no calls: ''."""
    return "" if LANE_SEPARATOR not in lane else shared_group(lane) or KEYED_GROUP


def pool_group(needs: tuple[Need, ...]) -> str:
    """Returns the pools without keys that a job needs, joined into one text. Lanes with the same text are
    blocked together."""
    return "+".join(sorted(_quote(need.pool) for need in needs if need.key is None))


def pool_keys(needs: tuple[Need, ...]) -> str:
    """Returns the pools with keys that a job needs, joined into one text. If one of these pools denies units,
    only the job's lane has to wait."""
    keyed = ((need.pool, need.key) for need in needs if need.key is not None)
    return "+".join(sorted(f"{_quote(pool)}/{_quote(key)}" for pool, key in keyed))


def _quote(name: str) -> str:
    """Returns the name with its separators escaped, so that two different lists of pools never give the same
    text."""
    return name.replace("\\", "\\\\").replace("+", "\\+").replace("/", "\\/")
