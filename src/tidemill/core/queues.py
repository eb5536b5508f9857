"""What can be set on a queue, and when it is open."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from tidemill.core.names import is_storable
from tidemill.core.numbers import is_number, is_whole
from tidemill.core.states import State

HOUR = 3600.0
DAY = 24 * HOUR


class Retention(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """How long ended jobs stay: by age, by count, whichever is reached first. None: no bound. `by_default`
    marks Tidemill's own defaults, so that a default never replaces a longer default."""

    age: float | None = None
    count: int | None = None
    by_default: bool | UnsetType = UNSET

    def problem(self) -> str | None:
        """A bound below 0 would empty the shelf at the next prune."""
        if self.age is not None and not is_number(self.age, 0):
            return f"age must be a number of seconds, 0 or more, or None for no bound, is {self.age!r}"
        if self.count is not None and not is_whole(self.count, 0):
            return f"count must be a whole number, 0 or more, or None for no bound, is {self.count!r}"
        return None

    def described(self) -> str:
        """`for 7 days, at most 1 000 000`."""
        age = None if self.age is None else f"for {_span(self.age)}"
        count = None if self.count is None else f"at most {self.count:,}".replace(",", " ")
        return ", ".join(bound for bound in (age, count) if bound) or "without a bound"

    def same_bounds(self, other: Retention) -> bool:
        return (self.age, self.count) == (other.age, other.count)

    def oldest_kept(self, now: float) -> float:
        """A job that ended at this time or before has reached the age."""
        return -math.inf if self.age is None else now - self.age

    def drops_early(self, finished: float, now: float) -> bool:
        """Whether a drop by count comes before the job's age is over. Without an age no drop is early."""
        return self.age is not None and finished > now - self.age


def _span(seconds: float) -> str:
    """In the largest unit that leaves a whole number."""
    for size, unit in ((DAY, "days"), (HOUR, "hours"), (60.0, "minutes")):
        if seconds > size and seconds % size == 0:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:g} seconds"


PLAIN_COUNT, PAID_COUNT = 100_000, 1_000_000
PLAIN = Retention(age=DAY, count=PLAIN_COUNT, by_default=True)
PLAIN_FAILED = Retention(age=7 * DAY, count=PLAIN_COUNT, by_default=True)
PAID = Retention(age=7 * DAY, count=PAID_COUNT, by_default=True)
"""For a queue with a pooled or paid task: its results cost money."""


RETENTIONS = ("keep_done", "keep_failed", "keep_cancelled")


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`concurrency` and `key_concurrency` hold across the fleet; `max_length` counts pending jobs."""

    weight: int = 1
    concurrency: int | None = None
    key_concurrency: int | None = None
    max_length: int | None = None
    crash_limit: int = 3
    keep_done: Retention = PLAIN
    keep_failed: Retention = PLAIN_FAILED
    keep_cancelled: Retention = PLAIN

    def retention(self, state: State) -> Retention:
        if state is State.DONE:
            return self.keep_done
        return self.keep_failed if state is State.FAILED else self.keep_cancelled

    def problem(self) -> str | None:
        for field in ("weight", "crash_limit"):
            if not is_whole(getattr(self, field), 1):
                return f"{field}: must be a whole number, 1 or more, is {getattr(self, field)!r}"
        for field in ("concurrency", "key_concurrency", "max_length"):
            value = getattr(self, field)
            if value is not None and not is_whole(value, 1):
                return f"{field}: must be a whole number, 1 or more, or None for no limit, is {value!r}"
        for field in RETENTIONS:
            kept = getattr(self, field)
            if not isinstance(kept, Retention):
                return f"{field}: must be a Retention, such as Retention(age=86400), is {kept!r}"
            if problem := kept.problem():
                return f"{field}: {problem}"
        return None


def for_paid_tasks(settings: QueueSettings) -> QueueSettings:
    """The settings of a queue with a pooled or paid task. A retention that code or a setting chose stays."""
    chosen = {name: PAID for name in RETENTIONS if getattr(settings, name).by_default}
    return replace(settings, **chosen)


def redeclared(before: QueueSettings | None, settings: QueueSettings) -> QueueSettings:
    """Q1. What the store keeps when code declares a queue again. Programs that share a queue may know
    different tasks of it: one that knows no paid task leaves the longer default of one that does."""
    if before is None:
        return settings
    longer = {
        name: PAID
        for name in RETENTIONS
        if getattr(settings, name).by_default and getattr(before, name) == PAID
    }
    return replace(settings, **longer) if longer else settings


class QueueChanges(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Some of a queue's settings, to be put over the others."""

    weight: int | UnsetType = UNSET
    concurrency: int | UnsetType | None = UNSET
    key_concurrency: int | UnsetType | None = UNSET
    max_length: int | UnsetType | None = UNSET
    crash_limit: int | UnsetType = UNSET
    keep_done: Retention | UnsetType = UNSET
    keep_failed: Retention | UnsetType = UNSET
    keep_cancelled: Retention | UnsetType = UNSET

    def given(self) -> dict[str, Any]:
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not UNSET}

    def over(self, settings: QueueSettings) -> QueueSettings:
        return replace(settings, **self.given())


class Override(msgspec.Struct, frozen=True, kw_only=True):
    """What a person set over what code declared: who, why, since when and until when (wall times).
    Settings it does not name follow the code."""

    changes: QueueChanges
    by: str
    reason: str | None = None
    since: float
    until: float | None = None

    def holds(self, now: float) -> bool:
        return self.until is None or now < self.until

    def problem(self) -> str | None:
        """Why it cannot hold, naming the field; settings do not depend on each other."""
        if not self.by:
            return "by: must say who overrides, is empty"
        problem = _problem_with_mark(self.until, by=self.by, reason=self.reason)
        return problem or self.changes.over(QueueSettings()).problem()


def overridden(
    before: Override | None,
    now: float,
    changes: QueueChanges,
    *,
    by: str,
    reason: str | None,
    until: float | UnsetType | None,
) -> Override:
    """Q2. New changes join those of the override that holds; its end stays unless another is given."""
    held = before if before is not None and before.holds(now) else None
    if isinstance(until, UnsetType):
        until = None if held is None else held.until
    kept = {} if held is None else held.changes.given()
    joined = QueueChanges(**kept | changes.given())
    return Override(changes=joined, by=by, reason=reason, since=now, until=until)


def without(before: Override | None, names: Sequence[str]) -> Override | None:
    """Q6. The named settings follow the code again, without names all of them; who set the others, why
    and when stays."""
    if before is None:
        return None
    left = {name: value for name, value in before.changes.given().items() if names and name not in names}
    return replace(before, changes=QueueChanges(**left)) if left else None


def in_force(declared: QueueSettings, override: Override | None, now: float) -> QueueSettings:
    """What holds: an override past its time is not there."""
    if override is None or not override.holds(now):
        return declared
    return override.changes.over(declared)


class Pause(msgspec.Struct, frozen=True):
    """A person's mark on a queue. `until` is a wall time; None means until resumed."""

    since: float
    until: float | None = None
    reason: str | None = None

    def closed(self, now: float) -> bool:
        return self.until is None or now < self.until

    def problem(self) -> str | None:
        """Why it cannot hold, naming the field."""
        return _problem_with_mark(self.until, reason=self.reason)


def _problem_with_mark(until: float | None, **texts: str | None) -> str | None:
    for field, value in texts.items():
        if value is not None and not is_storable(value):
            return f"{field}: must be text without NUL characters or lone surrogates"
    if until is not None and not math.isfinite(until):
        return f"until: must be a time, is {until}"
    return None


class Verdict(StrEnum):
    """What a store says to one job of an insert."""

    ACCEPTED = "accepted"
    EXISTING = "existing"
    FULL = "full"
    INVALID = "invalid"


class Inserted(msgspec.Struct, frozen=True):
    """`id` names the job that now stands for the request: its own, or the key's holder."""

    verdict: Verdict
    id: str
    problem: str | None = None
