"""Settings, retention and pauses of a queue."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TypedDict

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from tidemill.core.overrides import SettingChanges, problem_with_operator_mark
from tidemill.core.states import State
from tidemill.core.validation import is_integer, is_number

HOUR_SECONDS = 3600.0
DAY_SECONDS = 24 * HOUR_SECONDS


class Retention(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """How long finished jobs are kept. A job is deleted when it exceeds one of the two bounds; None means no
    bound.

    - `age`: how many seconds a job is kept.
    - `count`: how many jobs are kept.
    - `by_default`: True if Tidemill chose the bounds, not the application."""

    age: float | None = None
    count: int | None = None
    by_default: bool | UnsetType = UNSET

    def problem(self) -> str | None:
        """Returns why the bounds are invalid; None if they are valid. A bound below 0 would delete
        everything at the next prune."""
        if self.age is not None and not is_number(self.age, 0):
            return f"age must be a number of seconds, 0 or more, or None for no bound, is {self.age!r}"
        if self.count is not None and not is_integer(self.count, 0):
            return f"count must be a whole number, 0 or more, or None for no bound, is {self.count!r}"
        return None

    def described(self) -> str:
        """Returns the bounds as text: `for 7 days, at most 1 000 000`."""
        age = None if self.age is None else f"for {_format_span(self.age)}"
        count = None if self.count is None else f"at most {self.count:,}".replace(",", " ")
        return ", ".join(bound for bound in (age, count) if bound) or "without a bound"

    def same_bounds(self, other: Retention) -> bool:
        return (self.age, self.count) == (other.age, other.count)

    def oldest_kept(self, now: float) -> float:
        """Returns the wall time before which finished jobs are too old to be kept; minus infinity without
        `age`."""
        return -math.inf if self.age is None else now - self.age

    def drops_early(self, finished: float, now: float) -> bool:
        """True if a job that finished at `finished` has not reached `age` yet, so its deletion would be
        early. Without `age` the result is False."""
        return self.age is not None and finished > now - self.age


def _format_span(seconds: float) -> str:
    """Returns the seconds as text, in the largest unit that gives a whole number: `7 days`."""
    for size, unit in ((DAY_SECONDS, "days"), (HOUR_SECONDS, "hours"), (60.0, "minutes")):
        if seconds > size and seconds % size == 0:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:g} seconds"


DEFAULT_RETENTION_JOBS, PAID_RETENTION_JOBS = 100_000, 1_000_000
DEFAULT_RETENTION = Retention(age=DAY_SECONDS, count=DEFAULT_RETENTION_JOBS, by_default=True)
DEFAULT_FAILED_RETENTION = Retention(age=7 * DAY_SECONDS, count=DEFAULT_RETENTION_JOBS, by_default=True)
PAID_RETENTION = Retention(age=7 * DAY_SECONDS, count=PAID_RETENTION_JOBS, by_default=True)
"""For a queue with a pooled or paid task: its results cost money."""


RETENTION_FIELDS = ("keep_done", "keep_failed", "keep_cancelled")


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a queue.

    - `concurrency`: limits the running jobs of the queue over all workers.
    - `key_concurrency`: limits the running jobs of each key.
    - `max_length`: limits the pending jobs.
    - `keep_…`: how long finished jobs are kept."""

    weight: int = 1
    concurrency: int | None = None
    key_concurrency: int | None = None
    max_length: int | None = None
    crash_limit: int = 3
    keep_done: Retention = DEFAULT_RETENTION
    keep_failed: Retention = DEFAULT_FAILED_RETENTION
    keep_cancelled: Retention = DEFAULT_RETENTION

    def retention(self, state: State) -> Retention:
        if state is State.DONE:
            return self.keep_done
        return self.keep_failed if state is State.FAILED else self.keep_cancelled

    def problem(self) -> str | None:
        for field in ("weight", "crash_limit"):
            if not is_integer(getattr(self, field), 1):
                return f"{field}: must be a whole number, 1 or more, is {getattr(self, field)!r}"
        for field in ("concurrency", "key_concurrency", "max_length"):
            value = getattr(self, field)
            if value is not None and not is_integer(value, 1):
                return f"{field}: must be a whole number, 1 or more, or None for no limit, is {value!r}"
        for field in RETENTION_FIELDS:
            retention = getattr(self, field)
            if not isinstance(retention, Retention):
                return f"{field}: must be a Retention, such as Retention(age=86400), is {retention!r}"
            if problem := retention.problem():
                return f"{field}: {problem}"
        return None


def with_paid_retention(settings: QueueSettings) -> QueueSettings:
    """Returns the settings with the longer default retention, for a queue with a paid task or a task that
    uses a pool. A chosen retention does not change."""
    chosen = {name: PAID_RETENTION for name in RETENTION_FIELDS if getattr(settings, name).by_default}
    return replace(settings, **chosen)


def redeclare_queue(before: QueueSettings | None, settings: QueueSettings) -> QueueSettings:
    """Returns the settings that the store keeps when code declares a queue again (Q1). `before` are the
    stored settings, if any. A default never shortens the longer retention of a queue with paid tasks."""
    if before is None:
        return settings
    longer = {
        name: PAID_RETENTION
        for name in RETENTION_FIELDS
        if getattr(settings, name).by_default and getattr(before, name) == PAID_RETENTION
    }
    return replace(settings, **longer) if longer else settings


class QueueChanges(SettingChanges[QueueSettings], frozen=True, kw_only=True, forbid_unknown_fields=True):
    """New values for some settings of a queue. A field that is UNSET keeps the declared value."""

    weight: int | UnsetType = UNSET
    concurrency: int | UnsetType | None = UNSET
    key_concurrency: int | UnsetType | None = UNSET
    max_length: int | UnsetType | None = UNSET
    crash_limit: int | UnsetType = UNSET
    keep_done: Retention | UnsetType = UNSET
    keep_failed: Retention | UnsetType = UNSET
    keep_cancelled: Retention | UnsetType = UNSET


class Pause(msgspec.Struct, frozen=True):
    """An operator's pause of a queue. `since` and `until` are wall times; `until=None` means until the queue
    is resumed."""

    since: float
    until: float | None = None
    reason: str | None = None

    def closed(self, now: float) -> bool:
        return self.until is None or now < self.until

    def problem(self) -> str | None:
        """Returns why the pause is invalid, naming the field; None if it is valid."""
        return problem_with_operator_mark(None, self.reason, self.until)


class InsertVerdict(StrEnum):
    """A store's answer to one job of an insert.

    - `accepted`: the job is stored.
    - `existing`: another job holds its unique key.
    - `full`: the queue has reached its `max_length`.
    - `invalid`: an option of the job is not allowed."""

    ACCEPTED = "accepted"
    EXISTING = "existing"
    FULL = "full"
    INVALID = "invalid"


class InsertResult(msgspec.Struct, frozen=True):
    """The store's answer to one job of an insert. `id` is the job's own id, or the id of the job that holds
    its unique key. `problem` says why an invalid job was refused."""

    verdict: InsertVerdict
    id: str
    problem: str | None = None


class QueueOptions(TypedDict, total=False):
    """The keyword arguments that declare a queue. They become a `QueueSettings`."""

    weight: int
    concurrency: int | None
    key_concurrency: int | None
    max_length: int | None
    crash_limit: int
    keep_done: Retention
    keep_failed: Retention
    keep_cancelled: Retention
