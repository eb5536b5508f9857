"""Jobs: finding them, and what is known of one."""

from __future__ import annotations

from tidemill.inspect.explanation import Explanation
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.api.records import JobDetail, JobPage, detail_of, page_of
from tidemill.web.api.which import FindPage, filter_of
from tidemill.web.asked import Asked


async def find(asked: Asked) -> JobPage:
    said: FindPage = asked.query
    wanted = await filter_of(asked, said)
    return page_of(await asked.inspect.find(wanted, limit=said.limit, cursor=said.cursor))


async def get(asked: Asked) -> JobDetail:
    return detail_of(await asked.inspect.job(asked.path["job"]))


async def explain(asked: Asked) -> Explanation:
    return await asked.inspect.explain(asked.path["job"])


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/jobs",
        role=Role.VIEWER,
        handler=find,
        says="Find jobs, newest first.",
        query=FindPage,
        answers=JobPage,
    ),
    Route(
        method="GET",
        path="/api/v1/jobs/{job}",
        role=Role.VIEWER,
        handler=get,
        says="One job, with its failed attempts, log lines and checkpoints.",
        answers=JobDetail,
    ),
    Route(
        method="GET",
        path="/api/v1/jobs/{job}/explanation",
        role=Role.VIEWER,
        handler=explain,
        says="Why the job waits, or what it does; also of a step of a flow that is no job yet.",
        answers=Explanation,
    ),
)
