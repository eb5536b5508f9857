"""Workers: the processes that run jobs."""

from __future__ import annotations

from typing import Literal

from tidemill.contract.reader import WorkerInfo
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.api.fields import Answer
from tidemill.web.asked import Asked


class WorkerStatus(Answer, frozen=True, kw_only=True):
    """Of all of them together; `concurrency` is how many jobs they can run at once."""

    status: Literal["running", "stopped"]
    concurrency: int


async def listing(asked: Asked) -> list[WorkerInfo]:
    return await asked.inspect.workers()


async def status(asked: Asked) -> WorkerStatus:
    alive = await asked.inspect.workers()
    return WorkerStatus(
        status="running" if alive else "stopped", concurrency=sum(worker.concurrency for worker in alive)
    )


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/workers",
        role=Role.VIEWER,
        handler=listing,
        says="The workers that are alive.",
        answers=list[WorkerInfo],
    ),
    Route(
        method="GET",
        path="/api/v1/worker",
        role=Role.VIEWER,
        handler=status,
        says="Whether any worker is alive, and how many jobs they run at once.",
        answers=WorkerStatus,
    ),
)
