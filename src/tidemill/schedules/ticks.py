"""Computes when a schedule ticks, as pure functions of wall times.

A cron expression with a fixed minute and hour names local times. If daylight saving time skips a local time,
the tick comes at the moment of the clock change. If a local time occurs twice, only the first is a tick.

A cron expression whose minute or hour begins with `*` ticks at every moment whose local time matches.
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

MAX_DUE_TICKS = 100
"""The maximum number of past ticks, the latest ones."""

_SECOND = timedelta(seconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_WINDOW_SECONDS = 120.0


class TickRule(msgspec.Struct, frozen=True, kw_only=True):
    """The rule for the times of the ticks: a `cron` expression in the time zone `tz`, or an interval of
    `every` seconds. An interval is counted from `start`, or else from `anchor`. There are no ticks before
    `start` or after `end`."""

    cron: str | None = None
    tz: str = "UTC"
    every: float | None = None
    anchor: float = 0.0
    start: float | None = None
    end: float | None = None


class DueTicks(NamedTuple):
    """Ticks of a schedule. `ticks`: the ticks that are due, oldest first. `next`: the next tick after these;
    None if there is no further tick."""

    ticks: list[float]
    next: float | None


def next_tick(rule: TickRule, after: float) -> float | None:
    """Returns the first tick later than `after`; None if there is none."""
    if rule.start is not None and after < rule.start:
        after = rule.start - 1e-6
    tick = (
        _next_interval_tick(rule, after)
        if rule.every is not None
        else _next_cron_tick(rule.cron or "", rule.tz, after)
    )
    return None if tick is None or (rule.end is not None and tick > rule.end) else tick


def due_ticks(rule: TickRule, after: float, now: float) -> DueTicks:
    """Returns the ticks later than `after` and not later than `now`, and the next tick. If more than
    MAX_DUE_TICKS ticks are due, only the latest are returned."""
    first = next_tick(rule, after)
    if first is None or first > now:
        return DueTicks([], first)
    second = next_tick(rule, first)
    if second is None or second > now:
        return DueTicks([first], second)
    window = _FIRST_WINDOW_SECONDS
    while True:
        begin = max(after, now - window)
        found, following = _collect_ticks(rule, begin, now)
        if begin == after or len(found) == MAX_DUE_TICKS:
            return DueTicks(list(found), following)
        window *= 2


def tick_jitter(name: str, tick: float, maximum: float) -> float:
    """Returns how many seconds after its tick a job starts, from 0 to `maximum`. The result is always the
    same for the same schedule `name` and tick."""
    if not maximum:
        return 0.0
    digest = blake2b(f"{name}\0{tick!r}".encode(), digest_size=8).digest()
    return maximum * int.from_bytes(digest) / 2**64


def problem_with_cron(expression: str) -> str | None:
    try:
        first_match = next(_cron_after(expression, datetime(2000, 1, 1)), None)  # noqa: DTZ001 - any local time
    except (
        CronSimError,
        AssertionError,
        TypeError,
        ValueError,
    ) as error:  # cronsim checks some fields by assert
        detail = str(error).lower() or "bad field"
        return (
            f"cron: {expression!r} is not a cron expression ({detail}); write minute, hour, day, month and "
            "weekday, such as '0 3 * * *'"
        )
    return None if first_match is not None else f"cron: {expression!r} never comes; no month has such a day"


def problem_with_zone(name: str) -> str | None:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        return f"tz: {name!r} is not in the time zone database; write one such as Asia/Shanghai"
    return None


def _collect_ticks(rule: TickRule, after: float, now: float) -> tuple[deque[float], float | None]:
    found: deque[float] = deque(maxlen=MAX_DUE_TICKS)
    tick = next_tick(rule, after)
    while tick is not None and tick <= now:
        found.append(tick)
        tick = next_tick(rule, tick)
    return found, tick


def _next_interval_tick(rule: TickRule, after: float) -> float:
    """Returns the first tick of an interval later than `after`. The time is computed by multiplication, not
    by repeated addition, so it does not drift."""
    every = rule.every or 0.0
    anchor = rule.anchor if rule.start is None else rule.start
    count = (after - anchor) // every + 1
    while (tick := anchor + count * every) <= after:
        count += 1
    return tick


@lru_cache(maxsize=8192)
def _next_cron_tick(expression: str, zone_name: str, after: float) -> float | None:
    """Returns the first tick of a cron expression later than `after`; None if there is none. The result is
    cached, because thousands of schedules share few expressions."""
    zone = ZoneInfo(zone_name)
    moment = _EPOCH + timedelta(seconds=after // 1)
    found = (_next_fixed_time if _has_fixed_times(expression) else _next_repeating_time)(
        expression, zone, moment
    )
    return None if found is None else found.timestamp()


def _has_fixed_times(expression: str) -> bool:
    minute, hour = expression.split()[-5:-3]
    return not (minute.startswith("*") or hour.startswith("*"))


def _next_fixed_time(expression: str, zone: ZoneInfo, after: datetime) -> datetime | None:
    """Returns the next moment of an expression with fixed times; None if there is none. A local time that
    occurs twice, because the clocks go back, counts once."""
    moments = (_to_utc(local, zone) for local in _cron_after(expression, _to_local(after, zone)))
    return next((moment for moment in moments if moment > after), None)


def _next_repeating_time(expression: str, zone: ZoneInfo, after: datetime) -> datetime | None:
    """Returns the next moment whose local time matches a repeating expression; None if there is none. It
    searches each period between two clock changes separately."""
    offset, local = _utc_offset(after, zone), _to_local(after, zone)
    while (found := next(_cron_after(expression, local), None)) is not None:
        moment = found.replace(tzinfo=UTC) - offset
        change = _find_first_change(after, moment, zone)
        if change is None:
            return moment
        after, offset = change, _utc_offset(change, zone)
        local = (change + offset).replace(tzinfo=None) - _SECOND  # the change itself may be a tick
    return None


def _cron_after(expression: str, local: datetime) -> CronSim:
    """Returns an iterator over the local times later than `local` that match the expression. Clock changes
    are ignored."""
    found = copy(_parse_cron(expression))
    found.dt = local
    return found


@lru_cache(maxsize=1024)
def _parse_cron(expression: str) -> CronSim:
    return CronSim(expression, datetime(2000, 1, 1))  # noqa: DTZ001 - a local time, as above


def _to_utc(local: datetime, zone: ZoneInfo) -> datetime:
    """Returns the UTC moment of a local time. For a local time that a clock change skips, returns the moment
    of the change."""
    moment = local.replace(tzinfo=zone).astimezone(UTC)
    if _to_local(moment, zone) == local:
        return moment
    # With the offset from before the change the time lies after it; with the offset from after it, before
    # it.
    other = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
    return _find_change(min(moment, other) - _SECOND, max(moment, other), zone)


def _find_first_change(after: datetime, until: datetime, zone: ZoneInfo) -> datetime | None:
    """Returns the first moment after `after`, up to `until`, at which the UTC offset of the zone changes;
    None if there is none. It compares the offset once per day."""
    days = (until - after) // timedelta(days=1)
    samples = [*(after + timedelta(days=day) for day in range(days + 1)), until]
    for before, then in pairwise(samples):
        if _utc_offset(before, zone) != _utc_offset(then, zone):
            return _find_change(before, then, zone)
    return None


def _find_change(low: datetime, high: datetime, zone: ZoneInfo) -> datetime:
    before = _utc_offset(low, zone)
    while high - low > _SECOND:
        middle = (low + (high - low) // 2).replace(microsecond=0)
        if _utc_offset(middle, zone) == before:
            low = middle
        else:
            high = middle
    return high


def _utc_offset(moment: datetime, zone: ZoneInfo) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta()


def _to_local(moment: datetime, zone: ZoneInfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)
