"""The dead letters page: failed jobs grouped by error, and the retry of a group."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from http import HTTPStatus

import msgspec

from tidemill.core.filters import Filter
from tidemill.core.jobs import Job
from tidemill.core.states import State
from tidemill.http_routes.problems import HTTPError
from tidemill.http_routes.routes import PageResponse, Redirect, Role, Route
from tidemill.web.api.bulk import matches_confirmation
from tidemill.web.api.schemas import Name, NonNegativeInt
from tidemill.web.request import RouteRequest

MAX_GROUPED_JOBS = 500
"""The newest dead letters are grouped: enough to see the cause, and quick to load."""

FailureCause = tuple[str, str, str]
"""Queue, task, and cause: the type of the error, else the reason."""


class FailureGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters with the same queue, task and error. The page loads only the newest dead letters.

    - `count`: the number of loaded jobs in this group
    - `newest`: the newest job
    - `since`: the Unix time of the earliest failure"""

    queue: str
    task: str
    error: str
    count: int
    newest: Job
    since: float


class DeadLettersQuery(msgspec.Struct, frozen=True):
    queue: Name | None = None


class RetryDeadLettersForm(msgspec.Struct, frozen=True, kw_only=True):
    """The dead letters to retry. `confirm` is the number of jobs that the user confirmed.

    `queue`, `task` and `error` select one group. Without `task`, all dead letters of `queue` are retried.
    Without `queue` and `task`, all dead letters are retried."""

    queue: Name | None = None
    task: Name | None = None
    error: str | None = None
    confirm: NonNegativeInt = 0


async def dead_letters_page(request: RouteRequest) -> PageResponse:
    query: DeadLettersQuery = request.query
    page = await request.inspect.find(
        Filter(states=(State.FAILED,), queue=query.queue), limit=MAX_GROUPED_JOBS
    )
    counts = await request.inspect.counts()
    failed = {queue: states.get(State.FAILED, 0) for queue, states in sorted(counts.items())}
    context = {
        "groups": group_failures(page.jobs),
        "grouped_count": len(page.jobs),
        "total": sum(failed.values()),
        "failed": {queue: count for queue, count in failed.items() if count},
        "queue": query.queue,
    }
    return PageResponse("dead_letters.html", context, live=("groups",))


def failure_cause(job: Job) -> FailureCause:
    return job.queue, job.task, job.error.type if job.error else job.reason or ""


def group_failures(jobs: Iterable[Job]) -> list[FailureGroup]:
    """Returns the jobs grouped by queue, task and error, the largest group first. `jobs` must be sorted,
    newest first."""
    by_cause: dict[FailureCause, list[Job]] = {}
    for job in jobs:
        by_cause.setdefault(failure_cause(job), []).append(job)
    groups = [
        FailureGroup(
            queue=queue,
            task=task,
            error=error,
            count=len(members),
            newest=members[0],
            since=min(job.finished or job.created for job in members),
        )
        for (queue, task, error), members in by_cause.items()
    ]
    return sorted(groups, key=lambda group: -group.count)


async def retry_dead_letters(request: RouteRequest) -> Redirect:
    body: RetryDeadLettersForm = request.body
    ids = [job.id async for job in _matching_jobs(request, body)]
    if not matches_confirmation(len(ids), body.confirm):
        raise HTTPError(
            HTTPStatus.CONFLICT,
            f"confirm: {body.confirm} dead letters were confirmed and {len(ids)} match now; "
            "nothing was changed, look again",
            field="confirm",
        )
    result = await request.inspect.retry(Filter(ids=tuple(ids), states=(State.FAILED,)))
    return request.redirect("/dead-letters", notice="bulk.retry", count=result.changed)


async def _matching_jobs(request: RouteRequest, body: RetryDeadLettersForm) -> AsyncIterator[Job]:
    async for job in request.inspect.each(Filter(states=(State.FAILED,), queue=body.queue, task=body.task)):
        if body.task is None or failure_cause(job)[2] == (body.error or ""):
            yield job


ROUTES = (
    Route(
        method="GET",
        path="/dead-letters",
        role=Role.VIEWER,
        handler=dead_letters_page,
        summary="Dead letters, grouped by error.",
        query=DeadLettersQuery,
    ),
    Route(
        method="POST",
        path="/dead-letters/retry",
        role=Role.OPERATOR,
        handler=retry_dead_letters,
        summary="Retry one group of dead letters, or all.",
        body=RetryDeadLettersForm,
    ),
)
