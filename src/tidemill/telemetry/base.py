"""What all events have in common."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

Level = Literal["debug", "info", "warning", "error"]
RANKS: dict[str, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened. `level` and `sentence` are how it reads as a log line.

    `floods`: many at once say little more than the first, so the log has one a minute at `level` and
    the others at `debug`. Listeners get all of them. As text, an event says what happened, to whom and why.
    """

    level: ClassVar[Level] = "info"
    sentence: ClassVar[str] = ""
    floods: ClassVar[bool] = False

    def __str__(self) -> str:
        known = msgspec.structs.asdict(self)
        whom = [f"{known['task']}"] if "task" in known else []
        whom += [f"{name} {known[name]}" for name in ("job", "worker") if name in known][:1]
        why = [f"{known['error']}: {known['message']}"] if known.get("error") else []
        return ": ".join(filter(None, (self.sentence, ", ".join(whom + why))))


class JobEvent(Event, frozen=True, kw_only=True):
    """About one job. `trace` is the job's own id when it was given none."""

    job: str
    task: str
    queue: str
    trace: str


class AttemptEvent(JobEvent, frozen=True, kw_only=True):
    """About one attempt of a job, in the hands of a worker."""

    attempt: int
    worker: str


class WorkerEvent(Event, frozen=True, kw_only=True):
    """About a worker as a whole."""

    worker: str


class PoolEvent(WorkerEvent, frozen=True, kw_only=True):
    """About a pool, or one key of it. `job` is the one that met with it."""

    pool: str
    key: str | None
    job: str
