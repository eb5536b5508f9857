"""A job as a client sends it and as a store keeps it, with its position in a flow."""

from __future__ import annotations

import math
import re

import msgspec

from tidemill.core import needs
from tidemill.core.batching import BatchPolicy
from tidemill.core.needs import LANE_SEPARATOR, Need
from tidemill.core.states import State
from tidemill.core.unique_keys import Unique
from tidemill.core.validation import MAX_NAME_CHARS, is_storable, problem_with_name

COMPENSATION_SUFFIX = "!"
"""Suffix of a step name for the compensation jobs, which run in place of the step's failed jobs."""

MAX_STEP_RESULT_BYTES = 256 * 1024
"""The largest result of a step: every job that takes it reads it on each run."""

MAX_STEP_INPUT_BYTES = 32 * 1024 * 1024
"""The largest sum of all results that a job takes: a worker runs several jobs at once."""


class ResultReference(msgspec.Struct, frozen=True):
    """An argument of a flow's job whose value is the result of another step. If `count` is given, the value
    is the list of the results of that step's `count` jobs."""

    step: str
    count: int | None = None


class FlowPosition(msgspec.Struct, frozen=True):
    """The position of a job in a flow: flow id, step and index. `reads` has the arguments whose values are
    results of earlier steps; the payload does not contain these arguments."""

    id: str
    step: str
    index: int = 0
    reads: dict[str, ResultReference] = {}


def flow_job_id(flow: str, step: str, index: int = 0) -> str:
    """Returns the id of a job of a flow. The same flow, step and index always give the same id."""
    return f"{flow}/{step}/{index}"


def parse_flow_job_id(flow: str, job: str) -> tuple[str, int] | None:
    """Returns the step and the index from a job id; None if the job does not belong to `flow`."""
    step, _, index = job.removeprefix(f"{flow}/").rpartition("/")
    if not job.startswith(f"{flow}/") or not step or not index.isdecimal():
        return None
    return step, int(index)


DEFAULT_PRIORITY = 5
PRIORITY_RANGE = (-32_768, 32_767)


class Error(msgspec.Struct, frozen=True):
    """The error of an attempt, stored as text fields and never as a pickled exception."""

    type: str
    message: str
    traceback: str | None = None


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as a client sends it. `delay`, `expires` and `timeout` are durations in seconds. `at` is a wall
    time and replaces `delay`."""

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
    batching: BatchPolicy | None = None
    flow: FlowPosition | None = None


class JobGroup(msgspec.Struct, frozen=True):
    """Jobs for one queue that the store accepts or refuses together."""

    queue: str
    jobs: tuple[NewJob, ...]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as a store keeps it. `lease` is a time on the boot clock. All remaining times are wall times.

    - `seq`: the job's number in the order of arrival.
    - `lane`: the name of its lane, see `core.needs.lane_name`.
    - `claim`: the claim id, 0 if no worker may settle the job.
    - `part`: the name of the job's part if its batch failed and was split, else ''.
    - `unknown_for`: the seconds for which workers that do not know the task postponed the job.
    - `batching`: how the job shares calls, None if it does not.
    - `call`: the id of the first job of the call in which this job was last claimed.
    - `deferred_needs`: units besides `needs` that the handler asked for in an earlier attempt.
    - `flow`: the job's position in its flow. A job of a flow is kept as long as the flow."""

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
    batching: BatchPolicy | None = None
    call: str = ""
    deferred_needs: tuple[Need, ...] = ()
    flow: FlowPosition | None = None

    @property
    def key(self) -> str:
        return needs.lane_key(self.lane)


def job_lane(job: NewJob) -> str:
    """Returns the name of the lane for a new job. Jobs without a key, pools and batching share the lane
    ''."""
    return needs.lane_name(job.key, job.needs, None if job.batching is None else job.task)


def problem_with_group(group: JobGroup) -> str | None:
    """Returns why a group cannot be accepted, naming the field; None if it can."""
    if problem := problem_with_name("queue", group.queue):
        return problem
    for job in group.jobs:
        if problem := _problem_with_job(job):
            return f"{problem} (job {job.id[:MAX_NAME_CHARS]!r})"
    return None


def _problem_with_job(job: NewJob) -> str | None:
    if _is_plain(job):
        return None
    problem = _problem_with_texts(job) or problem_with_priority(job.priority)
    if problem is None and job.unique is not None:
        problem = job.unique.problem()
    return problem or _problem_with_times(job)


def _is_plain(job: NewJob) -> bool:
    """True if the job uses no option and its texts are short ASCII, so that it needs no further check. Every
    enqueue runs this fast check first."""
    names = job.id + job.task
    return (
        0 < len(job.id) <= MAX_NAME_CHARS
        and 0 < len(job.task) <= MAX_NAME_CHARS
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
    """Returns why the names in a need are invalid; None if they are valid."""
    for field, name in (("pool", need.pool), ("pool key", need.key)):
        if name is not None and (
            problem := problem_with_name(field, name) or _problem_with_separator(field, name)
        ):
            return problem
    return None


def _problem_with_batching(job: NewJob, rule: BatchPolicy) -> str | None:
    if problem := rule.problem() or _problem_with_separator("task", job.task):
        return problem
    pools = {need.pool for need in job.needs}
    for pool in rule.call:
        if pool not in pools:
            return f"call: names the pool {pool!r}, which the job does not need"
    return None


def _problem_with_separator(field: str, name: str) -> str | None:
    return f"{field}: must not hold the character U+001F" if LANE_SEPARATOR in name else None


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


_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


def trace_id(trace: str | None, job: str) -> str:
    """Returns the trace id, which all jobs of one request share. `trace` is the job's trace context. Without
    one, the trace id is the job's id `job`."""
    if trace is None:
        return job
    found = _TRACEPARENT.fullmatch(trace)
    return trace if found is None else found[1]
