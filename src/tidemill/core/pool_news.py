"""What a step did to a pool that somebody may want to be told of, found by comparing before and after."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from tidemill.core.accounts import Account
from tidemill.core.closing import Closure


class Happened(StrEnum):
    CLOSED = "closed"  # by a refusal, for the first time or again after a probe
    PROBED = "probed"  # one job tries for the others
    OPENED = "opened"  # no closure is left
    SLOWED = "slowed"  # fewer calls at once, or a lower limit, than people set


class PoolNews(msgspec.Struct, frozen=True, kw_only=True):
    """`job` is the one whose claim or settlement did it. `closure` is the new one, or of those that ended
    the last. `ramp`: it opens slowly. `amounts` are by the limit's name."""

    what: Happened
    pool: str
    key: str | None
    job: str
    closure: Closure | None = None
    ramp: bool = False
    amounts: dict[str, float] = msgspec.field(default_factory=dict)


def news_of(place: tuple[str, str | None], job: str, before: Account, after: Account) -> Iterator[PoolNews]:
    old, new = before.breaker, after.breaker
    pool, key = place
    times = {(closure.reason, closure.unit): closure.times for closure in old.closures}
    for closure in new.closures:
        if closure.times > times.get((closure.reason, closure.unit), 0):
            yield PoolNews(what=Happened.CLOSED, pool=pool, key=key, job=job, closure=closure)
    if old.closures and not new.closures:
        ramp = new.ramp is not None and new.ramp != old.ramp
        last = old.closures[-1]
        yield PoolNews(what=Happened.OPENED, pool=pool, key=key, job=job, closure=last, ramp=ramp)
    if new.probe is not None and new.probe != old.probe:
        yield PoolNews(
            what=Happened.PROBED, pool=pool, key=key, job=job, closure=next(iter(new.closures), None)
        )
    if slowed := _slowed(before, after):
        yield PoolNews(what=Happened.SLOWED, pool=pool, key=key, job=job, amounts=slowed)


def _slowed(before: Account, after: Account) -> dict[str, float]:
    """Limits that were lowered; "calls at once" when it is the cap."""
    found = {
        name: lesson.amount
        for name, lesson in after.learned.items()
        if name not in before.learned or lesson.amount < before.learned[name].amount
    }
    cap, known = after.breaker.cap, before.breaker.cap
    if cap is not None and (known is None or cap.amount < known.amount):
        found["calls at once"] = cap.amount
    return found
