"""Plans: when jobs would be done if they were sent now."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta

from tidemill.errors import ConfigurationError
from tidemill.inspect.plan import Plan
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.api.fields import Body, Name, Priority, Seconds
from tidemill.web.api.new_jobs import NewJob, request_of, task_of
from tidemill.web.asked import Asked

MOST_PLANNED = 1000
"""Each may be a lane of its own; nobody else is answered while it is computed."""


class Planned(Body, frozen=True, kw_only=True):
    """Either `count` jobs of a `task`, with an example of their `payload` where a cost or a key is computed
    from it; or all `jobs`, one by one. `takes` is how many seconds a call is under way; without it the last
    jobs of the task are looked at."""

    task: Name | None = None
    count: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None
    payload: dict[str, Any] | None = None
    priority: Priority | None = None
    jobs: Annotated[list[NewJob], Meta(min_length=1, max_length=MOST_PLANNED)] | None = None
    takes: Seconds | None = None


class Told(Plan, frozen=True, kw_only=True):
    """A plan, and the `sentence` it makes."""

    sentence: str


async def plan(asked: Asked) -> Told:
    said: Planned = asked.body
    found = await asked.app.plan(_what(asked, said), count=said.count, takes=said.takes)
    return Told(**{name: getattr(found, name) for name in found.__struct_fields__}, sentence=str(found))


def _what(asked: Asked, said: Planned) -> Any:
    if (said.task is None) == (said.jobs is None):
        raise ConfigurationError("task: give either a task with a count, or jobs")
    if said.jobs is not None:
        if said.payload is not None or said.priority is not None:
            raise ConfigurationError("jobs: each has a payload and a priority of its own; leave those out")
        return [request_of(asked, job) for job in said.jobs]
    assert said.task is not None  # noqa: S101 - jobs are, above
    if said.payload is not None:
        priority = UNSET if said.priority is None else said.priority
        return request_of(asked, NewJob(task=said.task, payload=said.payload, priority=priority))
    task = task_of(asked, said.task)
    return task if said.priority is None else task.using(priority=said.priority)


ROUTES = (
    Route(
        method="POST",
        path="/api/v1/plan",
        role=Role.VIEWER,
        handler=plan,
        says="When so many jobs would be done if they were sent now, and what holds them up.",
        takes=Annotated[Planned, Meta(examples=[{"task": "songs:describe", "count": 12_000}])],
        answers=Told,
        audited=False,
    ),
)
