"""A job as a client sends it and as a store keeps it."""

from __future__ import annotations

import math

import msgspec

from tidemill.core import needs
from tidemill.core.batching import Batching
from tidemill.core.flow_jobs import InFlow
from tidemill.core.names import MAX_NAME, is_storable, problem_with_name
from tidemill.core.needs import SEPARATOR, Need
from tidemill.core.states import State
from tidemill.core.uniqueness import Unique

DEFAULT_PRIORITY = 5
PRIORITY_RANGE = (-32_768, 32_767)


class Error(msgspec.Struct, frozen=True):
    """What an attempt died of, as data: never a pickled exception."""

    type: str
    message: str
    traceback: str | None = None


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a client sends. Times are relative where they can be: the store owns the clock."""

    id: str
    task: str
    payload: bytes
    priority: int = DEFAULT_PRIORITY
    key: str | None = None
    delay: float = 0.0
    at: float | None = None
    expires: float | None = None
    timeout: float | None = None
    unique: Unique | None = None
    trace: str | None = None
    tags: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    batching: Batching | None = None
    flow: InFlow | None = None


class Group(msgspec.Struct, frozen=True):
    """Jobs for one queue that are accepted or refused together."""

    queue: str
    jobs: tuple[NewJob, ...]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a store keeps. One field, one column; the names are the same everywhere.

    `lease` is on the store's boot clock, every other time on its wall clock.
    `lane` is the line it stands in, see `core.needs.lane_of`; `key` is the key it was given, '' for none.
    `claim` is 0 when nobody may settle the job. `unknown_for` adds up how long workers that did not
    know the task have put it off. `batching` is how it shares calls with others; `part` names the part of
    a split batch it belongs to, '' for none, and `call` the first job of the call it was last claimed for.
    `extra` is what its handler asked for while it ran and has to wait for, beside its `needs`. A job of a
    `flow` is kept as long as its flow.
    """

    seq: int
    id: str
    queue: str
    task: str
    payload: bytes
    state: State
    priority: int
    lane: str
    created: float
    due: float
    expires: float | None = None
    timeout: float | None = None
    trace: str | None = None
    tags: tuple[str, ...] = ()
    attempts: int = 0
    crashes: int = 0
    generation: int = 0
    unique_key: str | None = None
    unique_until: float | None = None
    unique_holds: bool = False
    after: str | None = None
    fence: int = 0
    claim: int = 0
    worker: str | None = None
    number: int = 0
    lease: float = 0.0
    alone: bool = False
    started: float | None = None
    finished: float | None = None
    result: bytes | None = None
    error: Error | None = None
    reason: str | None = None
    progress: float | None = None
    note: str | None = None
    part: str = ""
    unknown_for: float = 0.0
    needs: tuple[Need, ...] = ()
    batching: Batching | None = None
    call: str = ""
    extra: tuple[Need, ...] = ()
    flow: InFlow | None = None

    @property
    def key(self) -> str:
        return needs.key_of(self.lane)


def lane_of(job: NewJob) -> str:
    """The lane a job is filed in. Jobs without a key and without pools share the lane ''."""
    return needs.lane_of(job.key, job.needs, None if job.batching is None else job.task)


def problem_with(group: Group) -> str | None:
    """Why a group cannot be accepted, naming the field; None when it can."""
    if problem := problem_with_name("queue", group.queue):
        return problem
    for job in group.jobs:
        if problem := _problem_with(job):
            return f"{problem} (job {job.id[:MAX_NAME]!r})"
    return None


def _problem_with(job: NewJob) -> str | None:
    if _is_plain(job):
        return None
    problem = _problem_with_texts(job) or problem_with_priority(job.priority)
    if problem is None and job.unique is not None:
        problem = job.unique.problem()
    return problem or _problem_with_times(job)


def _is_plain(job: NewJob) -> bool:
    """The usual job, seen to be fine at a glance: every enqueue asks."""
    names = job.id + job.task
    return (
        0 < len(job.id) <= MAX_NAME
        and 0 < len(job.task) <= MAX_NAME
        and job.key is None
        and not job.needs
        and job.batching is None
        and job.trace is None
        and not job.tags
        and job.unique is None
        and PRIORITY_RANGE[0] <= job.priority <= PRIORITY_RANGE[1]
        and job.delay == 0
        and job.at is job.expires is job.timeout is None
        and names.isascii()
        and "\0" not in names
        and job.payload.isascii()
    )


def _problem_with_texts(job: NewJob) -> str | None:
    problem = problem_with_name("id", job.id) or problem_with_name("task", job.task)
    if problem is None and job.key is not None:
        problem = problem_with_name("key", job.key) or _problem_with_separator("key", job.key)
    for need in job.needs:
        problem = problem or _problem_with_need(need)
    if problem is None and len({(need.pool, need.key) for need in job.needs}) < len(job.needs):
        problem = "needs: names a pool twice; add the units up"
    if problem is None and job.batching is not None:
        problem = _problem_with_batching(job, job.batching)
    for field, value in (("trace", job.trace), *(("tags", tag) for tag in job.tags)):
        if problem is None and value is not None and not is_storable(value):
            problem = f"{field}: must be text without NUL characters or lone surrogates"
    if problem is None and not _is_utf8(job.payload):
        problem = "payload: must be JSON in UTF-8"
    return problem


def _problem_with_need(need: Need) -> str | None:
    """Whether there is such a pool, and whether its limits could ever let it through, only a store knows."""
    for field, name in (("pool", need.pool), ("pool key", need.key)):
        if name is not None and (
            problem := problem_with_name(field, name) or _problem_with_separator(field, name)
        ):
            return problem
    return None


def _problem_with_batching(job: NewJob, rule: Batching) -> str | None:
    if problem := rule.problem() or _problem_with_separator("task", job.task):
        return problem
    pools = {need.pool for need in job.needs}
    for pool in rule.call:
        if pool not in pools:
            return f"call: names the pool {pool!r}, which the job does not need"
    return None


def _problem_with_separator(field: str, name: str) -> str | None:
    return f"{field}: must not hold the character U+001F" if SEPARATOR in name else None


def problem_with_priority(priority: int) -> str | None:
    low, high = PRIORITY_RANGE
    if not low <= priority <= high:
        return f"priority: must lie between {low} and {high}, is {priority}"
    return None


def _is_utf8(payload: bytes) -> bool:
    if payload.isascii():
        return True
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def _problem_with_times(job: NewJob) -> str | None:
    times = (("delay", job.delay), ("expires", job.expires), ("timeout", job.timeout))
    for field, value in times:
        if value is not None and not (math.isfinite(value) and value >= 0):
            return f"{field}: must be a number of seconds, 0 or more, is {value}"
    if job.at is not None and not math.isfinite(job.at):
        return f"at: must be a time, is {job.at}"
    return None
