"""T_opt: the shortest time in which any scheduler could get N equal calls answered without ever risking a
refusal, when a call is counted anything from 0 to `guard` seconds after it was sent.

Every quota is a rule of the same kind, *send k is not before some time that follows from an earlier send*,
and a later earlier send never makes it earlier. So sending each call as soon as every rule allows is best,
and no search is needed. The rules, for calls of c units each, arrival anywhere in [s, s + J]:

- rolling, m = amount // c: two sends m apart may be counted in one window unless s[k] ≥ s[k-m] + W + J.
- bucket of size B and rate r: n calls counted within L need n·c ≤ B + r·L, and sends that are D apart can
  be counted D - J apart; so s[k] ≥ s[i] + J + ((k-i+1)·c - B)/r wherever (k-i+1)·c > B. Up to B may be
  counted at the same instant.
- day, m = amount // c: s[k] is not before the end of the last day in which s[k-m] can have been counted.
- period, m = amount // c: m calls after the send that began it, none before it is surely over (its
  beginning + J + W).
- concurrent: s[k] ≥ s[k-m] + latency: an answer proves that its call is no longer under way, so no guard.

Fractions, not floats, and whole microseconds: the result is exact. Foreign calls, changes, acceleration and
trouble are not considered: with any of them a refusal may be nobody's fault. Output that is charged when it
is complete counts as if charged when sent: for equal calls that shifts every charge by the same latency.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from fractions import Fraction

from tidemill.testing.providers.days import next_date
from tidemill.testing.providers.quota import TICKS, Quota, Units, ticks

GUARD = 0.5
Sends = list[Fraction]
Rule = Callable[[Sends], Fraction | None]
"""The earliest time of the next send, given all before it; None when it is free."""


def best_drain(
    quotas: Sequence[Quota],
    calls: int,
    *,
    cost: Units | None = None,
    latency: float = 0.0,
    guard: float = GUARD,
    wall: float = 0.0,
    before: Sequence[float] = (),
) -> float:
    """Seconds from now until the last of so many calls is answered.

    cost: units of one call (a request and one under way are implied). wall: what the provider's calendar
    shows now. before: when calls of the same cost were sent already, as seconds that are 0 or less."""
    sends = best_sends(quotas, calls, cost=cost, latency=latency, guard=guard, wall=wall, before=before)
    return sends[-1] + latency if sends else 0.0


def best_sends(
    quotas: Sequence[Quota],
    calls: int,
    *,
    cost: Units | None = None,
    latency: float = 0.0,
    guard: float = GUARD,
    wall: float = 0.0,
    before: Sequence[float] = (),
) -> list[float]:
    """When the best scheduler sends each call."""
    units = {"requests": 1, "concurrent": 1} | (cost or {})
    rules = [
        _rule(quota, units[quota.unit], _exact(guard), _exact(latency), wall)
        for quota in quotas
        if units.get(quota.unit)
    ]
    sends = sorted(_exact(at) for at in before)
    if sends and sends[-1] > 0:
        raise ValueError(f"before: must be 0 or less, is {float(sends[-1])}")
    known = len(sends)
    for _ in range(calls):
        earliest = [time for rule in rules if (time := rule(sends)) is not None]
        sends.append(_whole_ticks(max([Fraction(0), *sends[-1:], *earliest])))
    return [float(at) for at in sends[known:]]


def _rule(quota: Quota, units: int, guard: Fraction, latency: Fraction, wall: float) -> Rule:
    if quota.shape == "bucket":
        return _Bucket(quota, units, guard)
    back = quota.amount // units
    if back < 1:
        raise ValueError(f"cost: {units} {quota.unit} never fit into {quota.amount} {quota.name}")
    window = _exact(quota.per)
    match quota.shape:
        case "rolling":
            return _after(back, lambda sent: sent + window + guard)
        case "concurrent":
            return _after(back, lambda sent: sent + latency)
        case "day":
            return _after(back, lambda sent: _day_ends(quota.zone, sent + guard, wall))
        case _:
            return _Period(back, window, guard)


def _after(back: int, until: Callable[[Fraction], Fraction]) -> Rule:
    return lambda sends: until(sends[-back]) if len(sends) >= back else None


def _day_ends(zone: str, at: Fraction, wall: float) -> Fraction:
    began = ticks(wall)
    return Fraction(next_date(zone, began + math.floor(at * TICKS)) - began, TICKS)


class _Bucket:
    """`_floor` is the largest s[i] - i·c/r of the sends that are far enough back to matter."""

    def __init__(self, quota: Quota, units: int, guard: Fraction) -> None:
        self._rate = Fraction(quota.amount) / _exact(quota.per)
        interval = quota.per if quota.interval is None else quota.interval
        self._size = max(self._rate * _exact(interval), Fraction(1))
        if units > self._size:
            raise ValueError(f"cost: {units} {quota.unit} never fit into {quota.amount} {quota.name}")
        self._units, self._guard = units, guard
        self._free = self._size // units
        self._floor: Fraction | None = None
        self._seen = 0

    def __call__(self, sends: Sends) -> Fraction | None:
        number, rest = len(sends), self._units / self._rate
        while self._seen < len(sends) - self._free + 1:
            candidate = sends[self._seen] - self._seen * rest
            self._floor = candidate if self._floor is None else max(self._floor, candidate)
            self._seen += 1
        if self._floor is None:
            return None
        return self._floor + (number + 1) * rest + self._guard - self._size / self._rate


class _Period:
    """Periods begin with a call, so where one is, is known only up to the guard."""

    def __init__(self, back: int, window: Fraction, guard: Fraction) -> None:
        self._back, self._window, self._guard = back, window, guard
        self._first: int = 0

    def __call__(self, sends: Sends) -> Fraction | None:
        while self._first < len(sends):
            over = sends[self._first] + self._guard + self._window
            later = bisect_left(sends, over, lo=self._first)
            if later == len(sends):
                return over if len(sends) - self._first >= self._back else None
            self._first = later
        return None


def _whole_ticks(at: Fraction) -> Fraction:
    """The provider counts in these; the next one is the earliest that is not too early."""
    return Fraction(math.ceil(at * TICKS), TICKS)


def _exact(seconds: float) -> Fraction:
    return Fraction(ticks(seconds), TICKS)
