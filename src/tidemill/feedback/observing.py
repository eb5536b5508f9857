"""What a reading means to a pool: the provider's limits matched with our own, by unit and window."""

from __future__ import annotations

from msgspec.structs import replace

from tidemill.core.calendars import Calendar, Every
from tidemill.core.limits import Limit
from tidemill.core.pools import PoolSettings
from tidemill.core.refusals import Reason, Refusal
from tidemill.core.spending import Observation
from tidemill.feedback.reading import Reading, Stated

_DAYS = {Every.DAY: (1, 1), Every.WEEK: (7, 7), Every.MONTH: (28, 31)}
_KIN = {
    "tokens": ("input_tokens", "output_tokens"),
    "input_tokens": ("tokens",),
    "output_tokens": ("tokens",),
}
_TOLERANCE = 0.01


def observation(pool: str, settings: PoolSettings, reading: Reading, key: str | None = None) -> Observation:
    """What is not surely one of the pool's limits is left out. Of two states of one the lower counts, and the
    later reset."""
    remaining: dict[str, float] = {}
    limits: dict[str, float] = {}
    resets: dict[str, float] = {}
    for stated in reading.stated:
        limit = matching(settings, stated)
        if limit is None:
            continue
        for known, said in ((remaining, stated.remaining), (limits, stated.limit)):
            if said is not None:
                known[limit.name] = min(said, known.get(limit.name, said))
        if stated.resets_at is not None:
            resets[limit.name] = max(stated.resets_at, resets.get(limit.name, 0.0))
    return Observation(
        pool=pool,
        key=key,
        remaining=remaining,
        amounts={name: amount for name, amount in limits.items() if amount > 0},
        resets=resets,
        refusal=_translated(settings, reading.refusal),
    )


def matching(settings: PoolSettings, stated: Stated) -> Limit | None:
    """Without a window only the same amount tells which limit is meant."""
    same = [limit for limit in settings.limits if limit.unit == stated.unit]
    if stated.window is not None:
        found = [limit for limit in same if _spans(limit, stated.window)]
    else:
        found = [limit for limit in same if limit.amount == stated.limit]
    return found[0] if len(found) == 1 else None


def _spans(limit: Limit, window: float) -> bool:
    if limit.per is None:
        return window == 0
    if isinstance(limit.per, Calendar):
        shortest, longest = _DAYS[limit.per.every]
        return shortest * 86_400 * (1 - _TOLERANCE) <= window <= longest * 86_400 * (1 + _TOLERANCE)
    return abs(limit.per - window) <= _TOLERANCE * limit.per


def _translated(settings: PoolSettings, refusal: Refusal | None) -> Refusal | None:
    """A refusal of input tokens concerns a pool that counts tokens. A unit nobody counts is everybody's. A
    bare 401 or 403 in a pool with keys is about the page that was asked for: closing the key, which only a
    person would open again, would stop a whole site for one address that wants a login."""
    if refusal is not None and refusal.bare and settings.keyed and refusal.reason is Reason.FORBIDDEN:
        return None
    if refusal is None or refusal.unit is None:
        return refusal
    units = {limit.unit for limit in settings.limits}
    if refusal.unit in units:
        return refusal
    kin = [unit for unit in _KIN.get(refusal.unit, ()) if unit in units]
    return replace(refusal, unit=kin[0] if len(kin) == 1 else None)
