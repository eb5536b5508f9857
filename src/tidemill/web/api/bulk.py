"""API routes that change all jobs that match a filter. The client first asks for the number of matching jobs,
and then confirms it."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from msgspec.structs import replace

from tidemill.auth.redaction import searches_values
from tidemill.core.filters import Filter
from tidemill.core.operator_changes import (
    ArchiveJobs,
    CancelJobs,
    DeleteJobs,
    OperatorChange,
    ReprioritiseJobs,
    RetryJobs,
    RunJobsNow,
)
from tidemill.core.states import LIVE, PENDING, State
from tidemill.http_routes.problems import HTTPError
from tidemill.http_routes.routes import Handler, Role, Route, User
from tidemill.web.api.schemas import (
    JobFilterBody,
    JobQuery,
    NonNegativeInt,
    Priority,
    RequestBody,
    ResponseBody,
    Sentence,
    build_filter,
    require_criteria,
)
from tidemill.web.request import RouteRequest

_TOLERANCE_DIVISOR = 10


def matches_confirmation(matching: int, confirmed: int) -> bool:
    """True if `matching` is at most a tenth larger than `confirmed`.

    - `confirmed`: how many jobs the user agreed to change
    - `matching`: how many jobs match now"""
    return matching <= confirmed + confirmed // _TOLERANCE_DIVISOR


class BulkBody(RequestBody, frozen=True, kw_only=True):
    """A change of all jobs that match `filter`.

    Without `confirm` nothing changes, and the response has the number of matching jobs. Send this number as
    `confirm` to apply the change. A filter without states matches only jobs that the change applies to."""

    filter: JobFilterBody
    confirm: NonNegativeInt | None = None


class BulkReasonBody(BulkBody, frozen=True, kw_only=True):
    reason: Sentence | None = None


class BulkPriorityBody(BulkBody, frozen=True, kw_only=True):
    priority: Priority


class BulkCount(ResponseBody, frozen=True, kw_only=True):
    """The number of jobs that match a filter. `more` is true if the search stopped early; more jobs than
    `matching` may then match."""

    matching: int
    more: bool


class BulkResponse(ResponseBody, frozen=True, kw_only=True):
    """The result of a bulk change. All fields except `matching` are null until the change is confirmed.

    - `matching`: how many jobs match the filter
    - `changed`: how many jobs were changed
    - `unchanged`: how many jobs were in a state that does not allow the change
    - `moved`: how many jobs no longer matched the filter when the change reached them"""

    matching: int
    changed: int | None = None
    unchanged: int | None = None
    moved: int | None = None


def default_states(change: OperatorChange) -> tuple[State, ...]:
    match change:
        case RetryJobs():
            states = frozenset({State.FAILED})
        case CancelJobs():
            states = LIVE
        case RunJobsNow():
            states = frozenset({State.SCHEDULED})
        case DeleteJobs():
            states = frozenset(State) - {State.RUNNING}
        case _:
            states = PENDING
    return tuple(state for state in State if state in states)


async def count_matching(request: RouteRequest) -> BulkCount:
    found = await request.inspect.count(await build_filter(request, request.query))
    return BulkCount(matching=found.jobs, more=found.more)


async def apply_bulk_change(request: RouteRequest, body: BulkBody, change: OperatorChange) -> BulkResponse:
    require_criteria(body.filter)
    job_filter = await build_filter(request, body.filter, default_states(change))
    job_filter, matching = await _count_exactly(request, job_filter)
    if body.confirm is None:
        return BulkResponse(matching=matching)
    if not matches_confirmation(matching, body.confirm):
        raise HTTPError(
            HTTPStatus.CONFLICT,
            f"confirm: {body.confirm} jobs were confirmed and {matching} match now; nothing was "
            f"changed, send {matching} to go on",
            field="confirm",
        )
    done = await request.inspect.change(job_filter, change)
    return BulkResponse(matching=matching, changed=done.changed, unchanged=done.unchanged, moved=done.moved)


async def _count_exactly(request: RouteRequest, job_filter: Filter) -> tuple[Filter, int]:
    """Returns the filter to use for the change, and the exact number of jobs that it matches. After a search
    by text or payload field, the returned filter also has the ids of the jobs found."""
    if not searches_values(job_filter):
        named = None if job_filter.ids is None else tuple(dict.fromkeys(job_filter.ids))
        return job_filter, (await request.inspect.count(replace(job_filter, ids=named), scan_limit=None)).jobs
    visible_ids = tuple([job.id async for job in request.inspect.each(job_filter)])
    return replace(job_filter, ids=visible_ids), len(visible_ids)


def is_confirmed(body: BulkBody) -> bool:
    """True if the request has `confirm`, so that it changes jobs. Without `confirm` it only counts jobs."""
    return body.confirm is not None


def _bulk_route(
    verb: str,
    change: Callable[[BulkBody, User], OperatorChange],
    summary: str,
    *,
    body: type[BulkBody] = BulkBody,
    role: Role = Role.OPERATOR,
) -> Route:
    async def handler(request: RouteRequest) -> BulkResponse:
        return await apply_bulk_change(request, request.body, change(request.body, request.user))

    return Route(
        method="POST",
        path=f"/api/v1/bulk/{verb}",
        role=role,
        handler=_name_handler(handler, verb),
        summary=summary,
        body=body,
        response=BulkResponse,
        audited=is_confirmed,
    )


def _name_handler(handler: Handler, verb: str) -> Handler:
    handler.__name__ = f"{verb}_many"
    return handler


def _cancel(body: BulkBody, user: User) -> CancelJobs:
    return CancelJobs(_given_reason(body) or f"cancelled by {user.name}")


def _archive(body: BulkBody, user: User) -> ArchiveJobs:
    return ArchiveJobs(_given_reason(body) or f"archived by {user.name}")


def _given_reason(body: BulkBody) -> str | None:
    return body.reason if isinstance(body, BulkReasonBody) else None


def _reprioritise(body: BulkBody, _: User) -> ReprioritiseJobs:
    assert isinstance(body, BulkPriorityBody)  # noqa: S101 - its route takes nothing else
    return ReprioritiseJobs(body.priority)


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/bulk/count",
        role=Role.VIEWER,
        handler=count_matching,
        summary="How many jobs match: exact by queue and state, else among the newest jobs.",
        query=JobQuery,
        response=BulkCount,
    ),
    _bulk_route("retry", lambda *_: RetryJobs(), "Retry finished jobs with all their attempts."),
    _bulk_route(
        "cancel",
        _cancel,
        "Cancel unfinished jobs; running ones are asked to stop.",
        body=BulkReasonBody,
    ),
    _bulk_route("run", lambda *_: RunJobsNow(), "Make scheduled jobs ready now."),
    _bulk_route(
        "archive", _archive, "Move jobs that have not started to the dead letters.", body=BulkReasonBody
    ),
    _bulk_route(
        "reprioritise",
        _reprioritise,
        "Change the priority of jobs that have not started.",
        body=BulkPriorityBody,
    ),
    _bulk_route("delete", lambda *_: DeleteJobs(), "Delete jobs that are not running.", role=Role.ADMIN),
)
