"""What becomes of the ticks of schedules, told by the worker that saw to them."""

from __future__ import annotations

from typing import ClassVar

from tidemill.telemetry.base import Level, WorkerEvent


class ScheduleFired(WorkerEvent, frozen=True, kw_only=True):
    """A tick (wall time) has made its job, `seconds` after it."""

    sentence: ClassVar[str] = "schedule fired"
    floods: ClassVar[bool] = True

    schedule: str
    tick: float
    job: str
    seconds: float


class ScheduleSkipped(WorkerEvent, frozen=True, kw_only=True):
    """A tick (wall time), the last of `count`, made no job that can run: missed, overlap, or failed."""

    level: ClassVar[Level] = "warning"
    sentence: ClassVar[str] = "schedule skipped"
    floods: ClassVar[bool] = True

    schedule: str
    tick: float
    reason: str
    count: int
