"""T_opt: the shortest time in which any scheduler can finish N equal calls without risking a refusal.

A provider counts a call between 0 and `guard` seconds after it was sent. Every quota gives a rule of one
form: *call k may not be sent before a time that follows from an earlier send*. Delaying an earlier send never
makes that time earlier. So it is optimal to send each call as soon as every rule allows, and no search is
needed.

In the rules, s[k] is the time at which call k is sent, c are the units of one call, W is the window, J is
`guard`, and m = amount // c is how many calls fit into the quota:

- rolling: calls k-m and k may be counted in the same window unless s[k] ≥ s[k-m] + W + J.
- bucket of size B and refill rate r: if n calls are counted within L seconds, then n·c ≤ B + r·L must hold.
  Calls that are sent D apart can be counted D - J apart, so s[k] ≥ s[i] + J + ((k-i+1)·c - B)/r for every i
  with (k-i+1)·c > B. Up to B units may be counted at the same instant.
- day: call k is sent after the end of the last day in which call k-m can have been counted.
- period: a call begins the period, and m calls fit into it. The next call is sent when the period has surely
  ended, at the time of the first send + J + W.
- concurrent: s[k] ≥ s[k-m] + latency. A reply proves that its call has ended, so there is no guard.

The result is exact, because times are fractions and whole microseconds instead of floats. External traffic,
quota changes, acceleration limits and disruptions are ignored: with them, no scheduler can exclude a refusal.
Output tokens count as if they were charged when the call is sent, not at its end. For equal calls, this
shifts every charge by the same latency."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from fractions import Fraction

from tidemill.testing.simulator.quotas import TICKS_PER_SECOND, Quota, UnitCounts, find_next_date, to_ticks

DEFAULT_GUARD_SECONDS = 0.5
SendTimes = list[Fraction]
SendRule = Callable[[SendTimes], Fraction | None]
"""Returns the earliest time of the next send, given all earlier sends; None if it is unrestricted."""


def optimal_drain_seconds(
    quotas: Sequence[Quota],
    calls: int,
    *,
    cost: UnitCounts | None = None,
    latency: float = 0.0,
    guard: float = DEFAULT_GUARD_SECONDS,
    wall: float = 0.0,
    before: Sequence[float] = (),
) -> float:
    """Returns the seconds from now until the last of `calls` equal calls is answered by an optimal scheduler.

    - `cost`: the units of one call; one request and one concurrent call are implied.
    - `latency`: the seconds from sending a call to its reply.
    - `guard`: a call is counted at most this many seconds after it was sent.
    - `wall`: the provider's wall time now.
    - `before`: the times of earlier calls of the same cost, in seconds, 0 or negative.
    """
    sends = optimal_send_times(
        quotas, calls, cost=cost, latency=latency, guard=guard, wall=wall, before=before
    )
    return sends[-1] + latency if sends else 0.0


def optimal_send_times(
    quotas: Sequence[Quota],
    calls: int,
    *,
    cost: UnitCounts | None = None,
    latency: float = 0.0,
    guard: float = DEFAULT_GUARD_SECONDS,
    wall: float = 0.0,
    before: Sequence[float] = (),
) -> list[float]:
    """Returns the time, in seconds from now, at which an optimal scheduler sends each call. The parameters
    are those of `optimal_drain_seconds`."""
    units = {"requests": 1, "concurrent": 1} | (cost or {})
    rules = [
        _create_rule(quota, units[quota.unit], _to_fraction(guard), _to_fraction(latency), wall)
        for quota in quotas
        if units.get(quota.unit)
    ]
    sends = sorted(_to_fraction(at) for at in before)
    if sends and sends[-1] > 0:
        raise ValueError(f"before: must be 0 or less, is {float(sends[-1])}")
    known = len(sends)
    for _ in range(calls):
        earliest = [time for rule in rules if (time := rule(sends)) is not None]
        sends.append(_round_up_to_tick(max([Fraction(0), *sends[-1:], *earliest])))
    return [float(at) for at in sends[known:]]


def _create_rule(quota: Quota, units: int, guard: Fraction, latency: Fraction, wall: float) -> SendRule:
    if quota.shape == "bucket":
        return _BucketRule(quota, units, guard)
    back = quota.amount // units
    if back < 1:
        raise ValueError(f"cost: {units} {quota.unit} never fit into {quota.amount} {quota.name}")
    window = _to_fraction(quota.per)
    match quota.shape:
        case "rolling":
            return _earliest_after(back, lambda sent: sent + window + guard)
        case "concurrent":
            return _earliest_after(back, lambda sent: sent + latency)
        case "day":
            return _earliest_after(back, lambda sent: _find_day_end(quota.zone, sent + guard, wall))
        case _:
            return _PeriodRule(back, window, guard)


def _earliest_after(back: int, until: Callable[[Fraction], Fraction]) -> SendRule:
    return lambda sends: until(sends[-back]) if len(sends) >= back else None


def _find_day_end(zone: str, at: Fraction, wall: float) -> Fraction:
    began = to_ticks(wall)
    return Fraction(find_next_date(zone, began + math.floor(at * TICKS_PER_SECOND)) - began, TICKS_PER_SECOND)


class _BucketRule:
    """The rule of a token bucket. Called with the send times so far, it returns the earliest time of the next
    send, or None if the bucket does not delay it. `_floor` is the largest s[i] - i·c/r of the formula in the
    module docstring."""

    def __init__(self, quota: Quota, units: int, guard: Fraction) -> None:
        self._rate = Fraction(quota.amount) / _to_fraction(quota.per)
        interval = quota.per if quota.interval is None else quota.interval
        self._size = max(self._rate * _to_fraction(interval), Fraction(1))
        if units > self._size:
            raise ValueError(f"cost: {units} {quota.unit} never fit into {quota.amount} {quota.name}")
        self._units, self._guard = units, guard
        self._free = self._size // units
        self._floor: Fraction | None = None
        self._seen = 0

    def __call__(self, sends: SendTimes) -> Fraction | None:
        number, rest = len(sends), self._units / self._rate
        while self._seen < len(sends) - self._free + 1:
            candidate = sends[self._seen] - self._seen * rest
            self._floor = candidate if self._floor is None else max(self._floor, candidate)
            self._seen += 1
        if self._floor is None:
            return None
        return self._floor + (number + 1) * rest + self._guard - self._size / self._rate


class _PeriodRule:
    """The rule of a period quota. Called with the send times so far, it returns the earliest time of the next
    send; None if the period has room for it. The rule assumes the latest possible end of the period."""

    def __init__(self, back: int, window: Fraction, guard: Fraction) -> None:
        self._back, self._window, self._guard = back, window, guard
        self._first: int = 0

    def __call__(self, sends: SendTimes) -> Fraction | None:
        while self._first < len(sends):
            over = sends[self._first] + self._guard + self._window
            later = bisect_left(sends, over, lo=self._first)
            if later == len(sends):
                return over if len(sends) - self._first >= self._back else None
            self._first = later
        return None


def _round_up_to_tick(at: Fraction) -> Fraction:
    """Returns the time in seconds, rounded up to a whole microsecond. The simulator counts in microseconds,
    so an unrounded time could be too early."""
    return Fraction(math.ceil(at * TICKS_PER_SECOND), TICKS_PER_SECOND)


def _to_fraction(seconds: float) -> Fraction:
    return Fraction(to_ticks(seconds), TICKS_PER_SECOND)
