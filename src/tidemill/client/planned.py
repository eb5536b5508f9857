"""Jobs that are not sent: what a plan is about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tidemill.client.options import Options
from tidemill.client.request import JobRequest
from tidemill.client.task import Task
from tidemill.core.demand import Demand, Sending, averaged
from tidemill.core.job import NewJob, lane_of
from tidemill.core.needs import Need
from tidemill.errors import ConfigurationError
from tidemill.tasks.definition import TaskDefinition

Planned = Task[Any, Any] | JobRequest[Any] | Iterable[JobRequest[Any]]
MOST_JOBS = 1_000_000_000


def sendings(what: Planned, count: int | None) -> list[Sending]:
    """One for each lane and priority."""
    if isinstance(what, Task):
        return [_of_task(what, _counted(count))]
    if isinstance(what, JobRequest):
        return [_of_requests([what], _counted(count))]
    requests = list(what) if isinstance(what, Iterable) else []
    if not requests or not all(isinstance(request, JobRequest) for request in requests):
        raise ConfigurationError(
            "plan: give a task with count=…, a job made by task.job(…), or a list of such jobs"
        )
    if count is not None:
        raise ConfigurationError("count: a list of jobs has its own number; leave it out")
    lanes: dict[tuple[str, str, int], list[JobRequest[Any]]] = {}
    for request in requests:
        lanes.setdefault((request.queue, lane_of(request.job), request.job.priority), []).append(request)
    return [_of_requests(alike, len(alike)) for alike in lanes.values()]


def _counted(count: int | None) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_JOBS:
        raise ConfigurationError(f"count: must be a whole number of jobs from 1 to {MOST_JOBS}, is {count!r}")
    return count


def _of_task(task: Task[Any, Any], count: int) -> Sending:
    definition, options = task.definition, task.options
    job = NewJob(
        id="planned",
        task=task.name,
        payload=b"{}",
        priority=options.priority,
        key=options.key if isinstance(options.key, str) else None,
        delay=options.delay,
        at=options.at,
        needs=_needs(definition, options),
        batching=None if definition.batch is None else definition.batch.together,
    )
    return _of_requests([JobRequest(options.queue, job)], count)


def _needs(task: TaskDefinition, options: Options) -> tuple[Need, ...]:
    if not task.pools:
        return ()
    computed = [f"the key of pool {use.pool.name!r}" for use in task.pools if use.key is not None]
    if callable(task.cost) and options.cost is None:
        computed.append("its cost")
    if computed:
        raise ConfigurationError(
            f"task {task.name!r}: {computed[0]} is computed from the arguments; give an example of them: "
            "app.plan(task.job(…), count=…), or name=value on the command line"
        )
    from tidemill.tasks.costs import needs_of  # with all there is to pools

    return needs_of(task, {}, options.cost)


def _of_requests(requests: Sequence[JobRequest[Any]], count: int) -> Sending:
    first = requests[0]
    return Sending(
        task=first.job.task,
        delay=first.job.delay,
        at=first.job.at,
        demand=Demand(
            queue=first.queue,
            lane=lane_of(first.job),
            priority=first.job.priority,
            jobs=count,
            needs=averaged(
                [each.job.needs for each in requests], shares_calls=first.job.batching is not None
            ),
            batching=first.job.batching,
        ),
    )
