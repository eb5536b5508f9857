"""The base classes of events."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

LogLevel = Literal["debug", "info", "warning", "error"]
LEVEL_RANKS: dict[str, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened. `str(event)` says what happened, to which job or worker, and why.

    - `level`, `sentence`: the level and text of its log line
    - `is_log_throttled`: True if the log has one event per minute at `level`; further events are at
      `debug`"""

    level: ClassVar[LogLevel] = "info"
    sentence: ClassVar[str] = ""
    is_log_throttled: ClassVar[bool] = False

    def __str__(self) -> str:
        known = msgspec.structs.asdict(self)
        whom = [f"{known['task']}"] if "task" in known else []
        whom += [f"{name} {known[name]}" for name in ("job", "worker") if name in known][:1]
        why = [f"{known['error']}: {known['message']}"] if known.get("error") else []
        return ": ".join(filter(None, (self.sentence, ", ".join(whom + why))))


class JobEvent(Event, frozen=True, kw_only=True):
    """An event about one job. `trace` is the job's trace id, or the job's id if the job has no trace."""

    job: str
    task: str
    queue: str
    trace: str


class AttemptEvent(JobEvent, frozen=True, kw_only=True):
    """An event about one attempt of a job in a worker. `attempt` counts from 1."""

    attempt: int
    worker: str


class WorkerEvent(Event, frozen=True, kw_only=True):
    """An event about a worker, or noticed by it. `worker` is the worker's id."""

    worker: str


class PoolEvent(WorkerEvent, frozen=True, kw_only=True):
    """An event about a pool, or about one `key` of it. `job` is the job whose call caused the event."""

    pool: str
    key: str | None
    job: str
