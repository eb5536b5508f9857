"""What the ends of reservations, and what providers said, add to a pool's history."""

from __future__ import annotations

import msgspec

from tidemill.core.pools import PoolSettings
from tidemill.core.reserving import Reservation
from tidemill.core.units import IMPLIED, Units


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """`calls` that may have been made, the `units` they are taken to have used, `refusals` by reason. Keys
    of a pool are added up: a history of every host ever asked would outgrow the jobs."""

    calls: int = 0
    units: Units = msgspec.field(default_factory=dict)
    refusals: dict[str, int] = msgspec.field(default_factory=dict)

    def plus(self, more: Remark) -> Remark:
        units = {
            unit: self.units.get(unit, 0.0) + more.units.get(unit, 0.0)
            for unit in sorted(self.units.keys() | more.units.keys())
        }
        refusals = {
            reason: self.refusals.get(reason, 0) + more.refusals.get(reason, 0)
            for reason in sorted(self.refusals.keys() | more.refusals.keys())
        }
        return Remark(calls=self.calls + more.calls, units=units, refusals=refusals)


def of_call(pool: PoolSettings, kept: Reservation, used: Units | None) -> Remark:
    """One call: what it is said to have used, else what was reserved. Units that are not consumed but held
    (calls at once) are no part of a history."""
    implied = {
        limit.unit: IMPLIED[limit.unit]
        for limit in pool.limits
        if limit.per is not None and limit.unit in IMPLIED
    }
    units = {**implied, **kept.units, **(used or {})}
    return Remark(calls=1, units={unit: amount for unit, amount in units.items() if unit != "concurrent"})
