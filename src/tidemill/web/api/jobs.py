"""API routes for jobs and dead letters: find, show, explain, retry, cancel, run, archive, delete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus

from msgspec.structs import replace

from tidemill.core.operator_changes import (
    ArchiveJobs,
    CancelJobs,
    DeleteJobs,
    OperatorChange,
    ReprioritiseJobs,
    RetryJobs,
    RunJobsNow,
)
from tidemill.core.states import State
from tidemill.http_routes.problems import HTTPError
from tidemill.http_routes.routes import Role, Route
from tidemill.inspect.explanation import Explanation
from tidemill.web.api.bulk import BulkBody, BulkResponse, apply_bulk_change, is_confirmed
from tidemill.web.api.schemas import (
    Cursor,
    JobDetail,
    JobFilterBody,
    JobPageBody,
    JobPageQuery,
    JobRecord,
    Limit,
    Name,
    Priority,
    QueryParameters,
    RequestBody,
    Sentence,
    Time,
    build_filter,
    job_detail,
    job_page,
    job_record,
)
from tidemill.web.request import RouteRequest


async def find_jobs(request: RouteRequest) -> JobPageBody:
    query: JobPageQuery = request.query
    job_filter = await build_filter(request, query)
    return job_page(await request.inspect.find(job_filter, limit=query.limit, cursor=query.cursor))


async def get_job(request: RouteRequest) -> JobDetail:
    return job_detail(await request.inspect.job(request.path["job"]))


async def explain_job(request: RouteRequest) -> Explanation:
    return await request.inspect.explain(request.path["job"])


JOB_ROUTES = (
    Route(
        method="GET",
        path="/api/v1/jobs",
        role=Role.VIEWER,
        handler=find_jobs,
        summary="Find jobs, newest first.",
        query=JobPageQuery,
        response=JobPageBody,
    ),
    Route(
        method="GET",
        path="/api/v1/jobs/{job}",
        role=Role.VIEWER,
        handler=get_job,
        summary="One job, with its failed attempts, log lines and checkpoints.",
        response=JobDetail,
    ),
    Route(
        method="GET",
        path="/api/v1/jobs/{job}/explanation",
        role=Role.VIEWER,
        handler=explain_job,
        summary="Why the job waits, or what it does; also for a step of a flow that has no job yet.",
        response=Explanation,
    ),
)


_STATE_REQUIREMENTS = {
    RetryJobs: "only a job that has ended can be retried",
    CancelJobs: "only a job that has not ended can be cancelled",
    RunJobsNow: "only a scheduled job can be run now",
    ArchiveJobs: "only a job that has not started can be archived",
    ReprioritiseJobs: "only a job that has not started gets another priority",
    DeleteJobs: "a running job cannot be deleted; cancel it first",
}


class ReasonBody(RequestBody, frozen=True, kw_only=True):
    """The `reason` for a change, which is stored with the job or flow. The default is a text with the name of
    the user, such as "cancelled by ann"."""

    reason: Sentence | None = None


class PriorityBody(RequestBody, frozen=True, kw_only=True):
    priority: Priority


async def _change_job(request: RouteRequest, change: OperatorChange) -> None:
    job = request.path["job"]
    changed = await request.inspect.change(job, change)
    if not changed.changed:
        state = (await request.inspect.job(job)).job.state
        raise HTTPError(HTTPStatus.CONFLICT, f"job {job!r} is {state}: {_STATE_REQUIREMENTS[type(change)]}")


async def _change_and_get_job(request: RouteRequest, change: OperatorChange) -> JobRecord:
    await _change_job(request, change)
    return job_record((await request.inspect.job(request.path["job"])).job)


async def retry_job(request: RouteRequest) -> JobRecord:
    return await _change_and_get_job(request, RetryJobs())


async def cancel_job(request: RouteRequest) -> JobRecord:
    return await _change_and_get_job(
        request, CancelJobs(request.body.reason or f"cancelled by {request.user.name}")
    )


async def run_job(request: RouteRequest) -> JobRecord:
    return await _change_and_get_job(request, RunJobsNow())


async def archive_job(request: RouteRequest) -> JobRecord:
    return await _change_and_get_job(
        request, ArchiveJobs(request.body.reason or f"archived by {request.user.name}")
    )


async def reprioritise_job(request: RouteRequest) -> JobRecord:
    return await _change_and_get_job(request, ReprioritiseJobs(request.body.priority))


async def delete_job(request: RouteRequest) -> None:
    await _change_job(request, DeleteJobs())


def _job_action_route(
    verb: str,
    handler: Callable[[RouteRequest], Awaitable[JobRecord]],
    summary: str,
    body: type[RequestBody] | None = None,
) -> Route:
    return Route(
        method="POST",
        path=f"/api/v1/jobs/{{job}}/{verb}",
        role=Role.OPERATOR,
        handler=handler,
        summary=summary,
        body=body,
        response=JobRecord,
    )


JOB_ACTION_ROUTES = (
    _job_action_route("retry", retry_job, "Retry a finished job with all its attempts."),
    _job_action_route(
        "cancel", cancel_job, "Cancel an unfinished job; a running one is asked to stop.", ReasonBody
    ),
    _job_action_route("run", run_job, "Make a scheduled job ready now."),
    _job_action_route(
        "archive", archive_job, "Move a job that has not started to the dead letters.", ReasonBody
    ),
    _job_action_route(
        "reprioritise", reprioritise_job, "Change the priority of a job that has not started.", PriorityBody
    ),
    Route(
        method="DELETE",
        path="/api/v1/jobs/{job}",
        role=Role.ADMIN,
        handler=delete_job,
        summary="Delete the job and everything stored about it; cancel a running job first.",
        status=HTTPStatus.NO_CONTENT,
    ),
)


_FAILED_STATES = [State.FAILED]


class DeadLetterQuery(QueryParameters, frozen=True, kw_only=True):
    """A search for dead letters, which must match every given parameter. `since` and `until` apply to the
    time of the failure."""

    queue: Name | None = None
    task: Name | None = None
    key: Name | None = None
    tag: Name | None = None
    flow: Name | None = None
    text: Sentence | None = None
    since: Time | None = None
    until: Time | None = None
    limit: Limit = 100
    cursor: Cursor | None = None


async def find_dead_letters(request: RouteRequest) -> JobPageBody:
    query: DeadLetterQuery = request.query
    shared = {name: getattr(query, name) for name in DeadLetterQuery.__struct_fields__}
    job_filter = await build_filter(request, JobPageQuery(**shared, states=_FAILED_STATES, time="finished"))
    return job_page(await request.inspect.find(job_filter, limit=query.limit, cursor=query.cursor))


async def retry_dead_letter(request: RouteRequest) -> JobRecord:
    job = (await request.inspect.job(request.path["job"])).job
    if job.state is not State.FAILED:
        raise HTTPError(HTTPStatus.CONFLICT, f"job {job.id!r} is {job.state} and no dead letter")
    return await retry_job(request)


async def retry_dead_letters(request: RouteRequest) -> BulkResponse:
    """Retries the dead letters that match `filter`. If the request has no `filter`, all dead letters match. A
    request without `confirm` only counts the matching dead letters."""
    body: BulkBody = request.body
    failed = replace(body.filter, states=_FAILED_STATES)
    return await apply_bulk_change(request, replace(body, filter=failed), RetryJobs())


class BulkDeadLetterBody(BulkBody, frozen=True, kw_only=True):
    """A retry of all dead letters that match `filter`. If `filter` is missing, all dead letters match.

    Without `confirm` nothing changes, and the response has the number of matching jobs. Send this number as
    `confirm` to retry them."""

    filter: JobFilterBody = JobFilterBody()


DEAD_LETTER_ROUTES = (
    Route(
        method="GET",
        path="/api/v1/dead-letters",
        role=Role.VIEWER,
        handler=find_dead_letters,
        summary="Jobs that failed for good, newest first.",
        query=DeadLetterQuery,
        response=JobPageBody,
    ),
    Route(
        method="POST",
        path="/api/v1/dead-letters/retry",
        role=Role.OPERATOR,
        handler=retry_dead_letters,
        summary="Retry dead letters with all their attempts; without `filter` all of them.",
        body=BulkDeadLetterBody,
        response=BulkResponse,
        audited=is_confirmed,
    ),
    Route(
        method="POST",
        path="/api/v1/dead-letters/{job}/retry",
        role=Role.OPERATOR,
        handler=retry_dead_letter,
        summary="Retry one dead letter with all its attempts.",
        response=JobRecord,
    ),
)

ROUTES = (*JOB_ROUTES, *JOB_ACTION_ROUTES, *DEAD_LETTER_ROUTES)
