"""One job: what it is, why it waits, what its attempts did."""

from __future__ import annotations

from typing import Any

from tidemill.core.states import FINAL, PENDING, State
from tidemill.seam.answers import Go, Page
from tidemill.seam.roles import Role
from tidemill.seam.routes import Handler, Route
from tidemill.web.api import job_changes
from tidemill.web.api.job_changes import NewPriority, Why
from tidemill.web.api.records import detail_of
from tidemill.web.asked import Asked
from tidemill.web.going import go

COURSE = (State.SCHEDULED, State.READY, State.RUNNING)


async def job(asked: Asked) -> Page:
    view = await asked.inspect.job(asked.path["job"])
    seen = detail_of(view)
    shows = {
        "job": seen,
        "course": course(seen.state),
        "why": await asked.inspect.explain(seen.id),
        "limits": _limits(asked, seen.task),
        "ended": seen.state in FINAL,
        "pending": seen.state in PENDING,
    }
    return Page("job.html", shows, live=("course", "why", "run", "attempts", "log", "buttons", "facts"))


def course(state: State) -> list[tuple[State, bool]]:
    """The stations of a job's way, and which of them it has passed."""
    if state is State.WAITING:
        return [(State.WAITING, False), (State.READY, False), (State.RUNNING, False), (State.DONE, False)]
    end = state if state in FINAL else State.DONE
    way = (*COURSE, end)
    return [(station, way.index(station) < way.index(state)) for station in way]


def _limits(asked: Asked, task: str) -> dict[str, Any]:
    """What the task's code says, None where this program does not have it."""
    known = asked.app.tasks.get(task)
    return {"attempts": None if known is None else known.retry.attempts}


def _route(
    verb: str, handler: Handler, says: str, takes: type | None = None, role: Role = Role.OPERATOR
) -> Route:
    async def change(asked: Asked) -> Go:
        await handler(asked)
        if verb == "delete":
            return go(asked, "/jobs", told="job.was.delete")
        return go(asked, "/jobs/{}", asked.path["job"], told=f"job.was.{verb}")

    return Route(
        method="POST", path=f"/jobs/{{job}}/{verb}", role=role, handler=change, says=says, takes=takes
    )


ROUTES = (
    Route(method="GET", path="/jobs/{job}", role=Role.VIEWER, handler=job, says="One job."),
    _route("retry", job_changes.retry, "An ended job runs again."),
    _route("cancel", job_changes.cancel, "A job that has not ended ends.", Why),
    _route("run", job_changes.run, "A scheduled job becomes ready now."),
    _route("archive", job_changes.archive, "A job that has not started joins the dead letters.", Why),
    _route("reprioritise", job_changes.reprioritise, "Another priority.", NewPriority),
    _route("delete", job_changes.delete, "The job is deleted.", role=Role.ADMIN),
)
