"""The job search page, the page of one job, and actions on one or many jobs."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tidemill.contract.reader import JobPage
from tidemill.core.filters import Filter
from tidemill.core.operator_changes import (
    CancelJobs,
    DeleteJobs,
    OperatorChange,
    ReprioritiseJobs,
    RetryJobs,
    RunJobsNow,
)
from tidemill.core.states import FINAL, PENDING, State
from tidemill.http_routes.problems import HTTPError
from tidemill.http_routes.routes import Handler, PageResponse, Redirect, Role, Route
from tidemill.inspect.views import JobCount
from tidemill.web.api import jobs
from tidemill.web.api.bulk import BulkBody, apply_bulk_change
from tidemill.web.api.jobs import PriorityBody, ReasonBody
from tidemill.web.api.schemas import (
    Cursor,
    JobFilterBody,
    Name,
    NonNegativeInt,
    Priority,
    Sentence,
    job_detail,
)
from tidemill.web.i18n import Translator, translator
from tidemill.web.request import RouteRequest
from tidemill.web.template_functions import build_path

JOBS_PER_PAGE = 50
AGE_SECONDS = {"hour": 3600.0, "day": 86_400.0, "week": 604_800.0}
FieldText = Annotated[str, Meta(pattern="^[^=]+=", max_length=1000)]


class JobSearch(msgspec.Struct, frozen=True, kw_only=True):
    """The criteria of a job search; a job must match every given criterion.

    - `id`: the beginning of a job id
    - `field`: a path into the payload and its value, such as `feed.host=a.example`
    - `within`: the maximum age"""

    state: State | None = None
    queue: Name | None = None
    task: Name | None = None
    key: Name | None = None
    tag: Name | None = None
    flow: Name | None = None
    id: Name | None = None
    text: Sentence | None = None
    field: FieldText | None = None
    within: Literal["hour", "day", "week"] | None = None

    def filter(self, now: float) -> Filter:
        path, _, value = (self.field or "").partition("=")
        return Filter(
            states=None if self.state is None else (self.state,),
            queue=self.queue,
            task=self.task,
            key=self.key,
            tag=self.tag,
            flow=self.flow,
            id_prefix=self.id,
            text=self.text,
            fields=((path, value),) if self.field else (),
            since=None if self.within is None else now - AGE_SECONDS[self.within],
        )

    @property
    def is_plain(self) -> bool:
        """True if the search uses only queue and state."""
        return self == JobSearch(state=self.state, queue=self.queue)

    @property
    def has_more_criteria(self) -> bool:
        """True if the search uses criteria besides state, queue and text. The form then shows all its
        fields."""
        return self != JobSearch(state=self.state, queue=self.queue, text=self.text)

    def parameters(self, *, without: str = "") -> dict[str, str]:
        return {
            name: str(value)
            for name, value in msgspec.structs.asdict(self).items()
            if value and name != without
        }


class JobSearchQuery(JobSearch, frozen=True, kw_only=True):
    cursor: Cursor | None = None


async def jobs_page(request: RouteRequest) -> PageResponse:
    query: JobSearchQuery = request.query
    search = JobSearch(**{name: getattr(query, name) for name in JobSearch.__struct_fields__})
    criteria = search.filter(request.app.clock.wall())
    page = await request.inspect.find(criteria, limit=JOBS_PER_PAGE, cursor=query.cursor)
    counts = await request.inspect.counts()
    counted = counts.values() if search.queue is None else [counts.get(search.queue, {})]
    context = {
        "search": search,
        "page": page,
        "is_first_page": query.cursor is None,
        "matching": await _count_matching(request, page, criteria, query.cursor),
        "counts": {state: sum(states.get(state, 0) for states in counted) for state in State},
        "queues": sorted(counts),
        "states": list(State),
    }
    return PageResponse(
        "jobs.html", context, live=("tabs", "list") if search.is_plain and query.cursor is None else ()
    )


async def _count_matching(
    request: RouteRequest, page: JobPage, criteria: Filter, cursor: int | None
) -> JobCount:
    """Returns the number of jobs that match `criteria`. `cursor` is the cursor at which `page` starts, None
    for the first page."""
    if cursor is None and page.cursor is None:
        return JobCount(len(page.jobs))
    return await request.inspect.count(criteria)


JOBS_ROUTES = (
    Route(
        method="GET",
        path="/jobs",
        role=Role.VIEWER,
        handler=jobs_page,
        summary="Jobs by state and search.",
        query=JobSearchQuery,
    ),
)


USUAL_STATES = (State.SCHEDULED, State.READY, State.RUNNING)


async def job_page(request: RouteRequest) -> PageResponse:
    view = await request.inspect.job(request.path["job"])
    job = job_detail(view)
    context = {
        "job": job,
        "timeline": state_timeline(job.state),
        "explanation": await request.inspect.explain(job.id),
        "limits": _task_limits(request, job.task),
        "ended": job.state in FINAL,
        "pending": job.state in PENDING,
    }
    live = ("timeline", "explanation", "progress", "attempts", "log", "buttons", "facts")
    return PageResponse("job.html", context, live=live)


def state_timeline(state: State) -> list[tuple[State, bool]]:
    """Returns the states that a job usually goes through, in order, as (state, passed) pairs. The job is now
    in `state`; `passed` is True for the states before it."""
    if state is State.WAITING:
        return [(State.WAITING, False), (State.READY, False), (State.RUNNING, False), (State.DONE, False)]
    end = state if state in FINAL else State.DONE
    path = (*USUAL_STATES, end)
    return [(step, path.index(step) < path.index(state)) for step in path]


def _task_limits(request: RouteRequest, task: str) -> dict[str, Any]:
    """Returns a dict with `attempts`, the maximum number of attempts that the task declares. `attempts` is
    None if this process does not know the task."""
    definition = request.app.tasks.get(task)
    return {"attempts": None if definition is None else definition.retry.attempts}


def _job_action_route(
    verb: str, handler: Handler, summary: str, body: type | None = None, role: Role = Role.OPERATOR
) -> Route:
    async def change(request: RouteRequest) -> Redirect:
        await handler(request)
        if verb == "delete":
            return request.redirect("/jobs", notice="job.notice.delete")
        return request.redirect("/jobs/{}", request.path["job"], notice=f"job.notice.{verb}")

    return Route(
        method="POST", path=f"/jobs/{{job}}/{verb}", role=role, handler=change, summary=summary, body=body
    )


JOB_ROUTES = (
    Route(method="GET", path="/jobs/{job}", role=Role.VIEWER, handler=job_page, summary="One job."),
    _job_action_route("retry", jobs.retry_job, "Retry a finished job."),
    _job_action_route("cancel", jobs.cancel_job, "Cancel an unfinished job.", ReasonBody),
    _job_action_route("run", jobs.run_job, "Make a scheduled job ready now."),
    _job_action_route("archive", jobs.archive_job, "Move a job to the dead letters.", ReasonBody),
    _job_action_route("reprioritise", jobs.reprioritise_job, "Change the priority.", PriorityBody),
    _job_action_route("delete", jobs.delete_job, "Delete the job.", role=Role.ADMIN),
)


class BulkForm(JobSearch, frozen=True, kw_only=True):
    """A change of many jobs on the job search page.

    - `every`: True changes all jobs that match the search; False changes the jobs in `ids`
    - `confirm`: the number of jobs that the user confirmed, for `every=True`"""

    ids: list[Name] = msgspec.field(default_factory=list)
    every: bool = False
    confirm: NonNegativeInt = 0
    priority: Priority | None = None

    def to_bulk_body(self, now: float) -> BulkBody:
        if not self.every:
            return BulkBody(filter=JobFilterBody(ids=self.ids), confirm=len(self.ids))
        criteria = self.filter(now)
        values = {name: getattr(criteria, name) for name in JobFilterBody.__struct_fields__}
        lists = {
            name: None if values[name] is None else list(values[name]) for name in ("ids", "states", "fields")
        }
        return BulkBody(filter=JobFilterBody(**values | lists), confirm=self.confirm)


def _bulk_action_route(
    verb: str, change: Callable[[RouteRequest], OperatorChange], summary: str, role: Role = Role.OPERATOR
) -> Route:
    async def handler(request: RouteRequest) -> Redirect:
        body: BulkForm = request.body
        done = await apply_bulk_change(request, body.to_bulk_body(request.app.clock.wall()), change(request))
        translate = translator(request.language)
        changed = done.changed or 0
        unchanged = (done.unchanged or 0) if body.every else len(body.ids) - changed
        notice = f"{translate(f'bulk.{verb}', count=changed)}{_unchanged_notice(translate, unchanged)}"
        return Redirect(_search_path(body), notice)

    return Route(
        method="POST", path=f"/bulk/{verb}", role=role, handler=handler, summary=summary, body=BulkForm
    )


def _search_path(body: BulkForm) -> str:
    search = JobSearch(**{name: getattr(body, name) for name in JobSearch.__struct_fields__})
    return build_path("/jobs", **search.parameters())


def _unchanged_notice(translate: Translator, unchanged: int) -> str:
    return f" {translate('bulk.unchanged', count=unchanged)}" if unchanged else ""


def _priority_change(request: RouteRequest) -> ReprioritiseJobs:
    body: BulkForm = request.body
    if body.priority is None:
        raise HTTPError(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "priority: must be given; a smaller one runs first",
            field="priority",
        )
    return ReprioritiseJobs(body.priority)


BULK_ROUTES = (
    _bulk_action_route("retry", lambda _: RetryJobs(), "Retry finished jobs."),
    _bulk_action_route(
        "cancel",
        lambda request: CancelJobs(f"cancelled by {request.user.name}"),
        "Cancel unfinished jobs.",
    ),
    _bulk_action_route("run", lambda _: RunJobsNow(), "Make scheduled jobs ready now."),
    _bulk_action_route(
        "reprioritise", _priority_change, "Change the priority of jobs that have not started."
    ),
    _bulk_action_route("delete", lambda _: DeleteJobs(), "Delete jobs that are not running.", Role.ADMIN),
)

ROUTES = (*JOBS_ROUTES, *JOB_ROUTES, *BULK_ROUTES)
