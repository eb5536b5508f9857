"""The inspector: look at queues and jobs, and change what they do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Unpack

from msgspec import UNSET, UnsetType

from tidemill.contract.pools import PoolMinute
from tidemill.contract.reader import LOOKS, Minute, Page, WorkerInfo
from tidemill.contract.store import Store
from tidemill.core.changes import Archive, Cancel, Change, Delete, Reprioritise, RetryNow, RunNow
from tidemill.core.courses import Kind
from tidemill.core.filters import Filter, checked
from tidemill.core.graph_state import FlowState
from tidemill.core.job import Job, problem_with_priority
from tidemill.core.queue_options import QueueOptions
from tidemill.core.states import State
from tidemill.errors import ConfigurationError, JobNotFound
from tidemill.flows.steering import cancel, find_flow, retry
from tidemill.flows.telling import tell_ended
from tidemill.flows.views import FlowView, view_of
from tidemill.inspect import bulk, flows, pools, steering, steps
from tidemill.inspect.bulk import Progress
from tidemill.inspect.days import Days
from tidemill.inspect.draining import Drains
from tidemill.inspect.explanation import Explanation, explain
from tidemill.inspect.facts import find_job, gather
from tidemill.inspect.flows import FlowPage
from tidemill.inspect.outlook import Outlook, look_out
from tidemill.inspect.pools import PoolStatus
from tidemill.inspect.queue_views import require, view_all, view_one
from tidemill.inspect.situation import Situation
from tidemill.inspect.unmade import explain_step
from tidemill.inspect.views import Changed, Count, JobView, Overview, QueueView
from tidemill.tallies.totals import QueueTotal, totals
from tidemill.tasks.definition import TaskDefinition
from tidemill.telemetry.signals import Signals
from tidemill.times import read_time

Wanted = Filter | str
"""Which jobs: those a filter means, or the one with that id."""

MOST_AT_ONCE = 10_000


class Inspector:
    """`app.inspect`. Every method says what a store knows at that moment; programs without an event
    loop call `app.run_sync(app.inspect.queue("feeds"))`."""

    def __init__(
        self, store: Callable[[], Awaitable[Store]], tasks: Mapping[str, TaskDefinition], signals: Signals
    ) -> None:
        self._store, self._tasks = store, tasks
        self._tell_ended = partial(tell_ended, signals)
        self._outlook: Outlook | None = None
        self._days = Days()

    async def queues(self, *, sparing: bool = False) -> list[QueueView]:
        """Every queue that was declared or has had a job, by name. sparing: as of `overview`."""
        store = await self._store()
        _, found = await self._look_out(sparing=sparing)
        return await view_all(store, found, self._days if sparing else Days())

    async def queue(self, name: str, *, sparing: bool = False) -> QueueView:
        """Raises QueueNotFound, naming those there are. sparing: as of `overview`."""
        store = await self._store()
        await require(store, name)
        _, found = await self._look_out(sparing=sparing)
        return await view_one(store, name, found, self._days if sparing else Days())

    async def find(
        self,
        wanted: Filter,
        *,
        limit: int = 100,
        cursor: int | None = None,
        looks: int | None = LOOKS,
    ) -> Page:
        """Newest first; `cursor` of one page continues with the next. A page for which so many jobs were
        looked at ends there and is `partial`, so that it takes no longer the more jobs there are; with
        looks=None it goes on until it is full."""
        _refuse_none(looks)
        if not 1 <= limit <= MOST_AT_ONCE:
            raise ConfigurationError(
                f"limit: must lie between 1 and {MOST_AT_ONCE}, is {limit}; each() goes through any number"
            )
        return await (await self._store()).find(checked(wanted), limit, cursor, looks)

    async def each(self, wanted: Filter) -> AsyncIterator[Job]:
        """Every matching job once, newest first, whatever is enqueued meanwhile."""
        async for job in bulk.each(await self._store(), checked(wanted)):
            yield job

    async def count(self, wanted: Filter, *, looks: int | None = LOOKS) -> Count:
        """By queue and states exact, and at once. By anything else so many jobs are looked at, and if there
        are more the count says so; with looks=None it is exact, however many have to be read."""
        _refuse_none(looks)
        return await bulk.count(await self._store(), checked(wanted), looks)

    async def counts(self) -> dict[str, dict[State, int]]:
        """Jobs by queue and state, exact and at once."""
        return await (await self._store()).counts()

    async def job(self, id: str) -> JobView:  # noqa: A002 - the word for it
        """Raises JobNotFound."""
        store = await self._store()
        job = await find_job(store, id)
        attempts, log = await store.attempts(id), await store.logs(id)
        checkpoints = tuple(steps.view(checkpoint, job) for checkpoint in await store.checkpoints(id))
        return JobView(job=job, attempts=tuple(attempts), log=tuple(log), checkpoints=checkpoints)

    async def explain(self, id: str) -> Explanation:  # noqa: A002 - the word for it
        """Why the job waits, or what it does; of a job that a step of a flow will become, what it waits for.
        Raises JobNotFound."""
        store = await self._store()
        try:
            return explain(await gather(store, self._tasks, id))
        except JobNotFound:
            if (of_step := await explain_step(store, self._tasks, id)) is None:
                raise
            return of_step

    async def change(self, wanted: Wanted, change: Change, *, progress: Progress | None = None) -> Changed:
        """Apply a change to every job that is meant, a few hundred at a time, oldest first. A job that no
        longer matches when its turn comes is left alone. Repeating it is harmless: it goes on where it
        stopped. By an id it raises JobNotFound when there is no such job."""
        store = await self._store()
        meant = Filter(ids=(wanted,)) if isinstance(wanted, str) else checked(wanted)
        if meant == Filter(time=meant.time):  # of what the times are says nothing without one
            raise ConfigurationError(
                "the filter is empty and would change every job; say which are meant, and if it is all of "
                "them Filter(states=tuple(State))"
            )
        changed = await bulk.change(store, meant, change, progress)
        if isinstance(wanted, str) and not changed.changed + changed.unchanged:
            raise JobNotFound(f"there is no job {wanted!r}: the id is wrong, or it was pruned")
        return changed

    async def retry(self, wanted: Wanted, *, progress: Progress | None = None) -> Changed:
        """Ended jobs run again, with all their attempts."""
        return await self.change(wanted, RetryNow(), progress=progress)

    async def cancel(
        self, wanted: Wanted, *, reason: str = "cancelled by hand", progress: Progress | None = None
    ) -> Changed:
        """Jobs that have not ended end; running ones are told to stop, and their outcome is refused."""
        return await self.change(wanted, Cancel(reason), progress=progress)

    async def run(self, wanted: Wanted, *, progress: Progress | None = None) -> Changed:
        """Scheduled jobs become ready now."""
        return await self.change(wanted, RunNow(), progress=progress)

    async def archive(
        self, wanted: Wanted, *, reason: str = "archived by hand", progress: Progress | None = None
    ) -> Changed:
        """Jobs that have not started join the failed ones: kept, searchable, retryable."""
        return await self.change(wanted, Archive(reason), progress=progress)

    async def delete(self, wanted: Wanted, *, progress: Progress | None = None) -> Changed:
        """The records go. A running job is left alone: cancel it first."""
        return await self.change(wanted, Delete(), progress=progress)

    async def reprioritise(
        self, wanted: Wanted, priority: int, *, progress: Progress | None = None
    ) -> Changed:
        """Jobs that have not started get that priority; a smaller one runs first."""
        if problem := problem_with_priority(priority):
            raise ConfigurationError(problem)
        return await self.change(wanted, Reprioritise(priority), progress=progress)

    async def pause(
        self, queue: str, *, until: float | datetime | None = None, reason: str | None = None
    ) -> None:
        """Running jobs go on; nothing new of the queue starts until `until` or `resume`."""
        await steering.pause(await self._store_with(queue), queue, until, reason)

    async def resume(self, queue: str) -> None:
        """End a pause. Harmless when there is none."""
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
        """Put settings over those code declared; no deploy erases them. What is set here joins the
        override that holds, which from then on is `by` you, for your `reason`. `until` ends all of it;
        left out, the end it has stays; None takes the end away. The answer shows what holds now."""
        store = await self._store_with(queue)
        await steering.override(store, queue, changes, by=by, reason=reason, until=until)
        return await self.queue(queue)

    async def clear_override(self, queue: str, *names: str) -> QueueView:
        """The named settings follow the code again; without names, all of them."""
        store = await self._store_with(queue)
        await steering.clear_override(store, queue, names)
        return await self.queue(queue)

    async def empty(self, queue: str, *, confirm: str, progress: Progress | None = None) -> int:
        """Delete every job of a queue that does not run, ended ones too. `confirm` is the queue's name once
        more. Jobs that are enqueued meanwhile stay. Answers how many are gone."""
        store = await self._store()
        await require(store, queue)
        if confirm != queue:
            raise ConfigurationError(
                f"confirm: must be the name of the queue, {queue!r}, is {confirm!r}; nothing was deleted"
            )
        still = tuple(state for state in State if state is not State.RUNNING)
        return (await self.delete(Filter(queue=queue, states=still), progress=progress)).changed

    async def history(self, queue: str, since: float | datetime) -> list[Minute]:
        """Minute by minute, quiet ones left out; eight days are kept."""
        store = await self._store()
        await require(store, queue)
        return await store.history(queue, read_time("since", since, ConfigurationError))

    async def totals(self, *queues: str) -> dict[str, QueueTotal]:
        """What became of the jobs of these queues, or of every one, since there is a store: counters that
        never fall, whatever is pruned or removed. Raises QueueNotFound."""
        store = await self._store()
        for name in queues:
            await self._store_with(name)
        names = queues or tuple(info.name for info in await store.queues())
        found = (await totals(store, names, ())).queues
        return {name: found.get(name, QueueTotal()) for name in names}

    async def pools(self, *, sparing: bool = False) -> list[PoolStatus]:
        """Every declared pool by name, and of those with keys each that has something taken or closed.
        sparing: as of `overview`."""
        return pools.status_of_all(*await self._look_out(sparing=sparing))

    async def pool(self, name: str, *, key: str | None = None, sparing: bool = False) -> PoolStatus:
        """Raises PoolNotFound, naming those there are."""
        return pools.status_of_one(*await self._look_out(sparing=sparing), name, key)

    async def override_pool(
        self,
        name: str,
        amounts: Mapping[str, float],
        *,
        by: str,
        reason: str | None = None,
        until: float | datetime | UnsetType | None = UNSET,
    ) -> PoolStatus:
        """Put other amounts over those code declared, by the limit's name: `{"requests per minute": 5}`. As
        with queues they join the override that holds, no deploy erases them, and `until` ends all of it."""
        store = await self._store()
        await pools.override(store, name, amounts, by=by, reason=reason, until=until)
        return await self.pool(name)

    async def clear_pool_override(self, name: str, *limits: str) -> PoolStatus:
        """The named limits follow the code again; without names, all of them."""
        store = await self._store()
        await pools.clear_override(store, name, limits)
        return await self.pool(name)

    async def close_pool(
        self,
        name: str,
        *,
        by: str,
        key: str | None = None,
        until: float | datetime | None = None,
        reason: str | None = None,
    ) -> None:
        """Calls under way go on; no job that needs the pool starts until `until` or `open_pool`."""
        await pools.close(await self._store(), name, key, by=by, reason=reason, until=until)

    async def open_pool(self, name: str, *, key: str | None = None) -> None:
        """Whoever closed it, a person or its breaker: it is open, without a probe. Harmless when it is."""
        store = await self._store()
        await pools.require(store, name)
        await store.open_pool(name, key=key)

    async def pool_history(self, name: str, since: float | datetime) -> list[PoolMinute]:
        """Calls, units and refusals minute by minute, quiet ones left out; eight days are kept."""
        store = await self._store()
        await pools.require(store, name)
        return await store.pool_history(name, read_time("since", since, ConfigurationError))

    async def flows(
        self,
        *,
        name: str | None = None,
        states: Sequence[FlowState | str] | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> FlowPage:
        """Flows, newest first; `cursor` of one page continues with the next."""
        return await flows.find(await self._store(), name, states, limit, cursor)

    async def flow_counts(self) -> dict[FlowState, int]:
        """How many flows are in each state, states without any included."""
        counts = await (await self._store()).course_counts(Kind.FLOW)
        return {state: counts.get(state, 0) for state in FlowState}

    async def flow(self, id: str) -> FlowView:  # noqa: A002 - the word for it
        """One flow with its steps. Raises FlowNotFound."""
        return view_of(await find_flow(await self._store(), id))

    async def cancel_flow(self, id: str, *, reason: str = "cancelled by hand") -> bool:  # noqa: A002 - the word for it
        """Nothing new of the flow starts, and its jobs are cancelled. False: it had ended."""
        return await cancel(await self._store(), id, reason, self._tell_ended)

    async def retry_flow(self, id: str) -> bool:  # noqa: A002 - the word for it
        """What failed or was cancelled goes again, and the flow from there. False: it has not failed."""
        return await retry(await self._store(), id, self._tell_ended)

    async def workers(self) -> list[WorkerInfo]:
        """Those that are alive."""
        return await (await self._store()).workers()

    async def overview(self, *, sparing: bool = False) -> Overview:
        """What a live display shows. sparing: for one that asks every second. A forecast that took long is
        shown for ten times as long, with how many wait for a pool, before this inspector makes another; and
        minutes that are over are read once."""
        store = await self._store()
        situation, found = await self._look_out(sparing=sparing)
        return Overview(
            now=(await store.read_clock()).wall,
            queues=tuple(await view_all(store, found, self._days if sparing else Days())),
            pools=tuple(pools.status_of_all(situation, found)),
            workers=tuple(await store.workers()),
            store=await store.describe(),
        )

    async def _look_out(self, *, sparing: bool) -> tuple[Situation, Drains]:
        situation, self._outlook = await look_out(await self._store(), self._outlook if sparing else None)
        return situation, self._outlook.drains

    async def _store_with(self, queue: str) -> Store:
        """A queue that a task is on may be steered before it has had a job."""
        store = await self._store()
        if all(task.queue != queue for task in self._tasks.values()):
            await require(store, queue)
        return store


def _refuse_none(looks: int | None) -> None:
    if looks is not None and looks < 1:
        raise ConfigurationError(f"looks: must be 1 or more, or None for any number, is {looks}")
