"""When a schedule ticks: pure functions of wall times.

An expression that names hours and minutes means the clock on the wall. A time the clocks jump over is the
moment they jump, and one that comes twice is the first of the two. One whose minute or hour begins with `*`
means a pace, which goes on through both: it ticks at every moment whose local time it matches.
"""

from __future__ import annotations

from collections import deque
from copy import copy
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from cronsim import CronSim, CronSimError

MOST_DUE = 100
"""How many ticks that are over are looked at, the latest of them."""

_SECOND = timedelta(seconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_WINDOW = 120.0


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Either `cron` in the zone `tz`, or `every` so many seconds from `anchor` on. Nothing before `start` or
    after `end`."""

    cron: str | None = None
    tz: str = "UTC"
    every: float | None = None
    anchor: float = 0.0
    start: float | None = None
    end: float | None = None


class Due(NamedTuple):
    """Ticks that are over, oldest first, and the one after them; None when there is none."""

    ticks: list[float]
    next: float | None


def next_tick(rule: Rule, after: float) -> float | None:
    """The first tick later than `after`."""
    if rule.start is not None and after < rule.start:
        after = rule.start - 1e-6
    tick = _next_beat(rule, after) if rule.every is not None else _next_time(rule.cron or "", rule.tz, after)
    return None if tick is None or (rule.end is not None and tick > rule.end) else tick


def due_ticks(rule: Rule, after: float, now: float) -> Due:
    """Those later than `after` up to `now`; of more than MOST_DUE the latest. A schedule that ticks every
    second and slept for a year costs no more than that."""
    first = next_tick(rule, after)
    if first is None or first > now:
        return Due([], first)
    second = next_tick(rule, first)
    if second is None or second > now:
        return Due([first], second)
    window = _FIRST_WINDOW
    while True:
        begin = max(after, now - window)
        found, following = _walk(rule, begin, now)
        if begin == after or len(found) == MOST_DUE:
            return Due(list(found), following)
        window *= 2


def jitter(name: str, tick: float, most: float) -> float:
    """From 0 to `most` seconds, the same for that tick wherever it is asked."""
    if not most:
        return 0.0
    drawn = blake2b(f"{name}\0{tick!r}".encode(), digest_size=8).digest()
    return most * int.from_bytes(drawn) / 2**64


def problem_with_cron(expression: str) -> str | None:
    try:
        soon = next(_at(expression, datetime(2000, 1, 1)), None)  # noqa: DTZ001 - any local time
    except (CronSimError, AssertionError, TypeError, ValueError) as error:  # it asserts some of it
        wrong = str(error).lower() or "bad field"
        return (
            f"cron: {expression!r} is not a cron expression ({wrong}); write minute, hour, day, month and "
            "weekday, such as '0 3 * * *'"
        )
    return None if soon is not None else f"cron: {expression!r} never comes; no month has such a day"


def problem_with_zone(name: str) -> str | None:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        return f"tz: {name!r} is not in the time zone database; write one such as Asia/Shanghai"
    return None


def _walk(rule: Rule, after: float, now: float) -> tuple[deque[float], float | None]:
    found: deque[float] = deque(maxlen=MOST_DUE)
    tick = next_tick(rule, after)
    while tick is not None and tick <= now:
        found.append(tick)
        tick = next_tick(rule, tick)
    return found, tick


def _next_beat(rule: Rule, after: float) -> float:
    """By multiplication: however long it goes on, it does not drift."""
    every = rule.every or 0.0
    anchor = rule.anchor if rule.start is None else rule.start
    count = (after - anchor) // every + 1
    while (tick := anchor + count * every) <= after:
        count += 1
    return tick


@lru_cache(maxsize=8192)
def _next_time(expression: str, zone: str, after: float) -> float | None:
    """Thousands of schedules share few expressions: what one of them was told the others need not compute."""
    place = ZoneInfo(zone)
    moment = _EPOCH + timedelta(seconds=after // 1)
    found = (_on_the_wall if _names_times(expression) else _at_a_pace)(expression, place, moment)
    return None if found is None else found.timestamp()


def _names_times(expression: str) -> bool:
    minute, hour = expression.split()[-5:-3]
    return not (minute.startswith("*") or hour.startswith("*"))


def _on_the_wall(expression: str, place: ZoneInfo, after: datetime) -> datetime | None:
    """Where clocks were put back local times come again, and the first of each are over."""
    moments = (_moment(local, place) for local in _at(expression, _local(after, place)))
    return next((moment for moment in moments if moment > after), None)


def _at_a_pace(expression: str, place: ZoneInfo, after: datetime) -> datetime | None:
    """Between two changes of the clocks local time and real time go side by side."""
    offset, local = _offset(after, place), _local(after, place)
    while (found := next(_at(expression, local), None)) is not None:
        moment = found.replace(tzinfo=UTC) - offset
        change = _first_change(after, moment, place)
        if change is None:
            return moment
        after, offset = change, _offset(change, place)
        local = (change + offset).replace(tzinfo=None) - _SECOND  # the change itself may be a tick
    return None


def _at(expression: str, local: datetime) -> CronSim:
    """Local times later than `local`, as if clocks were never changed."""
    found = copy(_parsed(expression))
    found.dt = local
    return found


@lru_cache(maxsize=1024)
def _parsed(expression: str) -> CronSim:
    return CronSim(expression, datetime(2000, 1, 1))  # noqa: DTZ001 - local times, as above


def _moment(local: datetime, place: ZoneInfo) -> datetime:
    """A local time as a moment; one that does not exist is the moment the clocks jump over it."""
    moment = local.replace(tzinfo=place).astimezone(UTC)
    if _local(moment, place) == local:
        return moment
    # Read with the offset of before the jump it lies behind it, with that of after it before it.
    other = local.replace(tzinfo=place, fold=1).astimezone(UTC)
    return _change_in(min(moment, other) - _SECOND, max(moment, other), place)


def _first_change(after: datetime, until: datetime, place: ZoneInfo) -> datetime | None:
    """The first moment in (after, until] from which on clocks differ. No zone changes them twice in a day
    and back: a look at each day finds it."""
    days = (until - after) // timedelta(days=1)
    looks = [*(after + timedelta(days=day) for day in range(days + 1)), until]
    for before, then in pairwise(looks):
        if _offset(before, place) != _offset(then, place):
            return _change_in(before, then, place)
    return None


def _change_in(low: datetime, high: datetime, place: ZoneInfo) -> datetime:
    before = _offset(low, place)
    while high - low > _SECOND:
        middle = (low + (high - low) // 2).replace(microsecond=0)
        if _offset(middle, place) == before:
            low = middle
        else:
            high = middle
    return high


def _offset(moment: datetime, place: ZoneInfo) -> timedelta:
    return moment.astimezone(place).utcoffset() or timedelta()


def _local(moment: datetime, place: ZoneInfo) -> datetime:
    return moment.astimezone(place).replace(tzinfo=None, fold=0)
