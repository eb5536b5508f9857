"""Pools: the settings of a provider's quota, changes to its limits, and the stored state of the limits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from tidemill.core.calendars import TimeOfDay
from tidemill.core.limits import Limit
from tidemill.core.needs import IMPLIED, LANE_SEPARATOR, Units
from tidemill.core.overrides import SettingChanges
from tidemill.core.validation import problem_with_name
from tidemill.core.windows import Guards, Instant, WindowState, fits_limit, new_window
from tidemill.core.windows.base import TOLERANCE
from tidemill.core.windows.bucket import BucketWindow

MIN_JITTER_SECONDS = 0.02
"""The smallest jitter. No handler begins sooner after its claim, so with less its job would be given back
again and again."""


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a pool.

    - `keyed`: True if every key has its own account.
    - `guards`: the safety margins in seconds, see `Guards`.
    - `reserved_share`: the share of every limit that is kept for urgent jobs.
    - `urgent`: jobs with this priority or a smaller number are urgent.
    - `resumes`: the time of day when a day quota is free again, None for the start of the calendar period.
    - `probe_every`: the seconds between probes of a pool that otherwise only an operator opens."""

    limits: tuple[Limit, ...]
    keyed: bool = False
    guards: Guards = Guards()
    reserved_share: float = 0.0
    urgent: int = 1
    resumes: TimeOfDay | None = None
    probe_every: float | None = None

    def problem(self) -> str | None:
        if not self.limits:
            return "limits: name at least one, such as Limit.requests(10, per='minute')"
        names = [limit.name for limit in self.limits]
        for name in names:
            if names.count(name) > 1:
                return f"limits: {name} is given twice"
        if not 0 <= self.reserved_share < 1:
            return (
                f"reserved_share: must be a share from 0 up to but not including 1, is {self.reserved_share}"
            )
        for name, least in (("jitter", MIN_JITTER_SECONDS), ("midnight", 0)):
            value = getattr(self.guards, name)
            if not (math.isfinite(value) and value >= least):
                return f"{name}: must be {least} or more seconds, is {value}"
        if self.probe_every is not None and not (math.isfinite(self.probe_every) and self.probe_every > 0):
            return f"probe_every: must be above 0 seconds, is {self.probe_every}; leave it out for never"
        if self.resumes is not None and (problem := self.resumes.problem()):
            return f"resumes: {problem}"
        return None

    def problem_with(self, units: Units) -> str | None:
        """Returns why a call with these `units` could never be made, naming the unit; None if it could."""
        for limit in self.limits:
            need = call_amount(units, limit)
            if need is None:
                allowed = f"{limit.amount:g} {_window_text(limit)}"
                return f"cost: says nothing of {limit.unit}, and the pool allows {allowed}"
            if not (math.isfinite(need) and need >= 0):
                return f"cost: {limit.unit} must be 0 or more, is {need}"
            if need > (most := self.most(limit)):
                return (
                    f"cost: {need:g} {limit.unit} is more than the pool ever allows at once "
                    f"({most:g}: {limit.amount:g} {_window_text(limit)}); send it in smaller pieces"
                )
        return None

    def never_fits(self, units: Units) -> str | None:
        """Returns the name of a limit that a call with these `units` exceeds even if the limit is unused;
        None if there is none."""
        for limit in self.limits:
            if (call_amount(units, limit) or 0.0) > self.most(limit) + TOLERANCE:
                return limit.name
        return None

    def most(self, limit: Limit) -> float:
        """Returns the largest number of units that one call of any priority can take from the
        limit."""
        return new_window(limit).room(limit, NOON, self.guards)

    def back(self, limit: Limit, priority: int) -> float:
        """Returns how many units of the limit calls of this `priority` must leave free for more urgent
        calls."""
        return 0.0 if priority <= self.urgent else limit.amount * self.reserved_share


class LimitChanges(SettingChanges[PoolSettings], frozen=True, kw_only=True, forbid_unknown_fields=True):
    """New amounts for some limits of a pool, by limit name: `{"requests per minute": 5}`."""

    amounts: dict[str, float]

    def given(self) -> dict[str, Any]:
        return self.amounts

    def with_values(self, values: Mapping[str, Any]) -> Self:
        return type(self)(amounts=dict(values))

    def problem(self, settings: PoolSettings) -> str | None:
        names = [limit.name for limit in settings.limits]
        for name, amount in self.amounts.items():
            if name not in names:
                return f"{name!r} is not a limit of the pool; there are: {', '.join(names)}"
            if not (math.isfinite(amount) and amount > 0):
                return f"{name}: must be above 0, is {amount}; close the pool to allow nothing"
        return None

    def over(self, settings: PoolSettings) -> PoolSettings:
        """Returns the pool's settings with the new amounts. A name that is not a limit of the pool any more
        is ignored."""
        limits = tuple(
            replace(limit, amount=self.amounts.get(limit.name, limit.amount)) for limit in settings.limits
        )
        return replace(settings, limits=limits)


def surviving_limits(before: PoolSettings, after: PoolSettings) -> frozenset[str]:
    """Returns the names of the limits whose counted units stay valid when a pool is declared again. A limit
    survives if its window and its shape do not change. `before` and `after` are the two declarations."""
    old = {limit.name: limit for limit in before.limits}
    return frozenset(
        limit.name
        for limit in after.limits
        if limit.name in old and (limit.per, limit.shape) == (old[limit.name].per, old[limit.name].shape)
    )


def problem_with_declaration(name: str, settings: PoolSettings, before: PoolSettings | None) -> str | None:
    """Returns why the declaration of a pool is invalid (P1); None if it is valid. `before` is the earlier
    declaration with this name, if any."""
    problem = problem_with_name("name", name)
    if problem is None and LANE_SEPARATOR in name:
        problem = "name: must not hold the character U+001F"
    problem = problem or settings.problem()
    return problem if before is None else problem or _problem_with_change(before, settings)


def problem_with_key(pool: PoolSettings, key: str | None) -> str | None:
    """Returns why the pool cannot have an account for this key; None if it can."""
    if pool.keyed and key is None:
        return "key: the pool has keys; say which one is meant"
    if not pool.keyed and key is not None:
        return f"key: the pool has no keys; leave {key!r} out"
    return None if key is None else problem_with_name("key", key)


def undeclared_message(pools: Iterable[str]) -> str:
    return f"nobody declared it; there are: {', '.join(sorted(pools)) or 'none'}"


def _problem_with_change(before: PoolSettings, after: PoolSettings) -> str | None:
    """Returns why the declaration `after` cannot replace `before`; None if it can. A pool with keys cannot
    become a pool without keys, or the reverse."""
    # Stored jobs belong to the old accounts: the old and the new accounts would both admit calls.
    if before.keyed == after.keyed:
        return None
    had = "with keys" if before.keyed else "without keys"
    return f"keyed: it was declared {had} before, and jobs may need it so; give the new pool another name"


NOON = Instant(43_200.0, 0.0)
"""A moment at which no calendar period begins."""


class PoolHold(msgspec.Struct, frozen=True, kw_only=True):
    """Capacity that a pool holds for a large call that did not fit, so that small calls cannot starve it.

    - `line`: a name for the jobs that share the hold (`core.ledger.hold_scope`).
    - `firm`: True if the job asked again and still did not fit. Then only more urgent calls may delay the
      held call.
    - `until`: the boot-clock time when the hold ends if the job does not ask again."""

    job: str
    line: str = ""
    firm: bool
    units: Units
    priority: int
    until: float


class PoolState(msgspec.Struct, frozen=True, kw_only=True):
    """The stored state of a pool's limits.

    - `windows`: the windows by limit name.
    - `boot`: the id of the boot to which the boot-clock times belong.
    - `held`: by limit name, reserved units that are in no window yet. They count as used.
    - `revision`: grows with every change that frees units. Denied requests are then tried again.
    - `unchecked`: the number of open reservations that were taken without a check."""

    windows: dict[str, WindowState] = msgspec.field(default_factory=dict)
    boot: str = ""
    held: Units = msgspec.field(default_factory=dict)
    revision: int = 0
    hold: PoolHold | None = None
    unchecked: int = 0

    def window(self, limit: Limit) -> WindowState:
        window = self.windows.get(limit.name)
        return window if window is not None and fits_limit(window, limit) else new_window(limit)

    def counted(self, limit: Limit, now: Instant, guards: Guards) -> float:
        """Returns the units of a limit that count as used now: the units in its window, plus the units in
        `held`. `guards` are the pool's safety margins."""
        return self.window(limit).counted(limit, now, guards) + self.held.get(limit.name, 0.0)

    def room(self, limit: Limit, now: Instant, guards: Guards) -> float:
        return self.window(limit).room(limit, now, guards) - self.held.get(limit.name, 0.0)

    def wait(self, limit: Limit, units: float, now: Instant, guards: Guards) -> float:
        """Returns the seconds until `units` more units fit into the limit, if no further call is made. The
        result is infinite if a call in flight must end first."""
        return self.window(limit).wait(limit, units + self.held.get(limit.name, 0.0), now, guards)


def call_amount(units: Units, limit: Limit) -> float | None:
    """Returns how many units a call with these `units` takes from the limit. Returns None if the call states
    none and no amount is implied."""
    return units.get(limit.unit, IMPLIED.get(limit.unit))


def refresh_after_boot(pool: PoolSettings, state: PoolState, boot: str, now: Instant) -> PoolState:
    """Returns the state adapted to the boot with the id `boot`. After a restart of the machine, windows
    measured in seconds count as fully used. Calendar and concurrency counts stay."""
    if state.boot == boot:
        return state
    if not state.boot:
        return replace(state, boot=boot)
    windows = {limit.name: state.window(limit).lost(limit, now) for limit in pool.limits}
    return replace(state, windows=windows, boot=boot, hold=None, revision=state.revision + 1)


def resize_buckets(pool: PoolSettings, state: PoolState, now: Instant) -> PoolState:
    """Returns the state with its buckets resized to the current limits."""
    anew: dict[str, WindowState] = {}
    for limit in pool.limits:
        window = state.windows.get(limit.name)
        if (
            isinstance(window, BucketWindow)
            and fits_limit(window, limit)
            and window.size not in {0.0, limit.amount}
        ):
            anew[limit.name] = window.resized(limit, now, pool.guards)
    return replace(state, windows=state.windows | anew) if anew else state


def _window_text(limit: Limit) -> str:
    return limit.name.removeprefix(limit.unit).strip()
