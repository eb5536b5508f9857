"""Dead letters: jobs that failed for good, kept until somebody decides."""

from __future__ import annotations

from http import HTTPStatus

from msgspec.structs import replace

from tidemill.core.changes import RetryNow
from tidemill.core.states import State
from tidemill.seam.refusals import Refused
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.api import job_changes
from tidemill.web.api.bulk import Done, Many, change_many, is_confirmed
from tidemill.web.api.fields import Cursor, Limit, Name, Query, Sentence, Time
from tidemill.web.api.records import JobPage, JobRecord, page_of
from tidemill.web.api.which import FindPage, Which, filter_of
from tidemill.web.asked import Asked

_FAILED = [State.FAILED]


class Dead(Query, frozen=True, kw_only=True):
    """`since` and `until` are about when they failed."""

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


async def find(asked: Asked) -> JobPage:
    said: Dead = asked.query
    shared = {name: getattr(said, name) for name in Dead.__struct_fields__}
    wanted = await filter_of(asked, FindPage(**shared, states=_FAILED, time="finished"))
    return page_of(await asked.inspect.find(wanted, limit=said.limit, cursor=said.cursor))


async def retry(asked: Asked) -> JobRecord:
    job = (await asked.inspect.job(asked.path["job"])).job
    if job.state is not State.FAILED:
        raise Refused(HTTPStatus.CONFLICT, f"job {job.id!r} is {job.state} and no dead letter")
    return await job_changes.retry(asked)


async def retry_many(asked: Asked) -> Done:
    """All of them, unless `which` says less."""
    said: Many = asked.body
    which = replace(said.which, states=_FAILED)
    return await change_many(asked, replace(said, which=which), RetryNow())


class ManyDead(Many, frozen=True, kw_only=True):
    """As `Many`; without `which` all of them."""

    which: Which = Which()


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/dead-letters",
        role=Role.VIEWER,
        handler=find,
        says="Jobs that failed for good, newest first.",
        query=Dead,
        answers=JobPage,
    ),
    Route(
        method="POST",
        path="/api/v1/dead-letters/retry",
        role=Role.OPERATOR,
        handler=retry_many,
        says="Dead letters run again, with all their attempts; without `which` all of them.",
        takes=ManyDead,
        answers=Done,
        audited=is_confirmed,
    ),
    Route(
        method="POST",
        path="/api/v1/dead-letters/{job}/retry",
        role=Role.OPERATOR,
        handler=retry,
        says="One dead letter runs again, with all its attempts.",
        answers=JobRecord,
    ),
)
