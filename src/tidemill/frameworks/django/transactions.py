"""Jobs that follow a transaction: sent once it is committed, not at all when it is rolled back.

The job and the rows are two systems. A process that dies between the commit and the enqueue leaves the
rows without the job; a job is never there without its rows.
"""

from __future__ import annotations

from functools import partial
from typing import ParamSpec, TypeVar

from django.db import transaction

from tidemill.client.client import Client
from tidemill.client.handle import JobHandle
from tidemill.client.request import JobRequest
from tidemill.client.task import Task

P = ParamSpec("P")
R = TypeVar("R")


def enqueue_on_commit(task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
    """Enqueue when the transaction around this call commits; at once outside of one.

    Arguments are checked and the id is made now, so it can be written into a row of the same
    transaction. Options go in by `task.using(…)`. Whether a job with the same unique key is there is
    asked after the commit: if so, no job has this id.
    """
    return send_on_commit(task, task.job(*args, **kwargs))


def send_on_commit(
    task: Task[..., R], request: JobRequest[R], *, database: str | None = None
) -> JobHandle[R]:
    """The same for a request made by `task.job(…)`, and for another database than the default."""
    client: Client = task.client
    transaction.on_commit(partial(client.enqueue_sync, request), using=database)
    return JobHandle(client, request.job.id, queue=request.queue)
