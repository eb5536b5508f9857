"""Dead letters by what they died of, and what is done to all of a kind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from http import HTTPStatus

import msgspec

from tidemill.core.filters import Filter
from tidemill.core.job import Job
from tidemill.core.states import State
from tidemill.seam.answers import Go, Page
from tidemill.seam.refusals import Refused
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.api.fields import Name, Whole
from tidemill.web.asked import Asked
from tidemill.web.confirming import still_meant
from tidemill.web.going import go

LOOKED_AT = 500
"""The newest that are grouped: enough to see what goes wrong, and read in a moment."""

Cause = tuple[str, str, str]
"""Queue, task, and what it died of: the type of the error, else the reason."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """`newest` and `message` are of the last one; `since` is when the first of those looked at failed."""

    queue: str
    task: str
    error: str
    count: int
    newest: Job
    since: float


class Shown(msgspec.Struct, frozen=True):
    queue: Name | None = None


class Meant(msgspec.Struct, frozen=True, kw_only=True):
    """One kind, or with none of the three all that failed; `confirm` is how many somebody agreed to."""

    queue: Name | None = None
    task: Name | None = None
    error: str | None = None
    confirm: Whole = 0


async def dead_letters(asked: Asked) -> Page:
    said: Shown = asked.query
    found = await asked.inspect.find(Filter(states=(State.FAILED,), queue=said.queue), limit=LOOKED_AT)
    counts = await asked.inspect.counts()
    failed = {queue: states.get(State.FAILED, 0) for queue, states in sorted(counts.items())}
    shows = {
        "kinds": kinds(found.jobs),
        "looked_at": len(found.jobs),
        "all": sum(failed.values()),
        "failed": {queue: count for queue, count in failed.items() if count},
        "queue": said.queue,
    }
    return Page("dead_letters.html", shows, live=("letters",))


def cause(job: Job) -> Cause:
    return job.queue, job.task, job.error.type if job.error else job.reason or ""


def kinds(jobs: Iterable[Job]) -> list[Kind]:
    """The largest first."""
    by_cause: dict[Cause, list[Job]] = {}
    for job in jobs:
        by_cause.setdefault(cause(job), []).append(job)
    found = [
        Kind(
            queue=queue,
            task=task,
            error=error,
            count=len(same),
            newest=same[0],
            since=min(job.finished or job.created for job in same),
        )
        for (queue, task, error), same in by_cause.items()
    ]
    return sorted(found, key=lambda kind: -kind.count)


async def retry(asked: Asked) -> Go:
    said: Meant = asked.body
    ids = [job.id async for job in _meant(asked, said)]
    if not still_meant(len(ids), said.confirm):
        raise Refused(
            HTTPStatus.CONFLICT,
            f"confirm: {said.confirm} dead letters were confirmed and {len(ids)} are meant by now; "
            "nothing was changed, look again",
            field="confirm",
        )
    done = await asked.inspect.retry(Filter(ids=tuple(ids), states=(State.FAILED,)))
    return go(asked, "/dead-letters", told="bulk.retry", count=done.changed)


async def _meant(asked: Asked, said: Meant) -> AsyncIterator[Job]:
    async for job in asked.inspect.each(Filter(states=(State.FAILED,), queue=said.queue, task=said.task)):
        if said.task is None or cause(job)[2] == (said.error or ""):
            yield job


ROUTES = (
    Route(
        method="GET",
        path="/dead-letters",
        role=Role.VIEWER,
        handler=dead_letters,
        says="Jobs that failed for good, by what they died of.",
        query=Shown,
    ),
    Route(
        method="POST",
        path="/dead-letters/retry",
        role=Role.OPERATOR,
        handler=retry,
        says="Dead letters of one kind, or all, run again.",
        takes=Meant,
    ),
)
