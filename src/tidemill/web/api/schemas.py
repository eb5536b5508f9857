"""Request and response types that API routes share: field types, the job filter, and a job as JSON."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field, to_builtins

from tidemill.contract.reader import AttemptRecord, JobPage, LogLine
from tidemill.core.batching import BatchPolicy
from tidemill.core.filters import Filter
from tidemill.core.jobs import PRIORITY_RANGE, Error, FlowPosition, Job
from tidemill.core.needs import Need
from tidemill.core.states import State
from tidemill.core.validation import MAX_NAME_CHARS
from tidemill.errors import ConfigurationError
from tidemill.inspect.queues import require_queue
from tidemill.inspect.views import CheckpointView, JobView, decode_payload
from tidemill.web.request import RouteRequest

MAX_DURATION_SECONDS = 100 * 365 * 86_400
MAX_UNIX_TIME = 220_000_000_000
"""The year 8941; calendars end with the year 9999."""
MAX_JSON_INTEGER = 2**53 - 1
"""Largest integer that JSON carries exactly in every language."""

Seconds = Annotated[float, Meta(ge=0, le=MAX_DURATION_SECONDS, description="Seconds.")]
Time = Annotated[float, Meta(ge=0, le=MAX_UNIX_TIME, description="Unix time in seconds.")]
NonNegativeInt = Annotated[int, Meta(ge=0, le=MAX_JSON_INTEGER)]
Priority = Annotated[int, Meta(ge=PRIORITY_RANGE[0], le=PRIORITY_RANGE[1], description="Smaller runs first.")]
NO_NUL_PATTERN = r"^[^\x00]*$"
"""Text that every store can hold: no NUL characters."""
Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARS, pattern=NO_NUL_PATTERN)]
Sentence = Annotated[str, Meta(min_length=1, max_length=1000, pattern=NO_NUL_PATTERN)]
Limit = Annotated[int, Meta(ge=1, le=1000, description="Maximum number of results.")]
Cursor = Annotated[int, Meta(ge=0, le=MAX_JSON_INTEGER, description="Cursor of the previous page.")]
TextCursor = Annotated[str, Meta(max_length=1000, description="Cursor of the previous page.")]


class RequestBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base class of JSON request bodies. Unknown fields are refused."""


class QueryParameters(Struct, frozen=True, kw_only=True):
    """The base class of the query parameters of a route. `request_parser` refuses unknown parameters."""


class ResponseBody(Struct, frozen=True, kw_only=True):
    """The base class of JSON response bodies."""


def override_arguments(request: RouteRequest) -> Any:
    """Returns the body of an override request as keyword arguments. The argument `by`, the author, is the
    user of the request."""
    return to_builtins(request.body) | {"by": request.user.name}


FieldCondition = Annotated[
    str,
    Meta(
        pattern="^[^=]+=",
        max_length=1000,
        description="A path into the payload and its value: feed.host=a.example.",
    ),
]


class JobQuery(QueryParameters, frozen=True, kw_only=True):
    """A search for jobs; a job must match every given parameter.

    - `since`, `until`: the start and the end of a range of times; the end is not included
    - `time`: the time of a job that must be in the range: `created`, `due` or `finished`
    - `field`: a path into the payload and the value to find there, such as `feed.host=a.example`; up to 20
      `field` parameters are allowed"""

    ids: list[Name] | None = field(default=None, name="id")
    id_prefix: Name | None = None
    queue: Name | None = None
    states: list[State] | None = field(default=None, name="state")
    task: Name | None = None
    key: Name | None = None
    tag: Name | None = None
    flow: Name | None = None
    since: Time | None = None
    until: Time | None = None
    time: Literal["created", "due", "finished"] = "created"
    text: Sentence | None = None
    fields: list[FieldCondition] = field(default_factory=list, name="field")


class JobPageQuery(JobQuery, frozen=True, kw_only=True):
    limit: Limit = 100
    cursor: Cursor | None = None


class JobFilterBody(RequestBody, frozen=True, kw_only=True):
    """A filter for jobs; a job must match every given field.

    - `since`, `until`: the start and the end of a range of times; the end is not included
    - `time`: the time of a job that must be in the range: `created`, `due` or `finished`
    - `fields`: up to 20 pairs of a path into the payload and the value to find there"""

    ids: list[Name] | None = None
    id_prefix: Name | None = None
    queue: Name | None = None
    states: list[State] | None = None
    task: Name | None = None
    key: Name | None = None
    tag: Name | None = None
    flow: Name | None = None
    since: Time | None = None
    until: Time | None = None
    time: Literal["created", "due", "finished"] = "created"
    text: Sentence | None = None
    fields: list[tuple[Name, Name]] = field(default_factory=list)


async def build_filter(
    request: RouteRequest, criteria: JobQuery | JobFilterBody, states: tuple[State, ...] | None = None
) -> Filter:
    """Returns the filter for the criteria of a request. `states` applies if the criteria name no states.
    Raises QueueNotFound if the queue is unknown."""
    if criteria.queue is not None and all(
        task.queue != criteria.queue for task in request.app.tasks.values()
    ):
        await require_queue(await request.app.client.store(), criteria.queue)
    return Filter(
        ids=None if criteria.ids is None else tuple(criteria.ids),
        id_prefix=criteria.id_prefix,
        queue=criteria.queue,
        states=states if criteria.states is None else tuple(criteria.states),
        task=criteria.task,
        key=criteria.key,
        tag=criteria.tag,
        flow=criteria.flow,
        since=criteria.since,
        until=criteria.until,
        time=criteria.time,
        text=criteria.text,
        fields=tuple(map(_split_condition, criteria.fields)),
    )


def require_criteria(criteria: JobFilterBody) -> None:
    """Raises ConfigurationError if the filter is empty, because it would match every job."""
    if criteria in (JobFilterBody(), JobFilterBody(time=criteria.time)):
        raise ConfigurationError("queue: say which jobs are meant, such as a queue, states or ids")


def _split_condition(condition: str | tuple[str, str]) -> tuple[str, str]:
    if isinstance(condition, tuple):
        return condition
    path, _, value = condition.partition("=")
    return path, value


class JobRecord(ResponseBody, frozen=True, kw_only=True):
    """A job. Times are Unix times in seconds, durations are seconds.

    - `payload`, `result`: the task's arguments and its return value, with secrets hidden
    - `attempt`: the number of the running attempt, null if the job is not running
    - `attempts`: the number of attempts so far, without the running one
    - `reason`: why the job ended
    - `error`: how the last attempt failed
    - `after`: the id of the job that this job waits for
    - `needs`: the units that the job reserves in pools when a worker claims it
    - `deferred_needs`: units that its handler requested during an attempt, and for which the job now waits
    - `unknown_for`: how many seconds the job was postponed, because the workers did not know its task"""

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
    batching: BatchPolicy | None
    deferred_needs: tuple[Need, ...]
    flow: FlowPosition | None
    key: str | None
    attempt: int | None


class CheckpointRecord(ResponseBody, frozen=True, kw_only=True):
    """A checkpoint of a job, without the stored result.

    - `arguments`: a digest of the step's arguments
    - `state`: `kept` if the result is stored; `begun` if the attempt that called the step is still running;
      `unknown` if that attempt ended without a result, so that the call may have been paid for
    - `begun`, `kept`: the Unix times at which the step began and its result was stored
    - `size`: the size of the result as JSON, in bytes
    - `unknown`: how often the step was called again although the outcome of its previous call was unknown"""

    name: str
    arguments: str
    paid: bool
    state: str
    begun: float
    kept: float | None
    size: int | None
    unknown: int


class JobDetail(JobRecord, frozen=True, kw_only=True):
    """A job with its failed attempts, log lines and checkpoints, oldest first."""

    failed_attempts: tuple[AttemptRecord, ...]
    log: tuple[LogLine, ...]
    checkpoints: tuple[CheckpointRecord, ...]


class JobPageBody(ResponseBody, frozen=True, kw_only=True):
    """A page of jobs, newest first. Send `cursor` to get the next page; it is null on the last page.
    `partial` is true if the search stopped early; `cursor` continues the search."""

    jobs: tuple[JobRecord, ...]
    cursor: int | None
    partial: bool


def job_page(page: JobPage) -> JobPageBody:
    records = tuple(job_record(job) for job in page.jobs)
    return JobPageBody(jobs=records, cursor=page.cursor, partial=page.partial)


def job_record(job: Job) -> JobRecord:
    return JobRecord(**_job_fields(job))


def job_detail(view: JobView) -> JobDetail:
    return JobDetail(
        **_job_fields(view.job),
        failed_attempts=view.attempts,
        log=view.log,
        checkpoints=tuple(map(_checkpoint_record, view.checkpoints)),
    )


def _job_fields(job: Job) -> dict[str, Any]:
    plain = {name: getattr(job, name) for name in JobRecord.__struct_fields__ if name not in _COMPUTED_FIELDS}
    return plain | {
        "key": job.key or None,
        "attempt": job.attempts + 1 if job.state is State.RUNNING else None,
        "payload": decode_payload(job.payload),
        "result": None if job.result is None else decode_payload(job.result),
    }


_COMPUTED_FIELDS = frozenset({"key", "attempt", "payload", "result"})


def _checkpoint_record(view: CheckpointView) -> CheckpointRecord:
    return CheckpointRecord(**{name: getattr(view, name) for name in CheckpointRecord.__struct_fields__})
