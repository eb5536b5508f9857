"""Tasks: what jobs can be sent."""

from __future__ import annotations

from typing import Any

from tidemill.core.retry import Retry
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.tasks.definition import TaskDefinition
from tidemill.web.api.fields import Answer
from tidemill.web.asked import Asked


class TaskInfo(Answer, frozen=True, kw_only=True):
    """`payload` is the JSON Schema of its arguments. `attempts` counts the first run; `together` is how many
    jobs a call of a batch task takes at most."""

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


async def listing(asked: Asked) -> list[TaskInfo]:
    return [_info(task) for _, task in sorted(asked.app.tasks.items())]


def _info(task: TaskDefinition) -> TaskInfo:
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
        together=None if task.batch is None else task.batch.together.max_items,
        payload=task.payload.schema(),
    )


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/tasks",
        role=Role.VIEWER,
        handler=listing,
        says="The application's tasks, each with the schema of its arguments.",
        answers=list[TaskInfo],
    ),
)
