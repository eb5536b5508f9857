"""API routes for tasks: their payload schemas, and plans of when jobs would be done."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta

from tidemill.core.retry import Retry
from tidemill.errors import ConfigurationError
from tidemill.http_routes.routes import Role, Route
from tidemill.inspect.plan import Plan
from tidemill.tasks.definition import TaskDefinition
from tidemill.web.api.enqueue import EnqueueBody, build_job_request, find_task
from tidemill.web.api.schemas import Name, Priority, RequestBody, ResponseBody, Seconds
from tidemill.web.request import RouteRequest


class TaskInfo(ResponseBody, frozen=True, kw_only=True):
    """A task of the application.

    - `payload`: the JSON Schema of its arguments
    - `attempts`: the maximum number of attempts, including the first run
    - `timeout`: how many seconds an attempt may take
    - `expires`: a job is cancelled if it has not started after this many seconds; null for never
    - `together`: how many jobs a batch may have; null if the task has no batches"""

    name: str
    queue: str
    priority: int
    attempts: int
    timeout: float
    isolate: bool
    expires: float | None
    pools: tuple[str, ...]
    together: int | None
    payload: dict[str, Any]


async def list_tasks(request: RouteRequest) -> list[TaskInfo]:
    return [_task_info(task) for _, task in sorted(request.app.tasks.items())]


def _task_info(task: TaskDefinition) -> TaskInfo:
    retry: Retry = task.retry
    return TaskInfo(
        name=task.name,
        queue=task.queue,
        priority=task.priority,
        attempts=retry.attempts,
        timeout=task.timeout,
        isolate=task.isolate,
        expires=task.expires,
        pools=tuple(use.pool.name for use in task.pools),
        together=None if task.batch is None else task.batch.policy.max_items,
        payload=task.payload.schema(),
    )


TASK_ROUTES = (
    Route(
        method="GET",
        path="/api/v1/tasks",
        role=Role.VIEWER,
        handler=list_tasks,
        summary="The application's tasks, each with the schema of its arguments.",
        response=list[TaskInfo],
    ),
)


MAX_PLANNED_JOBS = 1000
"""Each job may have its own lane, and no other request is answered during the computation."""


class PlanBody(RequestBody, frozen=True, kw_only=True):
    """The jobs to plan: either `count` jobs of a `task`, or a list of `jobs`.

    - `payload`: example arguments, needed if the cost or the key depends on the arguments
    - `takes`: the duration of a call in seconds; by default it is measured from the last jobs of the task"""

    task: Name | None = None
    count: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None
    payload: dict[str, Any] | None = None
    priority: Priority | None = None
    jobs: Annotated[list[EnqueueBody], Meta(min_length=1, max_length=MAX_PLANNED_JOBS)] | None = None
    takes: Seconds | None = None


class PlanResponse(Plan, frozen=True, kw_only=True):
    """A plan, and the `sentence` that sums it up."""

    sentence: str


async def plan_jobs(request: RouteRequest) -> PlanResponse:
    body: PlanBody = request.body
    found = await request.app.plan(_planned_work(request, body), count=body.count, takes=body.takes)
    return PlanResponse(
        **{name: getattr(found, name) for name in found.__struct_fields__}, sentence=str(found)
    )


def _planned_work(request: RouteRequest, body: PlanBody) -> Any:
    if (body.task is None) == (body.jobs is None):
        raise ConfigurationError("task: give either a task with a count, or jobs")
    if body.jobs is not None:
        if body.payload is not None or body.priority is not None:
            raise ConfigurationError("jobs: each has a payload and a priority of its own; leave those out")
        return [build_job_request(request, job) for job in body.jobs]
    assert body.task is not None  # noqa: S101 - jobs are handled above
    if body.payload is not None:
        priority = UNSET if body.priority is None else body.priority
        return build_job_request(
            request, EnqueueBody(task=body.task, payload=body.payload, priority=priority)
        )
    task = find_task(request, body.task)
    return task if body.priority is None else task.using(priority=body.priority)


PLAN_ROUTES = (
    Route(
        method="POST",
        path="/api/v1/plan",
        role=Role.VIEWER,
        handler=plan_jobs,
        summary="Estimate when jobs enqueued now would be done, and what delays them; nothing is enqueued.",
        body=Annotated[PlanBody, Meta(examples=[{"task": "songs:describe", "count": 12_000}])],
        response=PlanResponse,
        audited=False,
    ),
)

ROUTES = (*TASK_ROUTES, *PLAN_ROUTES)
