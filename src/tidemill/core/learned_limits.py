"""Learned limits: what a provider seems to allow, if that is less than the declared limit.

A lower stated amount is used at once. A higher one is used only when the provider states it again a minute
later. A learned limit never exceeds the declared one. When the declaration changes, learning starts over.

A provider may refuse a rate without stating an amount. The second refusal of this kind makes Tidemill guess
the limit. A guess expires after a while, a stated amount does not.

After each window with a success, a guess rises by a quarter of the declared amount. If the provider refuses a
guess that has risen, one refusal lowers it. The next rise then takes twice as many windows."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from tidemill.core.feedback import Reason, Refusal
from tidemill.core.limits import Limit, window_seconds
from tidemill.core.needs import Units
from tidemill.core.pools import PoolSettings, call_amount
from tidemill.core.windows.base import TOLERANCE

CONFIRMATION_SECONDS = 60.0
GUESS_LIFETIME_WINDOWS = 20
"""Windows: long enough to stop offending, short enough to notice that the provider allows more."""
GUESS_RISE_SHARE = 0.25
"""The share of the configured amount by which a guess rises after a success."""
SAME_BURST_WINDOWS, UNRELATED_AFTER_WINDOWS = 0.5, 3.0
"""Refusals closer together than half a window belong to one burst. Refusals further apart than three
windows are unrelated."""


class LearnedLimit(msgspec.Struct, frozen=True, kw_only=True):
    """One learned limit. The provider stated its amount, or Tidemill guessed it. Times are wall times.

    - `amount`: the learned amount.
    - `below`: the declared amount when the limit was learned.
    - `more`: a higher amount that the provider stated and has not confirmed yet.
    - `more_since`: when the provider first stated a higher amount.
    - `until`: when a guess expires, None for a stated amount.
    - `raised`: when the guess was made or last rose.
    - `rise_windows`: after how many windows the guess rises again."""

    amount: float
    below: float
    since: float
    more: float | None = None
    more_since: float = 0.0
    until: float | None = None
    raised: float = 0.0
    rise_windows: float = 1.0

    def holds(self, wall: float) -> bool:
        return self.until is None or wall < self.until


LearnedLimits = dict[str, LearnedLimit]
"""By limit name."""


def apply_learned_limits(
    pool: PoolSettings, learned: Mapping[str, LearnedLimit], wall: float, units: Units | None = None
) -> PoolSettings:
    """Returns the pool's settings with learned amounts, at the wall time `wall`. `units` are the units of a
    call. A learned amount that is too small for this call is raised, at most to the declared amount."""
    if not learned:
        return pool
    limits = tuple(
        _apply_learned_limit(pool, limit, learned_limit_in_force(learned, limit, wall), units)
        for limit in pool.limits
    )
    return pool if limits == pool.limits else replace(pool, limits=limits)


def learned_limit_in_force(
    learned: Mapping[str, LearnedLimit], limit: Limit, wall: float
) -> LearnedLimit | None:
    """Returns the learned limit that replaces `limit`; None if there is none. A learned limit ends when it
    expires or when the declared amount changes."""
    learned_limit = learned.get(limit.name)
    if learned_limit is None or not learned_limit.holds(wall) or learned_limit.below != limit.amount:
        return None
    return learned_limit if learned_limit.amount < limit.amount else None


def learn_stated_limits(
    pool: PoolSettings, learned: LearnedLimits, amounts: Units, wall: float
) -> LearnedLimits:
    """Returns the learned limits after a provider stated `amounts` (by limit name) at wall time `wall`."""
    after = dict(learned)
    for limit in pool.limits:
        stated = amounts.get(limit.name)
        if stated is not None:
            learned_limit = _learn_stated_limit(
                limit, stated, learned_limit_in_force(learned, limit, wall), wall
            )
            after.pop(limit.name, None)
            if learned_limit is not None:
                after[limit.name] = learned_limit
    return after


def is_suspect(limit: Limit, refusal: Refusal, amounts: Units) -> bool:
    """True if the refusal is about the rate of this limit and the provider does not state its amount.
    `amounts` are the stated amounts by limit name."""
    about = isinstance(limit.per, float) and refusal.unit in (None, limit.unit)
    return about and refusal.reason is Reason.RATE and limit.name not in amounts


def confirms_suspicion(limit: Limit, first: float | None, wall: float) -> bool:
    """True if two refusals, at the wall times `first` and `wall`, show that the limit is too high. They must
    be between half a window and three windows apart. False if `first` is None."""
    if first is None or not is_recent_refusal(limit, first, wall):
        return False
    return wall - first >= SAME_BURST_WINDOWS * window_seconds(limit)


def is_recent_refusal(limit: Limit, first: float, wall: float) -> bool:
    return isinstance(limit.per, float) and wall - first <= UNRELATED_AFTER_WINDOWS * limit.per


def has_risen(learned_limit: LearnedLimit | None, wall: float) -> bool:
    """True if the limit is a guess that has risen after successes and has not expired. One refusal is then
    enough to lower it."""
    return (
        learned_limit is not None
        and learned_limit.until is not None
        and learned_limit.holds(wall)
        and learned_limit.raised > learned_limit.since
    )


def guess_limit(
    limit: Limit, accepted: float, wall: float, below: float, before: LearnedLimit | None
) -> LearnedLimit:
    """Returns a guess for a limit after the provider refused a call. The guess is at least half of the
    current amount.

    - `accepted`: the units that the provider let through.
    - `below`: the declared amount.
    - `before`: the learned limit until now, if any."""
    rise_windows = (
        1.0 if before is None or before.until is None or not before.holds(wall) else before.rise_windows
    )
    if has_risen(before, wall):
        rise_windows = min(float(GUESS_LIFETIME_WINDOWS), 2 * rise_windows)
    return LearnedLimit(
        amount=min(limit.amount, max(accepted, limit.amount / 2, min(1.0, limit.amount))),
        below=below,
        since=wall,
        until=wall + GUESS_LIFETIME_WINDOWS * window_seconds(limit),
        raised=wall,
        rise_windows=rise_windows,
    )


def raise_guesses(pool: PoolSettings, learned: LearnedLimits, wall: float) -> LearnedLimits:
    """Returns the learned limits after a successful call. A guessed limit rises step by step, up to the
    declared amount."""
    after = learned
    for limit in pool.limits:
        learned_limit = learned_limit_in_force(learned, limit, wall)
        if learned_limit is None or learned_limit.until is None or not isinstance(limit.per, float):
            continue
        if wall - learned_limit.raised >= learned_limit.rise_windows * limit.per:
            amount = min(learned_limit.below, learned_limit.amount + GUESS_RISE_SHARE * learned_limit.below)
            # A guess that reached the declared amount stays, so that `has_risen` recognises it.
            after = after | {limit.name: replace(learned_limit, amount=amount, raised=wall)}
    return after


def has_effect(
    pool: PoolSettings, learned: Mapping[str, LearnedLimit], suspects: Mapping[str, float], wall: float
) -> bool:
    """True if a learned limit is in force, or a refusal in `suspects` is recent. `suspects` has, by limit
    name, the wall time of a refusal that may mean that the limit is too high."""
    windows = [limit.per for limit in pool.limits if isinstance(limit.per, float)]
    doubt = UNRELATED_AFTER_WINDOWS * max(windows, default=0.0)
    return any(learned_limit_in_force(learned, limit, wall) for limit in pool.limits) or any(
        wall - first <= doubt for first in suspects.values()
    )


def keep_limits(learned: Mapping[str, LearnedLimit], names: frozenset[str]) -> LearnedLimits:
    return {name: learned_limit for name, learned_limit in learned.items() if name in names}


def _learn_stated_limit(
    limit: Limit, stated: float, known: LearnedLimit | None, wall: float
) -> LearnedLimit | None:
    new = LearnedLimit(amount=stated, below=limit.amount, since=wall)
    if known is None:
        return new if stated < limit.amount - TOLERANCE else None
    if stated < known.amount - TOLERANCE:
        return new
    if stated <= known.amount + TOLERANCE:
        return known if known.until is None else new
    if known.more is None:
        return replace(known, more=stated, more_since=wall)
    # One answer alone may come from another model or plan.
    if wall - known.more_since < CONFIRMATION_SECONDS:
        return replace(known, more=min(known.more, stated))
    confirmed = min(known.more, stated)
    return None if confirmed >= limit.amount else replace(new, amount=confirmed)


def _apply_learned_limit(
    pool: PoolSettings, limit: Limit, learned_limit: LearnedLimit | None, units: Units | None
) -> Limit:
    if learned_limit is None:
        return limit
    amount = learned_limit.amount
    need = 0.0 if units is None else call_amount(units, limit) or 0.0
    # Otherwise the call could never start. The provider decides whether it accepts the call.
    if need > amount or need > pool.most(replace(limit, amount=amount)):
        spare = pool.guards.jitter / limit.per if isinstance(limit.per, float) else 0.0
        amount = max(amount, need / max(0.5, 1.0 - spare))
    return limit if amount >= limit.amount else replace(limit, amount=amount)
