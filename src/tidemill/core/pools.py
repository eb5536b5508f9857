"""A pool: what one provider account meters, and what is known of it at a moment."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from tidemill.core.daytime import TimeOfDay
from tidemill.core.limits import Limit
from tidemill.core.names import is_storable, problem_with_name
from tidemill.core.needs import SEPARATOR
from tidemill.core.units import IMPLIED, Units
from tidemill.core.windows import Guards, Instant, Kept, fits, fresh
from tidemill.core.windows.bucket import Bucket
from tidemill.core.windows.window import TINY

LEAST_JITTER = 0.02
"""No handler begins sooner after its claim than that is good for: its job would go back again and again."""


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """keyed: every key has windows of its own. held_back: the share of every limit that only priorities
    up to `urgent` may use. resumes: when a day's quota is back, if not at the turn of the pool's own
    calendar. probe_every: seconds between single calls that try a pool only a person would reopen."""

    limits: tuple[Limit, ...]
    keyed: bool = False
    guards: Guards = Guards()
    held_back: float = 0.0
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
        if not 0 <= self.held_back < 1:
            return f"held_back: must be a share from 0 up to but not including 1, is {self.held_back}"
        for name, least in (("jitter", LEAST_JITTER), ("midnight", 0)):
            value = getattr(self.guards, name)
            if not (math.isfinite(value) and value >= least):
                return f"{name}: must be {least} or more seconds, is {value}"
        if self.probe_every is not None and not (math.isfinite(self.probe_every) and self.probe_every > 0):
            return f"probe_every: must be above 0 seconds, is {self.probe_every}; leave it out for never"
        if self.resumes is not None and (problem := self.resumes.problem()):
            return f"resumes: {problem}"
        return None

    def problem_with(self, units: Units) -> str | None:
        """Why a call of that cost could never be made, naming the unit."""
        for limit in self.limits:
            need = amount_of(units, limit)
            if need is None:
                return (
                    f"cost: says nothing of {limit.unit}, and the pool allows {limit.amount:g} {_rest(limit)}"
                )
            if not (math.isfinite(need) and need >= 0):
                return f"cost: {limit.unit} must be 0 or more, is {need}"
            if need > self.most(limit):
                return (
                    f"cost: {need:g} {limit.unit} is more than the pool ever allows at once "
                    f"({self.most(limit):g}: {limit.amount:g} {_rest(limit)}); send it in smaller pieces"
                )
        return None

    def never_fits(self, units: Units) -> str | None:
        """The name of a limit that a call of that cost is too large for, whatever comes free."""
        for limit in self.limits:
            if (amount_of(units, limit) or 0.0) > self.most(limit) + TINY:
                return limit.name
        return None

    def most(self, limit: Limit) -> float:
        """The largest single call the limit can ever let through, for any priority."""
        return fresh(limit).room(limit, NOON, self.guards)

    def back(self, limit: Limit, priority: int) -> float:
        """What that priority must leave alone."""
        return 0.0 if priority <= self.urgent else limit.amount * self.held_back


class PoolChanges(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Other amounts, by the limit's name: `{"requests per minute": 5}`."""

    amounts: dict[str, float]

    def problem(self, pool: PoolSettings) -> str | None:
        names = [limit.name for limit in pool.limits]
        for name, amount in self.amounts.items():
            if name not in names:
                return f"{name!r} is not a limit of the pool; there are: {', '.join(names)}"
            if not (math.isfinite(amount) and amount > 0):
                return f"{name}: must be above 0, is {amount}; close the pool to allow nothing"
        return None

    def over(self, pool: PoolSettings) -> PoolSettings:
        """A limit the code no longer has stays unmentioned."""
        limits = tuple(
            replace(limit, amount=self.amounts.get(limit.name, limit.amount)) for limit in pool.limits
        )
        return replace(pool, limits=limits)


class PoolOverride(msgspec.Struct, frozen=True, kw_only=True):
    """As `core.queues.Override`: who, why, since when and until when (wall times)."""

    changes: PoolChanges
    by: str
    reason: str | None = None
    since: float
    until: float | None = None

    def holds(self, now: float) -> bool:
        return self.until is None or now < self.until


def in_force(declared: PoolSettings, override: PoolOverride | None, wall: float) -> PoolSettings:
    """What holds: an override past its time is not there."""
    if override is None or not override.holds(wall):
        return declared
    return override.changes.over(declared)


def going_on(before: PoolSettings, after: PoolSettings) -> frozenset[str]:
    """The limits, by name, whose counts mean the same after a declaration: other amounts and other guards
    may be, another kind of window may not."""
    old = {limit.name: limit for limit in before.limits}
    return frozenset(
        limit.name
        for limit in after.limits
        if limit.name in old and (limit.per, limit.shape) == (old[limit.name].per, old[limit.name].shape)
    )


def problem_with_declaration(name: str, settings: PoolSettings, before: PoolSettings | None) -> str | None:
    """P1. `before` is what was declared of that name until now."""
    problem = problem_with_name("name", name)
    if problem is None and SEPARATOR in name:
        problem = "name: must not hold the character U+001F"
    problem = problem or settings.problem()
    return problem if before is None else problem or _problem_with_change(before, settings)


def problem_with_place(pool: PoolSettings, key: str | None) -> str | None:
    """Whether it has such an account."""
    if pool.keyed and key is None:
        return "it has keys; say which one is meant"
    if not pool.keyed and key is not None:
        return f"it has no keys; leave {key!r} out"
    return None if key is None else problem_with_name("key", key)


def undeclared(pools: Iterable[str]) -> str:
    return f"nobody declared it; there are: {', '.join(sorted(pools)) or 'none'}"


def _problem_with_change(before: PoolSettings, after: PoolSettings) -> str | None:
    """Of a declaration over the one before. Jobs that are stored, and what was used, belong to one account or
    to one of many: beside the other kind, both would be let through."""
    if before.keyed == after.keyed:
        return None
    had = "with keys" if before.keyed else "without keys"
    return f"keyed: it was declared {had} before, and jobs may need it so; give the new pool another name"


def problem_with_mark(by: str, reason: str | None, until: float | None) -> str | None:
    """Of an override or a closure by hand."""
    if not by:
        return "by: must say who does it, is empty"
    for field, value in (("by", by), ("reason", reason)):
        if value is not None and not is_storable(value):
            return f"{field}: must be text without NUL characters or lone surrogates"
    if until is not None and not math.isfinite(until):
        return f"until: must be a time, is {until}"
    return None


NOON = Instant(43_200.0, 0.0)
"""A moment when no calendar turns."""


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """A place kept for a call that did not fit. Once others have overtaken it, it is `firm`: calls of its
    priority or less may not push it back any more, so that a big one starts among endless small ones.
    It lapses at boot time `until` when the job does not come for it. `line` is where the job stands."""

    job: str
    line: str = ""
    firm: bool
    units: Units
    priority: int
    until: float


class PoolState(msgspec.Struct, frozen=True, kw_only=True):
    """`windows` by the limit's name; `boot` is the boot their times belong to. `held` is what calls under
    way have of each limit that is entered when they end (`Limit.held`), and what is kept for calls that are
    made later (`core.extras`). `unasked` counts the open reservations that were taken without asking whether
    they fit. `revision` grows with whatever frees units, so that a worker that was refused knows when asking
    again is worth it."""

    windows: dict[str, Kept] = msgspec.field(default_factory=dict)
    boot: str = ""
    held: Units = msgspec.field(default_factory=dict)
    revision: int = 0
    hold: Hold | None = None
    unasked: int = 0

    def window(self, limit: Limit) -> Kept:
        kept = self.windows.get(limit.name)
        return kept if kept is not None and fits(kept, limit) else fresh(limit)

    def counted(self, limit: Limit, now: Instant, guards: Guards) -> float:
        """What is used of a limit, with what is held of it."""
        return self.window(limit).counted(limit, now, guards) + self.held.get(limit.name, 0.0)

    def room(self, limit: Limit, now: Instant, guards: Guards) -> float:
        return self.window(limit).room(limit, now, guards) - self.held.get(limit.name, 0.0)

    def wait(self, limit: Limit, units: float, now: Instant, guards: Guards) -> float:
        """As `Window.wait`; infinite, too, when what is held has to be settled first."""
        return self.window(limit).wait(limit, units + self.held.get(limit.name, 0.0), now, guards)


def amount_of(units: Units, limit: Limit) -> float | None:
    """What a call of that cost takes of a limit; None when nobody said."""
    return units.get(limit.unit, IMPLIED.get(limit.unit))


def since_boot(pool: PoolSettings, state: PoolState, boot: str, now: Instant) -> PoolState:
    """Times of another boot mean nothing: what could have been spent just before counts as spent."""
    if state.boot == boot:
        return state
    if not state.boot:
        return replace(state, boot=boot)
    windows = {limit.name: state.window(limit).lost(limit, now) for limit in pool.limits}
    return replace(state, windows=windows, boot=boot, hold=None, revision=state.revision + 1)


def resized(pool: PoolSettings, state: PoolState, now: Instant) -> PoolState:
    """With its buckets as large as the limits are now. The other shapes count what was taken, and need not
    know against what."""
    anew: dict[str, Kept] = {}
    for limit in pool.limits:
        kept = state.windows.get(limit.name)
        if isinstance(kept, Bucket) and fits(kept, limit) and kept.size not in {0.0, limit.amount}:
            anew[limit.name] = kept.resized(limit, now, pool.guards)
    return replace(state, windows=state.windows | anew) if anew else state


def _rest(limit: Limit) -> str:
    return limit.name.removeprefix(limit.unit).strip()
