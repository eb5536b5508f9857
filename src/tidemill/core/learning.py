"""What a provider was seen to allow, where that is less than what people set.

Lower is believed at once: the next call would be refused. Higher is believed when it is said again a
minute later, because one answer may come from another model or another plan. What people set is never
passed, so learning can only slow a pool down. When they set another amount it begins anew: they may know of
a plan that nobody states until a call is refused.

A provider that refuses a rate and names no amount is guessed at, from the second such refusal on: the first
may have been somebody else's traffic. A guess is forgotten after a while, a stated amount is not.

A guess recovers while calls succeed: after each window with a success it rises by a quarter of what people
set. If the provider refuses a guess that has risen, one refusal is enough to lower it again, and the next
rise takes twice as many windows. So a limit that was too low by mistake is whole again after two windows, and
a provider that allows less is tried ever less often.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from tidemill.core.limits import Limit, seconds_of
from tidemill.core.pools import PoolSettings, amount_of
from tidemill.core.refusals import Reason, Refusal
from tidemill.core.units import Units
from tidemill.core.windows.window import TINY

CONFIRMED_AFTER = 60.0
GUESS_LASTS = 20
"""Windows: long enough to stop offending, short enough to notice that the provider allows more."""
RISE = 0.25
"""The share of what people set by which a guess rises after a success."""
SAME_BURST, FORGOTTEN = 0.5, 3.0
"""Refusals closer together than half a window are of one burst, those further apart than three windows have
nothing to do with each other."""


class Learned(msgspec.Struct, frozen=True, kw_only=True):
    """Times are the wall's. `below` is what people had set when it was learned. `more`: a higher amount, said
    at `more_since` and not yet again. `until`: a guess, and when it is forgotten. `raised` is when a guess
    rose last, or was made; `patience` is how many windows pass until it rises again."""

    amount: float
    below: float
    since: float
    more: float | None = None
    more_since: float = 0.0
    until: float | None = None
    raised: float = 0.0
    patience: float = 1.0

    def holds(self, wall: float) -> bool:
        return self.until is None or wall < self.until


Lessons = dict[str, Learned]
"""By the limit's name."""


def applied(
    pool: PoolSettings, lessons: Mapping[str, Learned], wall: float, units: Units | None = None
) -> PoolSettings:
    """The pool as it is believed to be. A call of `units` that is larger than what was learned is not kept
    out for ever: it may go when nothing else does, and the provider itself has the last word."""
    if not lessons:
        return pool
    limits = tuple(_applied(pool, limit, in_force(lessons, limit, wall), units) for limit in pool.limits)
    return pool if limits == pool.limits else replace(pool, limits=limits)


def in_force(lessons: Mapping[str, Learned], limit: Limit, wall: float) -> Learned | None:
    """What was learned of a limit, if it is less than what people set, and they set nothing else since."""
    lesson = lessons.get(limit.name)
    if lesson is None or not lesson.holds(wall) or lesson.below != limit.amount:
        return None
    return lesson if lesson.amount < limit.amount else None


def stated(pool: PoolSettings, lessons: Lessons, amounts: Units, wall: float) -> Lessons:
    """After a provider said what it allows."""
    after = dict(lessons)
    for limit in pool.limits:
        said = amounts.get(limit.name)
        if said is not None:
            lesson = _heard(limit, said, in_force(lessons, limit, wall), wall)
            after.pop(limit.name, None)
            if lesson is not None:
                after[limit.name] = lesson
    return after


def suspected(limit: Limit, refusal: Refusal, amounts: Units) -> bool:
    """Whether a refusal is about this limit and leaves its amount to be guessed."""
    about = isinstance(limit.per, float) and refusal.unit in (None, limit.unit)
    return about and refusal.reason is Reason.RATE and limit.name not in amounts


def is_second(limit: Limit, first: float | None, wall: float) -> bool:
    """Whether a refusal now, after one at wall time `first`, tells that the limit is set too high."""
    if first is None or not is_recent(limit, first, wall):
        return False
    return wall - first >= SAME_BURST * seconds_of(limit)


def is_recent(limit: Limit, first: float, wall: float) -> bool:
    return isinstance(limit.per, float) and wall - first <= FORGOTTEN * limit.per


def has_risen(lesson: Learned | None, wall: float) -> bool:
    """Whether it is a guess that successes have raised: another refusal tells that they raised it too far."""
    return (
        lesson is not None
        and lesson.until is not None
        and lesson.holds(wall)
        and lesson.raised > lesson.since
    )


def guessed(limit: Limit, accepted: float, wall: float, below: float, before: Learned | None) -> Learned:
    """What was let through, but no less than half of what was believed: a refusal may have other causes.
    `before` is what was learned of the limit until now."""
    patience = 1.0 if before is None or before.until is None or not before.holds(wall) else before.patience
    if has_risen(before, wall):
        patience = min(float(GUESS_LASTS), 2 * patience)
    return Learned(
        amount=min(limit.amount, max(accepted, limit.amount / 2, min(1.0, limit.amount))),
        below=below,
        since=wall,
        until=wall + GUESS_LASTS * seconds_of(limit),
        raised=wall,
        patience=patience,
    )


def recovered(pool: PoolSettings, lessons: Lessons, wall: float) -> Lessons:
    """After a call that succeeded. A guess that is whole again is kept until its time: see `has_risen`."""
    after = lessons
    for limit in pool.limits:
        lesson = in_force(lessons, limit, wall)
        if lesson is None or lesson.until is None or not isinstance(limit.per, float):
            continue
        if wall - lesson.raised >= lesson.patience * limit.per:
            amount = min(lesson.below, lesson.amount + RISE * lesson.below)
            after = after | {limit.name: replace(lesson, amount=amount, raised=wall)}
    return after


def matters(
    pool: PoolSettings, lessons: Mapping[str, Learned], suspects: Mapping[str, float], wall: float
) -> bool:
    """Whether an account without them would answer otherwise."""
    windows = [limit.per for limit in pool.limits if isinstance(limit.per, float)]
    doubt = FORGOTTEN * max(windows, default=0.0)
    return any(in_force(lessons, limit, wall) for limit in pool.limits) or any(
        wall - first <= doubt for first in suspects.values()
    )


def kept(lessons: Mapping[str, Learned], names: frozenset[str]) -> Lessons:
    return {name: lesson for name, lesson in lessons.items() if name in names}


def _heard(limit: Limit, said: float, known: Learned | None, wall: float) -> Learned | None:
    new = Learned(amount=said, below=limit.amount, since=wall)
    if known is None:
        return new if said < limit.amount - TINY else None
    if said < known.amount - TINY:
        return new
    if said <= known.amount + TINY:
        return known if known.until is None else new
    if known.more is None:
        return replace(known, more=said, more_since=wall)
    if wall - known.more_since < CONFIRMED_AFTER:
        return replace(known, more=min(known.more, said))
    confirmed = min(known.more, said)
    return None if confirmed >= limit.amount else replace(new, amount=confirmed)


def _applied(pool: PoolSettings, limit: Limit, lesson: Learned | None, units: Units | None) -> Limit:
    if lesson is None:
        return limit
    amount = lesson.amount
    need = 0.0 if units is None else amount_of(units, limit) or 0.0
    if need > amount or need > pool.most(replace(limit, amount=amount)):
        spare = pool.guards.jitter / limit.per if isinstance(limit.per, float) else 0.0
        amount = max(amount, need / max(0.5, 1.0 - spare))
    return limit if amount >= limit.amount else replace(limit, amount=amount)
