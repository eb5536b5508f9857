"""What happens to pools, each told once, by the worker whose claim or settlement did it."""

from __future__ import annotations

from typing import ClassVar

from tidemill.telemetry.base import AttemptEvent, Level, PoolEvent


class PoolClosed(PoolEvent, frozen=True, kw_only=True):
    """A refusal closed a pool until the wall time `until`, None: until a person does; `times` in a row."""

    level: ClassVar[Level] = "warning"
    sentence: ClassVar[str] = "pool closed"

    reason: str
    unit: str | None
    until: float | None
    times: int
    text: str


class PoolProbed(PoolEvent, frozen=True, kw_only=True):
    """The wait is over and `job` tries the pool alone; the others follow when it is answered."""

    sentence: ClassVar[str] = "pool probed"

    reason: str


class PoolOpened(PoolEvent, frozen=True, kw_only=True):
    """No closure is left of a pool that was closed at `since` (wall); `ramp`: it grows back to full speed."""

    sentence: ClassVar[str] = "pool opened"

    reason: str
    since: float
    ramp: bool


class PoolSlowed(PoolEvent, frozen=True, kw_only=True):
    """The provider allows less than was set: `amounts`, by the limit's name, hold from now on."""

    level: ClassVar[Level] = "warning"
    sentence: ClassVar[str] = "pool slowed"

    amounts: dict[str, float]


class FeedbackProblem(AttemptEvent, frozen=True, kw_only=True):
    """A handler told of its pools what nobody can count or read, or a classifier failed."""

    level: ClassVar[Level] = "warning"
    sentence: ClassVar[str] = "feedback problem"
    floods: ClassVar[bool] = True

    problem: str


class UnreservedCall(AttemptEvent, frozen=True, kw_only=True):
    """More calls were made than reserved, and are booked as they leave. Once for each pool and worker."""

    level: ClassVar[Level] = "warning"
    sentence: ClassVar[str] = "more calls than reserved"

    pool: str
    key: str | None
