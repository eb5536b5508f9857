"""Sending jobs, one or many."""

from __future__ import annotations

import re
from hashlib import blake2b
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tidemill.client.request import JobRequest
from tidemill.client.task import Task
from tidemill.core import job as core
from tidemill.core.job import Job
from tidemill.core.queues import Inserted, Verdict
from tidemill.core.uniqueness import OnConflict, Unique
from tidemill.errors import EnqueueError, InvalidPayload, TidemillError
from tidemill.hints import close_to
from tidemill.seam.refusals import Refused
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.tasks.written import checked
from tidemill.web.api.fields import Answer, Body, Name, Priority, Seconds, Time
from tidemill.web.asked import Asked

KEY = "idempotency-key"
LONGEST_KEY = 255
MOST_JOBS = 10_000
MARK = "idempotency:"
"""Of the tag with a digest of the request: the same key with another request is found out by it."""


class UniqueKey(Body, frozen=True, kw_only=True):
    """At most one live job of a queue has the key. `period` keeps it for so many seconds, `at_most` lets it
    go after so many at the latest."""

    key: Name
    on_conflict: OnConflict = "skip"
    period: Seconds | None = None
    at_most: Seconds | None = None


class NewJob(Body, frozen=True, kw_only=True):
    """`payload` are the task's arguments by name. What is left out is as the task says. `delay` is from now,
    `at` a time; a job that has not started after `expires` seconds is cancelled."""

    task: Name
    payload: dict[str, Any] | UnsetType = UNSET
    queue: Name | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    delay: Seconds | UnsetType = UNSET
    at: Time | UnsetType = UNSET
    expires: Seconds | UnsetType | None = UNSET
    timeout: Seconds | UnsetType = UNSET
    key: Name | UnsetType | None = UNSET
    unique: UniqueKey | UnsetType | None = UNSET
    cost: dict[Name, Annotated[float, Meta(ge=0)]] | UnsetType = UNSET
    tags: Annotated[list[Name], Meta(max_length=50)] | UnsetType = UNSET
    trace: Name | UnsetType = UNSET
    id: Name | UnsetType = UNSET


class NewJobs(Body, frozen=True, kw_only=True):
    jobs: Annotated[list[NewJob], Meta(min_length=1, max_length=MOST_JOBS)]


class Sent(Answer, frozen=True, kw_only=True):
    """`existing`: another job holds its unique key, and `id` is that one's. Sent again with the same id or
    key it is answered as the first time."""

    id: str
    existing: bool


class Judged(Answer, frozen=True, kw_only=True):
    """What became of one job: `accepted`, `existing` (another one holds its unique key), `full` (its queue
    is) or `invalid`. `id` is null where there is no job, and `problem` then says why."""

    verdict: Literal["accepted", "existing", "full", "invalid"]
    id: str | None
    problem: str | None


class Verdicts(Answer, frozen=True, kw_only=True):
    """One for each job, in their order."""

    accepted: int
    verdicts: tuple[Judged, ...]


async def enqueue(asked: Asked) -> Sent:
    said: NewJob = asked.body
    request = _request(asked, said, _key_of(asked), 0)
    handle = await asked.app.client.enqueue(request)
    await _require_same(asked, [request])
    return Sent(id=handle.id, existing=handle.existing)


async def enqueue_many(asked: Asked) -> Verdicts:
    said: NewJobs = asked.body
    key = _key_of(asked)
    made = [_made(asked, job, key, index) for index, job in enumerate(said.jobs)]
    requests = [one for one in made if isinstance(one, JobRequest)]
    inserted = await asked.app.client.offer(requests)
    await _require_same(asked, requests)
    answers = iter(inserted)
    verdicts = tuple(_judged(next(answers)) if isinstance(one, JobRequest) else one for one in made)
    return Verdicts(accepted=sum(one.verdict == "accepted" for one in verdicts), verdicts=verdicts)


def _made(asked: Asked, said: NewJob, key: str | None, index: int) -> JobRequest[Any] | Judged:
    try:
        return _request(asked, said, key, index)
    except (TidemillError, Refused) as error:
        return Judged(verdict="invalid", id=None, problem=str(error))


def _judged(answer: Inserted) -> Judged:
    there = answer.verdict in (Verdict.ACCEPTED, Verdict.EXISTING)
    problem = None if there else answer.problem or "the queue is full: try later, or raise its max_length"
    return Judged(verdict=answer.verdict.value, id=answer.id if there else None, problem=problem)


def task_of(asked: Asked, name: str) -> Task[..., Any]:
    definition = asked.app.tasks.get(name)
    if definition is None:
        near = close_to(name, asked.app.tasks)
        hint = f"did you mean {near[0]!r}?" if near else "GET /api/v1/tasks lists those there are"
        raise Refused(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f"task: the application has no {name[:50]!r}; {hint}",
            field="task",
        )
    return Task(asked.app.client, definition)


def request_of(asked: Asked, said: NewJob, **more: Any) -> JobRequest[Any]:
    """The job as the application's own code would have made it. `more` are options beside what was said."""
    task = task_of(asked, said.task)
    options = {name: value for name in _OPTIONS if (value := getattr(said, name)) is not UNSET}
    if options.get("unique"):
        options["unique"] = Unique(**msgspec.structs.asdict(options["unique"]))
    chosen = task.using(**options | more)
    given = {} if said.payload is UNSET else said.payload
    try:
        arguments = checked(task.definition, msgspec.json.encode(given))
        return chosen.job(*arguments[0], **arguments[1])
    except InvalidPayload as error:
        raise _misfit(error) from None


def _misfit(error: InvalidPayload) -> Refused:
    """With the argument it is about."""
    found = _PLACE.search(str(error))
    field = f"payload.{found[1]}" if found else "payload"
    return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, f"{field}: {error}", field=field)


_PLACE = re.compile(r"(?:at|field) `([^`]+)`")
_OPTIONS = tuple(name for name in NewJob.__struct_fields__ if name not in ("task", "payload"))


def _request(asked: Asked, said: NewJob, key: str | None, index: int) -> JobRequest[Any]:
    if key is None:
        return request_of(asked, said)
    if said.id is not UNSET:
        raise EnqueueError(f"id: the job's id comes of the {KEY} header; leave one of them out")
    tags = [] if said.tags is UNSET else said.tags
    return request_of(asked, said, id=_id(asked.who.name, key, index), tags=[*tags, f"{MARK}{_digest(said)}"])


def _key_of(asked: Asked) -> str | None:
    key = asked.headers.get(KEY)
    if key is not None and not (0 < len(key) <= LONGEST_KEY and key.isprintable()):
        raise Refused(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f"{KEY}: must have 1 to {LONGEST_KEY} printable characters, such as a UUID",
            field=KEY,
        )
    return key


def _id(user: str, key: str, index: int) -> str:
    """The same for every send of that key by that user: a store makes one job of an id, also an hour after
    the job is gone (I3)."""
    told = msgspec.json.encode([user, key, index])
    return f"key-{blake2b(told, digest_size=16).hexdigest()}"


def _digest(said: NewJob) -> str:
    return blake2b(msgspec.json.encode(said, order="sorted"), digest_size=8).hexdigest()


async def _require_same(asked: Asked, requests: list[JobRequest[Any]]) -> None:
    """A store answers an id it knows as it did the first time. As long as the job is there, the key cannot be
    taken for another."""
    keyed = [request.job for request in requests if _mark(request.job) is not None]
    if not keyed or KEY not in asked.headers:
        return
    there = await (await asked.app.client.store()).get([job.id for job in keyed])
    for sent, job in zip(keyed, there, strict=True):
        if job is not None and _mark(job) != _mark(sent):
            raise Refused(
                HTTPStatus.CONFLICT,
                f"{KEY}: was used for another request, which made job {job.id!r}; take a new key for a new "
                "job",
                field=KEY,
            )


def _mark(job: Job | core.NewJob) -> str | None:
    return next((tag for tag in reversed(job.tags) if tag.startswith(MARK)), None)


def made_job(sent: Sent) -> dict[str, Any]:
    """As the audit log names it."""
    return {"existing job" if sent.existing else "job": sent.id}


def _made_jobs(told: Verdicts) -> dict[str, Any]:
    return {"accepted": told.accepted, "jobs": [one.id for one in told.verdicts if one.verdict == "accepted"]}


_HEADERS = {
    "Idempotency-Key": "Of your own making, such as a UUID: any number of sends with it make one job. "
    "Another request with the same key is refused."
}

ROUTES = (
    Route(
        method="POST",
        path="/api/v1/jobs",
        role=Role.OPERATOR,
        handler=enqueue,
        says="Send a job. With an Idempotency-Key, any number of sends make one.",
        takes=Annotated[
            NewJob,
            Meta(examples=[{"task": "songs:describe", "payload": {"songs": ["a1"]}, "priority": 1}]),
        ],
        answers=Sent,
        status=HTTPStatus.CREATED,
        headers=_HEADERS,
        made=made_job,
    ),
    Route(
        method="POST",
        path="/api/v1/bulk/enqueue",
        role=Role.OPERATOR,
        handler=enqueue_many,
        says="Send many jobs; each has a verdict of its own. With an Idempotency-Key, each is made once.",
        takes=NewJobs,
        answers=Verdicts,
        headers=_HEADERS,
        made=_made_jobs,
    ),
)
