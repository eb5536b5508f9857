"""What is done to one job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus

from tidemill.core.changes import Archive, Cancel, Change, Delete, Reprioritise, RetryNow, RunNow
from tidemill.seam.refusals import Refused
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.api.fields import Body, Priority, Sentence
from tidemill.web.api.records import JobRecord, record_of
from tidemill.web.asked import Asked

_NEEDS = {
    RetryNow: "only a job that has ended can be retried",
    Cancel: "only a job that has not ended can be cancelled",
    RunNow: "only a scheduled job can be run now",
    Archive: "only a job that has not started can be archived",
    Reprioritise: "only a job that has not started gets another priority",
    Delete: "a running job cannot be deleted; cancel it first",
}


class Why(Body, frozen=True, kw_only=True):
    """`reason` is kept with the job."""

    reason: Sentence | None = None


class NewPriority(Body, frozen=True, kw_only=True):
    priority: Priority


async def _change(asked: Asked, change: Change) -> None:
    job = asked.path["job"]
    changed = await asked.inspect.change(job, change)
    if not changed.changed:
        state = (await asked.inspect.job(job)).job.state
        raise Refused(HTTPStatus.CONFLICT, f"job {job!r} is {state}: {_NEEDS[type(change)]}")


async def _changed(asked: Asked, change: Change) -> JobRecord:
    await _change(asked, change)
    return record_of((await asked.inspect.job(asked.path["job"])).job)


async def retry(asked: Asked) -> JobRecord:
    return await _changed(asked, RetryNow())


async def cancel(asked: Asked) -> JobRecord:
    return await _changed(asked, Cancel(asked.body.reason or f"cancelled by {asked.who.name}"))


async def run(asked: Asked) -> JobRecord:
    return await _changed(asked, RunNow())


async def archive(asked: Asked) -> JobRecord:
    return await _changed(asked, Archive(asked.body.reason or f"archived by {asked.who.name}"))


async def reprioritise(asked: Asked) -> JobRecord:
    return await _changed(asked, Reprioritise(asked.body.priority))


async def delete(asked: Asked) -> None:
    await _change(asked, Delete())


def _post(
    verb: str, handler: Callable[[Asked], Awaitable[JobRecord]], says: str, takes: type[Body] | None = None
) -> Route:
    return Route(
        method="POST",
        path=f"/api/v1/jobs/{{job}}/{verb}",
        role=Role.OPERATOR,
        handler=handler,
        says=says,
        takes=takes,
        answers=JobRecord,
    )


ROUTES = (
    _post("retry", retry, "An ended job runs again, with all its attempts."),
    _post("cancel", cancel, "A job that has not ended ends; a running one is told to stop.", Why),
    _post("run", run, "A scheduled job becomes ready now."),
    _post("archive", archive, "A job that has not started joins the dead letters.", Why),
    _post("reprioritise", reprioritise, "A job that has not started gets another priority.", NewPriority),
    Route(
        method="DELETE",
        path="/api/v1/jobs/{job}",
        role=Role.ADMIN,
        handler=delete,
        says="The job and all that is known of it goes; a running one has to be cancelled first.",
        status=HTTPStatus.NO_CONTENT,
    ),
)
