"""What an attempt tells of its calls: what they used, and what the provider said."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidemill.core.refusals import Refusal
from tidemill.core.units import IMPLIED, Units


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What was really used of a pool, over all that was reserved of it. Units that are not named count as
    they were reserved."""

    pool: str
    key: str | None = None
    units: Units

    @property
    def place(self) -> tuple[str, str | None]:
        return self.pool, self.key


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider said about a pool, with an answer or with a refusal. `remaining`, `amounts` and
    `resets` (the wall time when a limit is whole again) are by the limit's name; what nobody spoke of is not
    there."""

    pool: str
    key: str | None = None
    remaining: Units = msgspec.field(default_factory=dict)
    amounts: Units = msgspec.field(default_factory=dict)
    resets: dict[str, float] = msgspec.field(default_factory=dict)
    refusal: Refusal | None = None

    @property
    def place(self) -> tuple[str, str | None]:
        return self.pool, self.key


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """`made` is False when no call was made: everything that was reserved comes back. Otherwise what no
    usage is given for counts as it was reserved. `well` says that the provider answered as it should, which
    is what a probe is for."""

    made: bool = True
    well: bool = False
    usages: tuple[Usage, ...] = ()
    observations: tuple[Observation, ...] = ()


def shared_out(used: Units | None, reserved: Sequence[Units]) -> list[Units | None]:
    """What of a usage falls on each of several reservations: each is filled in turn, and what is more than
    all of them is the last one's."""
    if used is None or len(reserved) == 1:
        return [used] * len(reserved)
    left = dict(used)
    shares: list[Units | None] = []
    for units in reserved[:-1]:
        share = {unit: min(left[unit], units.get(unit, IMPLIED.get(unit, 0.0))) for unit in left}
        left = {unit: left[unit] - share[unit] for unit in left}
        shares.append(share)
    return [*shares, left]
