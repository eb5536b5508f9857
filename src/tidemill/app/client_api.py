"""The client methods of an application: enqueue jobs and flows, inspect, explain and plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from tidemill.app.application import Application
from tidemill.client.job_handle import JobHandle
from tidemill.client.job_options import CheckedJobOptions
from tidemill.client.request import JobRequest
from tidemill.client.task import Task
from tidemill.core.forecast.backlog import Demand, PlannedJobs, average_needs
from tidemill.core.jobs import NewJob, job_lane
from tidemill.core.needs import Need
from tidemill.errors import ConfigurationError
from tidemill.tasks.definition import TaskDefinition

if TYPE_CHECKING:
    from tidemill.auth import Auth
    from tidemill.client.flow_handle import FlowHandle
    from tidemill.client.flows import Flow
    from tidemill.http_routes.registry import WebRegistry
    from tidemill.inspect.explanation import Explanation
    from tidemill.inspect.inspector import Inspector
    from tidemill.inspect.plan import Plan
    from tidemill.metrics.instruments import MetricRegistry


PlanArgument = Task[Any, Any] | JobRequest[Any] | Iterable[JobRequest[Any]]
MAX_PLANNED_JOBS = 1_000_000_000


def plan_requests(what: PlanArgument, count: int | None) -> list[PlannedJobs]:
    """Returns the jobs to plan; jobs of the same queue, lane and priority share one entry.

    `count`: the number of jobs if `what` is a task or one job; None for a list."""
    if isinstance(what, Task):
        return [_request_of_task(what, _check_count(count))]
    if isinstance(what, JobRequest):
        return [_request_of_jobs([what], _check_count(count))]
    requests = list(what) if isinstance(what, Iterable) else []
    if not requests or not all(isinstance(request, JobRequest) for request in requests):
        raise ConfigurationError(
            "plan: give a task with count=…, a job made by task.job(…), or a list of such jobs"
        )
    if count is not None:
        raise ConfigurationError("count: a list of jobs has its own number; leave it out")
    lanes: dict[tuple[str, str, int], list[JobRequest[Any]]] = {}
    for request in requests:
        lanes.setdefault((request.queue, job_lane(request.job), request.job.priority), []).append(request)
    return [_request_of_jobs(alike, len(alike)) for alike in lanes.values()]


def _check_count(count: int | None) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_PLANNED_JOBS:
        raise ConfigurationError(
            f"count: must be a whole number of jobs from 1 to {MAX_PLANNED_JOBS}, is {count!r}"
        )
    return count


def _request_of_task(task: Task[Any, Any], count: int) -> PlannedJobs:
    definition, options = task.definition, task.options
    job = NewJob(
        id="planned",
        task=task.name,
        payload=b"{}",
        priority=options.priority,
        key=options.key if isinstance(options.key, str) else None,
        delay=options.delay,
        at=options.at,
        needs=_needs_without_arguments(definition, options),
        batching=None if definition.batch is None else definition.batch.policy,
    )
    return _request_of_jobs([JobRequest(options.queue, job)], count)


def _needs_without_arguments(task: TaskDefinition, options: CheckedJobOptions) -> tuple[Need, ...]:
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
    from tidemill.tasks.costs import compute_needs  # loads all of pools

    return compute_needs(task, {}, options.cost)


def _request_of_jobs(requests: Sequence[JobRequest[Any]], count: int) -> PlannedJobs:
    job = requests[0].job
    needs = average_needs([request.job.needs for request in requests], shares_calls=job.batching is not None)
    return PlannedJobs(
        task=job.task,
        delay=job.delay,
        at=job.at,
        demand=Demand(
            queue=requests[0].queue,
            lane=job_lane(job),
            priority=job.priority,
            jobs=count,
            needs=needs,
            batching=job.batching,
        ),
    )


R = TypeVar("R")


class EnqueueApi(Application):
    async def enqueue_many(self, requests: Iterable[JobRequest[R]]) -> list[JobHandle[R]]:
        """Sends many jobs in few calls of up to 1 000 jobs or 2 MB, and returns a handle for each, in order.

        Within one call, the jobs of a queue are accepted or refused together. Jobs of earlier calls stay
        accepted. After an error you can send the same requests again; no job is created twice. Each call has
        a deadline of 5 s."""
        return await self.client.enqueue_many(requests)

    def enqueue_many_sync(self, requests: Iterable[JobRequest[R]]) -> list[JobHandle[R]]:
        """`enqueue_many` for programs without an event loop."""
        return self.client.enqueue_many_sync(requests)

    def flow(
        self,
        name: str,
        *,
        key: str | None = None,
        priority: int | None = None,
        timeout: float | timedelta | None = None,
        keep: float | timedelta | None = None,
    ) -> Flow:
        """Returns a new, empty flow. `flow.add(task, …)` and `flow.map(task, …)` add steps, `await
        flow.enqueue()` sends it.

        - `key`: only one flow with this name and key exists at a time. The key is free again one hour after
          the flow was pruned.
        - `priority`: for steps whose task has no priority from `using`.
        - `timeout`: seconds after which the flow fails and its jobs are cancelled.
        - `keep`: how many seconds the store keeps the ended flow and its jobs. The default is one day after a
          success, otherwise seven days."""
        from tidemill.client.flows import Flow

        return Flow(self.client, name, key=key, priority=priority, timeout=timeout, keep=keep)

    def flow_handle(self, id: str) -> FlowHandle:  # noqa: A002 - the public name
        """Returns a handle for the flow with that id."""
        from tidemill.client.flow_handle import FlowHandle

        return FlowHandle(self.client, id)

    def job(self, id: str) -> JobHandle[Any]:  # noqa: A002 - the public name
        """Returns a handle for the job with that id."""
        return JobHandle(self.client, id)


class InspectionApi(Application):
    @property
    def inspect(self) -> Inspector:
        """Reads and changes queues and jobs: `await app.inspect.queue("feeds")`."""
        from tidemill.inspect.inspector import Inspector

        return Inspector(self.client.store, self.tasks, self.client.signals)

    @property
    def auth(self) -> Auth:
        """Tokens and the audit log: `await app.auth.tokens.create("ann", Role.OPERATOR)`."""
        from tidemill.auth import Auth

        return Auth(self.client.store, self.clock, self.entropy, self.settings)

    @property
    def web(self) -> WebRegistry:
        """Adds routes, pages and navigation to the API and the dashboard: `@app.web.page("/music", …)`."""
        if self._web is None:
            from tidemill.http_routes.registry import WebRegistry

            self._web = WebRegistry()
        return self._web

    @property
    def metrics(self) -> MetricRegistry:
        """Counters, gauges and histograms of the application.

        `plays = app.metrics.counter("plays_total", "Songs played.")`, then `plays.add()`."""
        return self.snapshot_writer.instruments

    async def exposition(self) -> str:
        """Returns every metric in the text format of Prometheus, including the application's own."""
        if self._exposition is None:
            from tidemill.inspect.metrics_exposition import Exposition

            self._exposition = Exposition(self.snapshot_writer)
        return await self._exposition.text(await self.client.store())

    async def explain(self, id: str) -> Explanation:  # noqa: A002 - the public name
        """Returns the reasons why a job waits, or what the job is doing."""
        return await self.inspect.explain(id)

    async def answer(self, request: JobRequest[R], *, within: float | timedelta) -> R:
        """Runs a job ahead of all others and returns its result: `await app.answer(embed.job(text),
        within=15)`.

        Use it for callers that wait, such as an HTTP request. The job expires after `within` seconds, so no
        job runs without a caller. Raises AnswerUnavailable if there is no result by then, or earlier if none
        can come in time. A route that raises this error answers 503 with `Retry-After`."""
        from tidemill.app.answers import AnswerWait

        return await AnswerWait(self.client, self.inspect, within).run(request)

    async def plan(
        self,
        what: Task[Any, Any] | JobRequest[Any] | Iterable[JobRequest[Any]],
        *,
        count: int | None = None,
        takes: float | None = None,
    ) -> Plan:
        """Predicts when jobs would be done if you sent them now: `await app.plan(describe, count=12_000)`.
        Nothing is sent.

        If the cost or a key depends on the arguments, pass an example job: `app.plan(describe.job(chunk),
        count=12_000)`. You can also pass a list of all jobs, without `count`. `takes` is the duration of a
        call in seconds; by default it is measured from the task's last jobs."""
        from tidemill.inspect.plan import compute_plan

        return await compute_plan(
            await self.client.store_for_reading(), plan_requests(what, count), takes, self.pools, self.queues
        )
