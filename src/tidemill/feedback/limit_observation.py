"""Matches the limits and refusals that a provider states with the limits of a pool, by unit and window."""

from __future__ import annotations

from msgspec.structs import replace

from tidemill.core.calendars import Calendar, CalendarUnit
from tidemill.core.feedback import Observation, Reason, Refusal
from tidemill.core.limits import Limit
from tidemill.core.pools import PoolSettings
from tidemill.feedback.provider_reply import ProviderFeedback, StatedLimit

_CALENDAR_DAYS = {CalendarUnit.DAY: (1, 1), CalendarUnit.WEEK: (7, 7), CalendarUnit.MONTH: (28, 31)}
_RELATED_UNITS = {
    "tokens": ("input_tokens", "output_tokens"),
    "input_tokens": ("tokens",),
    "output_tokens": ("tokens",),
}
_TOLERANCE = 0.01


def build_observation(
    pool: str, settings: PoolSettings, reading: ProviderFeedback, key: str | None = None
) -> Observation:
    """Returns the stated limits and the refusal, matched with the limits of `pool`. A stated limit without a
    certain match is left out. Of two values for one limit, the lower amount and the later reset apply."""
    remaining: dict[str, float] = {}
    limits: dict[str, float] = {}
    resets: dict[str, float] = {}
    for stated in reading.stated:
        limit = match_limit(settings, stated)
        if limit is None:
            continue
        for known, value in ((remaining, stated.remaining), (limits, stated.limit)):
            if value is not None:
                known[limit.name] = min(value, known.get(limit.name, value))
        if stated.resets_at is not None:
            resets[limit.name] = max(stated.resets_at, resets.get(limit.name, 0.0))
    return Observation(
        pool=pool,
        key=key,
        remaining=remaining,
        amounts={name: amount for name, amount in limits.items() if amount > 0},
        resets=resets,
        refusal=_match_refusal(settings, reading.refusal),
    )


def match_limit(settings: PoolSettings, stated: StatedLimit) -> Limit | None:
    """Returns the limit of the pool that the provider means; None if it is not certain. Unit and window must
    match. If the provider states no window, the amount must match instead."""
    same = [limit for limit in settings.limits if limit.unit == stated.unit]
    if stated.window is not None:
        found = [limit for limit in same if _has_window(limit, stated.window)]
    else:
        found = [limit for limit in same if limit.amount == stated.limit]
    return found[0] if len(found) == 1 else None


def _has_window(limit: Limit, window: float) -> bool:
    if limit.per is None:
        return window == 0
    if isinstance(limit.per, Calendar):
        shortest, longest = _CALENDAR_DAYS[limit.per.every]
        return shortest * 86_400 * (1 - _TOLERANCE) <= window <= longest * 86_400 * (1 + _TOLERANCE)
    return abs(limit.per - window) <= _TOLERANCE * limit.per


def _match_refusal(settings: PoolSettings, refusal: Refusal | None) -> Refusal | None:
    """Returns the refusal with a unit that the pool counts. A refusal for an unknown unit applies to all
    calls. In a pool with keys, a 401 or 403 without an explanation is no refusal: it may concern a single
    page."""
    if refusal is not None and refusal.bare and settings.keyed and refusal.reason is Reason.FORBIDDEN:
        return None
    if refusal is None or refusal.unit is None:
        return refusal
    units = {limit.unit for limit in settings.limits}
    if refusal.unit in units:
        return refusal
    kin = [unit for unit in _RELATED_UNITS.get(refusal.unit, ()) if unit in units]
    return replace(refusal, unit=kin[0] if len(kin) == 1 else None)
