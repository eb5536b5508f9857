"""API routes that enqueue one job or many."""

from __future__ import annotations

import re
from hashlib import blake2b
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tidemill.client.request import JobRequest
from tidemill.client.task import Task
from tidemill.core import jobs as core
from tidemill.core.jobs import Job
from tidemill.core.queues import InsertResult, InsertVerdict
from tidemill.core.unique_keys import OnConflict, Unique
from tidemill.core.validation import close_matches
from tidemill.errors import EnqueueError, InvalidPayload, TidemillError
from tidemill.http_routes.problems import HTTPError
from tidemill.http_routes.routes import Role, Route
from tidemill.tasks.definition import decode_json_arguments
from tidemill.web.api.schemas import Name, Priority, RequestBody, ResponseBody, Seconds, Time
from tidemill.web.request import RouteRequest

IDEMPOTENCY_HEADER = "idempotency-key"
MAX_IDEMPOTENCY_KEY_CHARS = 255
MAX_JOBS_PER_REQUEST = 10_000
IDEMPOTENCY_TAG_PREFIX = "idempotency:"
"""Prefix of the tag with the digest of the request, which detects an idempotency key reused for another
request."""


class UniqueKeyBody(RequestBody, frozen=True, kw_only=True):
    """A unique key, which at most one live job of a queue may hold. By default the job holds the key until it
    ends; give `period` or `at_most` to change this.

    - `on_conflict`: what happens if another job holds the key
    - `period`: the job holds the key for this many seconds, even after it has ended
    - `at_most`: the job holds the key until it ends, at most for this many seconds"""

    key: Name
    on_conflict: OnConflict = "skip"
    period: Seconds | None = None
    at_most: Seconds | None = None


class EnqueueBody(RequestBody, frozen=True, kw_only=True):
    """A job to enqueue. Missing fields use the task's defaults.

    - `payload`: the task's arguments by name
    - `delay`, `at`: when the job may start: seconds from now, or a time
    - `expires`: the job is cancelled if it has not started after this many seconds
    - `cost`: replaces the task's own cost"""

    task: Name
    payload: dict[str, Any] | UnsetType = UNSET
    queue: Name | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    delay: Seconds | UnsetType = UNSET
    at: Time | UnsetType = UNSET
    expires: Seconds | UnsetType | None = UNSET
    timeout: Seconds | UnsetType = UNSET
    key: Name | UnsetType | None = UNSET
    unique: UniqueKeyBody | UnsetType | None = UNSET
    cost: dict[Name, Annotated[float, Meta(ge=0)]] | UnsetType = UNSET
    tags: Annotated[list[Name], Meta(max_length=50)] | UnsetType = UNSET
    trace: Name | UnsetType = UNSET
    id: Name | UnsetType = UNSET


class EnqueueManyBody(RequestBody, frozen=True, kw_only=True):
    jobs: Annotated[list[EnqueueBody], Meta(min_length=1, max_length=MAX_JOBS_PER_REQUEST)]


class EnqueueResponse(ResponseBody, frozen=True, kw_only=True):
    """The enqueued job. `existing` is true if another job already holds the unique key; `id` is then the id
    of that job."""

    id: str
    existing: bool


class EnqueueVerdict(ResponseBody, frozen=True, kw_only=True):
    """The result for one job of a bulk enqueue. `verdict` is one of:

    - `accepted`: the job is enqueued
    - `existing`: another job holds its unique key, and `id` is the id of that job
    - `full`: the queue is full
    - `invalid`: the request for this job is wrong

    For `full` and `invalid`, `id` is null and `problem` gives the reason."""

    verdict: Literal["accepted", "existing", "full", "invalid"]
    id: str | None
    problem: str | None


class EnqueueManyResponse(ResponseBody, frozen=True, kw_only=True):
    """The result of a bulk enqueue. `accepted` is the number of accepted jobs. `verdicts` has one result per
    job, in the order of the request."""

    accepted: int
    verdicts: tuple[EnqueueVerdict, ...]


async def enqueue(route_request: RouteRequest) -> EnqueueResponse:
    body: EnqueueBody = route_request.body
    request = _idempotent_request(route_request, body, _idempotency_key(route_request), 0)
    handle = await route_request.app.client.enqueue(request)
    await _require_same_request(route_request, [request])
    return EnqueueResponse(id=handle.id, existing=handle.existing)


async def enqueue_many(route_request: RouteRequest) -> EnqueueManyResponse:
    body: EnqueueManyBody = route_request.body
    key = _idempotency_key(route_request)
    items = [_request_or_verdict(route_request, job, key, index) for index, job in enumerate(body.jobs)]
    requests = [item for item in items if isinstance(item, JobRequest)]
    inserted = await route_request.app.client.offer(requests)
    await _require_same_request(route_request, requests)
    results = iter(inserted)
    verdicts = tuple(_verdict(next(results)) if isinstance(item, JobRequest) else item for item in items)
    accepted = sum(item.verdict == "accepted" for item in verdicts)
    return EnqueueManyResponse(accepted=accepted, verdicts=verdicts)


def _request_or_verdict(
    route_request: RouteRequest, body: EnqueueBody, key: str | None, index: int
) -> JobRequest[Any] | EnqueueVerdict:
    try:
        return _idempotent_request(route_request, body, key, index)
    except (TidemillError, HTTPError) as error:
        return EnqueueVerdict(verdict="invalid", id=None, problem=str(error))


def _verdict(result: InsertResult) -> EnqueueVerdict:
    exists = result.verdict in (InsertVerdict.ACCEPTED, InsertVerdict.EXISTING)
    problem = None if exists else result.problem or "the queue is full: try later, or raise its max_length"
    return EnqueueVerdict(verdict=result.verdict.value, id=result.id if exists else None, problem=problem)


def find_task(route_request: RouteRequest, name: str) -> Task[..., Any]:
    definition = route_request.app.tasks.get(name)
    if definition is None:
        near = close_matches(name, route_request.app.tasks)
        hint = f"did you mean {near[0]!r}?" if near else "GET /api/v1/tasks lists those there are"
        raise HTTPError(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f"task: the application has no {name[:50]!r}; {hint}",
            field="task",
        )
    return Task(route_request.app.client, definition)


def build_job_request(route_request: RouteRequest, body: EnqueueBody, **more: Any) -> JobRequest[Any]:
    """Returns the job request for `body`. The options in `more` replace the options in `body`. Raises
    HTTPError if the task is unknown or the payload is invalid."""
    task = find_task(route_request, body.task)
    options = {name: value for name in _OPTION_NAMES if (value := getattr(body, name)) is not UNSET}
    if options.get("unique"):
        options["unique"] = Unique(**msgspec.structs.asdict(options["unique"]))
    chosen = task.using(**options | more)
    payload = {} if body.payload is UNSET else body.payload
    try:
        arguments = decode_json_arguments(task.definition, msgspec.json.encode(payload))
        return chosen.job(*arguments[0], **arguments[1])
    except InvalidPayload as error:
        raise _invalid_payload_error(error) from None


def _invalid_payload_error(error: InvalidPayload) -> HTTPError:
    """Returns the HTTP error for an invalid payload. Its `field` names the wrong argument, such as
    `payload.song`."""
    found = _ARGUMENT_PATTERN.search(str(error))
    field = f"payload.{found[1]}" if found else "payload"
    return HTTPError(HTTPStatus.UNPROCESSABLE_ENTITY, f"{field}: {error}", field=field)


_ARGUMENT_PATTERN = re.compile(r"(?:at|field) `([^`]+)`")
_OPTION_NAMES = tuple(name for name in EnqueueBody.__struct_fields__ if name not in ("task", "payload"))


def _idempotent_request(
    route_request: RouteRequest, body: EnqueueBody, key: str | None, index: int
) -> JobRequest[Any]:
    if key is None:
        return build_job_request(route_request, body)
    if body.id is not UNSET:
        raise EnqueueError(
            f"id: the job's id comes of the {IDEMPOTENCY_HEADER} header; leave one of them out"
        )
    tags = [] if body.tags is UNSET else body.tags
    return build_job_request(
        route_request,
        body,
        id=_idempotent_id(route_request.user.name, key, index),
        tags=[*tags, f"{IDEMPOTENCY_TAG_PREFIX}{_request_digest(body)}"],
    )


def _idempotency_key(route_request: RouteRequest) -> str | None:
    key = route_request.headers.get(IDEMPOTENCY_HEADER)
    if key is not None and not (0 < len(key) <= MAX_IDEMPOTENCY_KEY_CHARS and key.isprintable()):
        raise HTTPError(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f"{IDEMPOTENCY_HEADER}: must have 1 to {MAX_IDEMPOTENCY_KEY_CHARS} printable characters, such as "
            "a UUID",
            field=IDEMPOTENCY_HEADER,
        )
    return key


def _idempotent_id(user: str, key: str, index: int) -> str:
    """Returns the job id for an idempotency key. The same user, `key` and position in the request (`index`)
    always give the same id (J82)."""
    identity = msgspec.json.encode([user, key, index])
    return f"key-{blake2b(identity, digest_size=16).hexdigest()}"


def _request_digest(body: EnqueueBody) -> str:
    return blake2b(msgspec.json.encode(body, order="sorted"), digest_size=8).hexdigest()


async def _require_same_request(route_request: RouteRequest, requests: list[JobRequest[Any]]) -> None:
    """Raises HTTPError if a different request has already used the same idempotency key. The check finds
    nothing after the earlier job is deleted."""
    keyed_jobs = [request.job for request in requests if _idempotency_tag(request.job) is not None]
    if not keyed_jobs or IDEMPOTENCY_HEADER not in route_request.headers:
        return
    stored_jobs = await (await route_request.app.client.store()).get([job.id for job in keyed_jobs])
    for new_job, job in zip(keyed_jobs, stored_jobs, strict=True):
        if job is not None and _idempotency_tag(job) != _idempotency_tag(new_job):
            raise HTTPError(
                HTTPStatus.CONFLICT,
                f"{IDEMPOTENCY_HEADER}: was used for another request, which made job {job.id!r}; take a new "
                "key for a new job",
                field=IDEMPOTENCY_HEADER,
            )


def _idempotency_tag(job: Job | core.NewJob) -> str | None:
    return next((tag for tag in reversed(job.tags) if tag.startswith(IDEMPOTENCY_TAG_PREFIX)), None)


def audit_enqueued_job(response: EnqueueResponse) -> dict[str, Any]:
    """Returns the details of an enqueue for the audit log: the id of the new or existing job."""
    return {"existing job" if response.existing else "job": response.id}


def _audit_enqueued_jobs(response: EnqueueManyResponse) -> dict[str, Any]:
    return {
        "accepted": response.accepted,
        "jobs": [verdict.id for verdict in response.verdicts if verdict.verdict == "accepted"],
    }


_IDEMPOTENCY_HEADERS = {
    "Idempotency-Key": "Chosen by the client, such as a UUID: repeated requests with it create one job. "
    "A different request with the same key is refused."
}

ROUTES = (
    Route(
        method="POST",
        path="/api/v1/jobs",
        role=Role.OPERATOR,
        handler=enqueue,
        summary="Enqueue a job. With an Idempotency-Key, repeated requests create one job.",
        body=Annotated[
            EnqueueBody,
            Meta(examples=[{"task": "songs:describe", "payload": {"songs": ["a1"]}, "priority": 1}]),
        ],
        response=EnqueueResponse,
        status=HTTPStatus.CREATED,
        headers=_IDEMPOTENCY_HEADERS,
        audit_details=audit_enqueued_job,
    ),
    Route(
        method="POST",
        path="/api/v1/bulk/enqueue",
        role=Role.OPERATOR,
        handler=enqueue_many,
        summary="Enqueue many jobs, each with its own result. With an Idempotency-Key, each is created once.",
        body=EnqueueManyBody,
        response=EnqueueManyResponse,
        headers=_IDEMPOTENCY_HEADERS,
        audit_details=_audit_enqueued_jobs,
    ),
)
