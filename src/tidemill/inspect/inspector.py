"""The inspector, `app.inspect`: reads queues, jobs, pools, flows and workers, and changes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Unpack

from msgspec import UNSET, UnsetType

from tidemill.contract.pools import PoolMinute
from tidemill.contract.reader import DEFAULT_SCAN_LIMIT, JobPage, QueueMinute, WorkerInfo
from tidemill.contract.store import Store
from tidemill.core.documents import DocumentKind
from tidemill.core.filters import Filter, check_filter
from tidemill.core.flow_progress import FlowState
from tidemill.core.jobs import Job, problem_with_priority
from tidemill.core.operator_changes import (
    ArchiveJobs,
    CancelJobs,
    DeleteJobs,
    OperatorChange,
    ReprioritiseJobs,
    RetryJobs,
    RunJobsNow,
)
from tidemill.core.queues import QueueOptions
from tidemill.core.states import State
from tidemill.errors import ConfigurationError, JobNotFound
from tidemill.flows.advance import emit_flow_ended
from tidemill.flows.cancel_and_retry import cancel_flow, find_flow, retry_flow
from tidemill.flows.views import FlowView, make_flow_view
from tidemill.inspect import flows, jobs, overrides, pools, views
from tidemill.inspect.explanation import Explanation, explain
from tidemill.inspect.explanation_inputs import load_inputs
from tidemill.inspect.flows import FlowPage, explain_step
from tidemill.inspect.forecast import CachedForecast, Forecasts, load_forecast
from tidemill.inspect.forecast_inputs import StoreSnapshot
from tidemill.inspect.jobs import OnChangeProgress, require_job
from tidemill.inspect.overrides import clear_pool_override, close_pool, override_pool
from tidemill.inspect.pools import PoolStatus
from tidemill.inspect.queues import DailyHistoryCache, load_queue_view, load_queue_views, require_queue
from tidemill.inspect.views import BulkResult, JobCount, JobView, Overview, QueueView
from tidemill.metrics.dependencies import DependencyStatus, load_dependencies
from tidemill.metrics.rollup import QueueTotal, load_totals
from tidemill.tasks.definition import TaskDefinition
from tidemill.telemetry.listeners import Signals
from tidemill.times import parse_time

FilterOrId = Filter | str
"""Selects jobs: by filter, or one job by its id."""

MAX_JOBS_PER_PAGE = 10_000


class Inspector:
    """Queries and operator actions. Every answer is the store's state at that moment.

    Programs without an event loop call `app.run_sync(app.inspect.queue("feeds"))`."""

    def __init__(
        self, store: Callable[[], Awaitable[Store]], tasks: Mapping[str, TaskDefinition], signals: Signals
    ) -> None:
        self._store, self._tasks = store, tasks
        self._emit_flow_ended = partial(emit_flow_ended, signals)
        self._cached_forecast: CachedForecast | None = None
        self._history_cache = DailyHistoryCache()

    async def queues(self, *, cached: bool = False) -> list[QueueView]:
        """Returns every queue that was declared or has had a job, sorted by name. `cached=True` is faster:
        forecast and history may come from a cache, see `overview`."""
        store = await self._store()
        _, forecasts = await self._load_forecast(cached=cached)
        return await load_queue_views(
            store, forecasts, self._history_cache if cached else DailyHistoryCache()
        )

    async def queue(self, name: str, *, cached: bool = False) -> QueueView:
        """Returns one queue. Raises QueueNotFound, whose message lists the known queues. `cached=True` is
        faster: forecast and history may come from a cache, see `overview`."""
        store = await self._store()
        await require_queue(store, name)
        _, forecasts = await self._load_forecast(cached=cached)
        return await load_queue_view(
            store, name, forecasts, self._history_cache if cached else DailyHistoryCache()
        )

    async def find(
        self,
        job_filter: Filter,
        *,
        limit: int = 100,
        cursor: int | None = None,
        scan_limit: int | None = DEFAULT_SCAN_LIMIT,
    ) -> JobPage:
        """Returns one page of matching jobs, newest first. Pass the page's `cursor` to get the next page.
        After reading `scan_limit` jobs the search stops, and the page is `partial`; None means no stop."""
        _check_scan_limit(scan_limit)
        if not 1 <= limit <= MAX_JOBS_PER_PAGE:
            raise ConfigurationError(
                f"limit: must lie between 1 and {MAX_JOBS_PER_PAGE}, is {limit}; "
                "each() goes through any number"
            )
        return await (await self._store()).find(check_filter(job_filter), limit, cursor, scan_limit)

    async def each(self, job_filter: Filter) -> AsyncIterator[Job]:
        """Yields every matching job once, newest first. Jobs enqueued meanwhile are left out."""
        async for job in jobs.iterate_jobs(await self._store(), check_filter(job_filter)):
            yield job

    async def count(self, job_filter: Filter, *, scan_limit: int | None = DEFAULT_SCAN_LIMIT) -> JobCount:
        """Returns how many jobs match. A filter with only a queue and states is counted exactly and at once.
        Any other count stops after reading `scan_limit` jobs or 1000 matches, and `more` is then True. With
        `scan_limit=None` it is exact."""
        _check_scan_limit(scan_limit)
        return await jobs.count_jobs(await self._store(), check_filter(job_filter), scan_limit)

    async def counts(self) -> dict[str, dict[State, int]]:
        """Returns the exact number of jobs by queue and state, without scanning."""
        return await (await self._store()).counts()

    async def job(self, id: str) -> JobView:  # noqa: A002 - the word for it
        """Returns one job with its attempts, log and checkpoints. Raises JobNotFound."""
        store = await self._store()
        job = await require_job(store, id)
        attempts, log = await store.attempts(id), await store.logs(id)
        checkpoints = tuple(
            views.view_checkpoint(checkpoint, job) for checkpoint in await store.checkpoints(id)
        )
        return JobView(job=job, attempts=tuple(attempts), log=tuple(log), checkpoints=checkpoints)

    async def dependencies(self) -> list[DependencyStatus]:
        """Returns the services that handlers named with `DependencyUnavailable`, sorted by name."""
        return await load_dependencies(await self._store())

    async def explain(self, id: str) -> Explanation:  # noqa: A002 - the word for it
        """Returns why a job waits or what became of it. `id` is the id of a job, or of a flow step that has
        no job yet. Raises JobNotFound."""
        store = await self._store()
        try:
            return explain(await load_inputs(store, self._tasks, id))
        except JobNotFound:
            if (explanation := await explain_step(store, self._tasks, id)) is None:
                raise
            return explanation

    async def change(
        self, selection: FilterOrId, change: OperatorChange, *, progress: OnChangeProgress | None = None
    ) -> BulkResult:
        """Applies `change` to all jobs that match `selection`, a filter or a job id, the oldest jobs first.

        The change is written in many short transactions; if it was interrupted, you can repeat it. A job that
        no longer matches is skipped. `progress` is called with the number of jobs processed so far. Raises
        JobNotFound for an unknown id."""
        store = await self._store()
        selected = Filter(ids=(selection,)) if isinstance(selection, str) else check_filter(selection)
        if selected == Filter(time=selected.time):  # `time` alone selects nothing
            raise ConfigurationError(
                "the filter is empty and would change every job; say which are meant, and if it is all of "
                "them Filter(states=tuple(State))"
            )
        changed = await jobs.change_jobs(store, selected, change, progress)
        if isinstance(selection, str) and not changed.changed + changed.unchanged:
            raise JobNotFound(f"there is no job {selection!r}: the id is wrong, or it was pruned")
        return changed

    async def retry(self, selection: FilterOrId, *, progress: OnChangeProgress | None = None) -> BulkResult:
        """Runs finished jobs again, with the full number of attempts."""
        return await self.change(selection, RetryJobs(), progress=progress)

    async def cancel(
        self,
        selection: FilterOrId,
        *,
        reason: str = "cancelled by hand",
        progress: OnChangeProgress | None = None,
    ) -> BulkResult:
        """Cancels jobs that have not finished. Running handlers receive a cancel request, and their outcome
        is ignored."""
        return await self.change(selection, CancelJobs(reason), progress=progress)

    async def run(self, selection: FilterOrId, *, progress: OnChangeProgress | None = None) -> BulkResult:
        """Makes scheduled jobs ready now."""
        return await self.change(selection, RunJobsNow(), progress=progress)

    async def archive(
        self,
        selection: FilterOrId,
        *,
        reason: str = "archived by hand",
        progress: OnChangeProgress | None = None,
    ) -> BulkResult:
        """Moves jobs that have not started to the failed state: they stay searchable and can be retried."""
        return await self.change(selection, ArchiveJobs(reason), progress=progress)

    async def delete(self, selection: FilterOrId, *, progress: OnChangeProgress | None = None) -> BulkResult:
        """Deletes jobs with their history. A running job is skipped: cancel it first."""
        return await self.change(selection, DeleteJobs(), progress=progress)

    async def reprioritise(
        self, selection: FilterOrId, priority: int, *, progress: OnChangeProgress | None = None
    ) -> BulkResult:
        """Sets the priority of jobs that have not started; a smaller number runs first."""
        if problem := problem_with_priority(priority):
            raise ConfigurationError(problem)
        return await self.change(selection, ReprioritiseJobs(priority), progress=progress)

    async def pause(
        self, queue: str, *, until: float | datetime | None = None, reason: str | None = None
    ) -> None:
        """Pauses a queue until the time `until` or a call of `resume`. Running jobs continue; no new job
        starts."""
        await overrides.pause_queue(await self._store_with(queue), queue, until, reason)

    async def resume(self, queue: str) -> None:
        """Ends the pause of a queue. Does nothing if the queue is not paused."""
        await (await self._store_with(queue)).resume(queue)

    async def override(
        self,
        queue: str,
        *,
        by: str,
        reason: str | None = None,
        until: float | datetime | UnsetType | None = UNSET,
        **changes: Unpack[QueueOptions],
    ) -> QueueView:
        """Overrides declared settings of a queue, and returns the queue. The override survives deploys. New
        changes are added to an existing override; `by` and `reason` then apply to all of it. `until` is the
        end of the whole override: UNSET keeps the present end, None means no end."""
        store = await self._store_with(queue)
        await overrides.override_queue(store, queue, changes, by=by, reason=reason, until=until)
        return await self.queue(queue)

    async def clear_override(self, queue: str, *names: str) -> QueueView:
        """Removes the override of the settings in `names`, or of all settings if no name is given. Returns
        the queue."""
        store = await self._store_with(queue)
        await overrides.clear_queue_override(store, queue, names)
        return await self.queue(queue)

    async def empty(self, queue: str, *, confirm: str, progress: OnChangeProgress | None = None) -> int:
        """Deletes all jobs of a queue except running ones. Returns the number of deleted jobs.

        `confirm` must repeat the queue's name. Jobs that are enqueued meanwhile stay."""
        store = await self._store()
        await require_queue(store, queue)
        if confirm != queue:
            raise ConfigurationError(
                f"confirm: must be the name of the queue, {queue!r}, is {confirm!r}; nothing was deleted"
            )
        idle_states = tuple(state for state in State if state is not State.RUNNING)
        return (await self.delete(Filter(queue=queue, states=idle_states), progress=progress)).changed

    async def history(self, queue: str, since: float | datetime) -> list[QueueMinute]:
        """Returns the queue's counters for each minute from `since` on. Minutes without events are left out.
        The store keeps eight days."""
        store = await self._store()
        await require_queue(store, queue)
        return await store.history(queue, parse_time("since", since, ConfigurationError))

    async def totals(self, *queues: str) -> dict[str, QueueTotal]:
        """Returns the counters of each queue since the store was created; without names, of all queues.
        Raises QueueNotFound.

        The counters never decrease, even when jobs are pruned."""
        store = await self._store()
        for name in queues:
            await self._store_with(name)
        names = queues or tuple(info.name for info in await store.queues())
        found = (await load_totals(store, names, ())).queues
        return {name: found.get(name, QueueTotal()) for name in names}

    async def pools(self, *, cached: bool = False) -> list[PoolStatus]:
        """Returns every pool, and an entry for each key with used units, calls, a closure or an override.

        `cached=True` is faster: forecasts and waiting jobs may come from a cache, see `overview`."""
        return pools.pool_statuses(*await self._load_forecast(cached=cached))

    async def pool(self, name: str, *, key: str | None = None, cached: bool = False) -> PoolStatus:
        """Returns one pool, or one `key` of it. Raises PoolNotFound.

        `cached=True` is faster: forecast and waiting jobs may come from a cache, see `overview`."""
        return pools.pool_status(*await self._load_forecast(cached=cached), name, key)

    async def override_pool(
        self,
        name: str,
        amounts: Mapping[str, float],
        *,
        by: str,
        key: str | None = None,
        reason: str | None = None,
        until: float | datetime | UnsetType | None = UNSET,
    ) -> PoolStatus:
        """Overrides amounts of a pool's limits, by limit name: `{"requests per minute": 5}`. Returns the
        pool, or the key.

        - `key`: overrides only this key of a keyed pool; this override wins over the override of the pool.
        - `until`: the end of the whole override; UNSET keeps the present end, None means no end.

        The override survives deploys. The amounts are added to an existing override."""
        store = await self._store()
        await override_pool(store, name, amounts, key=key, by=by, reason=reason, until=until)
        return await self.pool(name, key=key)

    async def clear_pool_override(self, name: str, *limits: str, key: str | None = None) -> PoolStatus:
        """Removes the override of the named `limits`, or of all limits if none is named. Returns the pool, or
        the key.

        `key`: removes only the override of this key."""
        store = await self._store()
        await clear_pool_override(store, name, limits, key=key)
        return await self.pool(name, key=key)

    async def close_pool(
        self,
        name: str,
        *,
        by: str,
        key: str | None = None,
        until: float | datetime | None = None,
        reason: str | None = None,
    ) -> None:
        """Closes a pool, or one `key` of it, until the time `until` or a call of `open_pool`. Running calls
        continue; no new job that needs the pool starts."""
        await close_pool(await self._store(), name, key, by=by, reason=reason, until=until)

    async def open_pool(self, name: str, *, key: str | None = None) -> None:
        """Opens a pool, or one `key` of it, that an operator or its breaker closed. No probe is needed."""
        store = await self._store()
        await pools.require_pool(store, name)
        await store.open_pool(name, key=key)

    async def pool_history(self, name: str, since: float | datetime) -> list[PoolMinute]:
        """Returns the pool's calls, units and refusals for each minute from `since` on. Minutes without calls
        are left out. The store keeps eight days."""
        store = await self._store()
        await pools.require_pool(store, name)
        return await store.pool_history(name, parse_time("since", since, ConfigurationError))

    async def flows(
        self,
        *,
        name: str | None = None,
        states: Sequence[FlowState | str] | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> FlowPage:
        """Returns one page of flows, newest first. Pass the page's `cursor` to get the next page."""
        return await flows.find_flows(await self._store(), name, states, limit, cursor)

    async def flow_counts(self) -> dict[FlowState, int]:
        """Returns the number of flows in every state, including zeros."""
        counts = await (await self._store()).document_counts(DocumentKind.FLOW)
        return {state: counts.get(state, 0) for state in FlowState}

    async def flow(self, id: str) -> FlowView:  # noqa: A002 - the word for it
        """Returns one flow with its steps. Raises FlowNotFound."""
        return make_flow_view(await find_flow(await self._store(), id))

    async def cancel_flow(self, id: str, *, reason: str = "cancelled by hand") -> bool:  # noqa: A002 - the word for it
        """Cancels a flow and its jobs; no new step starts. Returns False if the flow had already ended."""
        return await cancel_flow(await self._store(), id, reason, self._emit_flow_ended)

    async def retry_flow(self, id: str) -> bool:  # noqa: A002 - the word for it
        """Runs the failed and cancelled steps of a flow again, and continues the flow from there. Returns
        False if the flow has not failed."""
        return await retry_flow(await self._store(), id, self._emit_flow_ended)

    async def workers(self) -> list[WorkerInfo]:
        """Returns the workers that are alive."""
        return await (await self._store()).workers()

    async def overview(self, *, cached: bool = False) -> Overview:
        """Returns everything that a live display shows: queues, pools, workers and the store.

        `cached=True` is for displays that refresh every second. A forecast is then reused for ten times as
        long as its computation took, and past minutes of the history for ten minutes."""
        store = await self._store()
        snapshot, forecasts = await self._load_forecast(cached=cached)
        return Overview(
            now=(await store.read_clock()).wall,
            queues=tuple(
                await load_queue_views(
                    store, forecasts, self._history_cache if cached else DailyHistoryCache()
                )
            ),
            pools=tuple(pools.pool_statuses(snapshot, forecasts)),
            workers=tuple(await store.workers()),
            store=await store.describe(),
        )

    async def _load_forecast(self, *, cached: bool) -> tuple[StoreSnapshot, Forecasts]:
        snapshot, self._cached_forecast = await load_forecast(
            await self._store(), self._cached_forecast if cached else None
        )
        return snapshot, self._cached_forecast.forecasts

    async def _store_with(self, queue: str) -> Store:
        """Returns the store. Raises QueueNotFound if neither the store nor a task of the application has the
        queue."""
        store = await self._store()
        if all(task.queue != queue for task in self._tasks.values()):
            await require_queue(store, queue)
        return store


def _check_scan_limit(scan_limit: int | None) -> None:
    if scan_limit is not None and scan_limit < 1:
        raise ConfigurationError(f"scan_limit: must be 1 or more, or None for any number, is {scan_limit}")
