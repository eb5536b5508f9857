"""A job as JSON: the same fields as `tidemill jobs show --json` prints. Whoever asks `asked.inspect` for jobs
gets them without secrets."""

from __future__ import annotations

from typing import Any

from tidemill.contract.reader import AttemptRecord, LogLine, Page
from tidemill.core.batching import Batching
from tidemill.core.flow_jobs import InFlow
from tidemill.core.job import Error, Job
from tidemill.core.needs import Need
from tidemill.core.states import State
from tidemill.inspect.steps import CheckpointView
from tidemill.inspect.views import JobView, readable
from tidemill.web.api.fields import Answer


class JobRecord(Answer, frozen=True, kw_only=True):
    """`payload` are the task's arguments and `result` what it returned, both without secrets. `attempt` is
    the one a running job is in, `attempts` how many it has spent. `reason` says why it ended as it did,
    `error` what its last attempt died of. `after` is the job it starts behind, `needs` what it takes of
    pools, `extra` what it waits for beside. Times are Unix times in seconds, durations seconds."""

    id: str
    queue: str
    task: str
    payload: Any
    state: State
    priority: int
    created: float
    due: float
    expires: float | None
    timeout: float | None
    trace: str | None
    tags: tuple[str, ...]
    attempts: int
    crashes: int
    generation: int
    unique_key: str | None
    unique_until: float | None
    after: str | None
    worker: str | None
    started: float | None
    finished: float | None
    result: Any
    error: Error | None
    reason: str | None
    progress: float | None
    note: str | None
    unknown_for: float
    needs: tuple[Need, ...]
    batching: Batching | None
    extra: tuple[Need, ...]
    flow: InFlow | None
    key: str | None
    attempt: int | None


class Checkpoint(Answer, frozen=True, kw_only=True):
    """A step of a job, without its result. `state` is kept, begun while its attempt runs, or unknown."""

    name: str
    arguments: str
    paid: bool
    state: str
    begun: float
    kept: float | None
    size: int | None
    unknown: int


class JobDetail(JobRecord, frozen=True, kw_only=True):
    """A job with its attempts that did not succeed, the lines they logged, and its steps, oldest first."""

    failed_attempts: tuple[AttemptRecord, ...]
    log: tuple[LogLine, ...]
    checkpoints: tuple[Checkpoint, ...]


class JobPage(Answer, frozen=True, kw_only=True):
    """Newest first. `cursor` continues where this page ends; null when it is the last. `partial`: as many
    jobs were looked at as one page may, and `cursor` looks on."""

    jobs: tuple[JobRecord, ...]
    cursor: int | None
    partial: bool


def page_of(page: Page) -> JobPage:
    records = tuple(record_of(job) for job in page.jobs)
    return JobPage(jobs=records, cursor=page.cursor, partial=page.partial)


def record_of(job: Job) -> JobRecord:
    return JobRecord(**_fields(job))


def detail_of(view: JobView) -> JobDetail:
    return JobDetail(
        **_fields(view.job),
        failed_attempts=view.attempts,
        log=view.log,
        checkpoints=tuple(map(_checkpoint, view.checkpoints)),
    )


def _fields(job: Job) -> dict[str, Any]:
    plain = {name: getattr(job, name) for name in JobRecord.__struct_fields__ if name not in _COMPUTED}
    return plain | {
        "key": job.key or None,
        "attempt": job.attempts + 1 if job.state is State.RUNNING else None,
        "payload": readable(job.payload),
        "result": None if job.result is None else readable(job.result),
    }


_COMPUTED = frozenset({"key", "attempt", "payload", "result"})


def _checkpoint(view: CheckpointView) -> Checkpoint:
    return Checkpoint(**{name: getattr(view, name) for name in Checkpoint.__struct_fields__})
