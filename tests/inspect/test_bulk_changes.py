"""Bulk changes: in short transactions, only to jobs that still match, harmless when repeated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from tests.inspect.support import ManualWorker
from tidemill import Filter, Inspector, RetryJobs, State, Task, Tidemill, Unique
from tidemill.contract.store import Store
from tidemill.core.jobs import Error
from tidemill.core.operator_changes import AmendResult, OperatorChange
from tidemill.core.outcomes import FinalFailure, Success
from tidemill.errors import StoreUnavailable
from tidemill.inspect import jobs as inspect_jobs
from tidemill.telemetry.listeners import Signals
from tidemill.testing import ManualClock

BOOM = Error("ValueError", "boom")
FAILED = Filter(queue="feeds", states=(State.FAILED,))
Refresh = Task[[str], None]


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect_jobs, "JOBS_PER_PAGE", 3)
    monkeypatch.setattr(inspect_jobs, "JOBS_PER_CHANGE", 2)


class InterruptingStore:
    """A real store that runs a callback before each amend."""

    def __init__(self, store: Store, happens: Callable[[int], Awaitable[object]]) -> None:
        self.store, self.happens = store, happens
        self.steps: list[tuple[str, ...] | None] = []

    async def amend(self, wanted: Filter, change: OperatorChange, limit: int = 1000) -> AmendResult:
        self.steps.append(wanted.ids)
        await self.happens(len(self.steps))
        return await self.store.amend(wanted, change, limit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def inspector(self) -> Inspector:
        async def here() -> Store:
            return cast("Store", self)

        return Inspector(here, {}, Signals())


async def fail_some(refresh: Refresh, manual_worker: ManualWorker, count: int) -> list[str]:
    jobs = [(await refresh.enqueue(f"{number}")).id for number in range(count)]
    await manual_worker.run(*[FinalFailure(BOOM)] * count)
    return jobs


async def nothing(_step: int) -> None: ...


async def test_transactions_are_short_and_progress_is_reported(
    app: Tidemill, refresh: Refresh, manual_worker: ManualWorker
) -> None:
    jobs = await fail_some(refresh, manual_worker, 5)
    store, progress = InterruptingStore(app.store, nothing), list[int]()
    changed = await store.inspector().retry(FAILED, progress=progress.append)
    assert store.steps == [tuple(jobs[0:2]), tuple(jobs[2:4]), tuple(jobs[4:5])]
    assert progress == [2, 4, 5]
    assert (changed.changed, changed.unchanged, changed.moved) == (5, 0, 0)
    assert changed.ids == tuple(jobs)


async def test_a_job_retried_by_someone_meanwhile_is_not_deleted(
    app: Tidemill, app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker
) -> None:
    jobs = await fail_some(refresh, manual_worker, 5)

    async def somebody(step: int) -> None:
        if step == 2:
            await app.store.amend(Filter(ids=(jobs[0], jobs[3])), RetryJobs())

    changed = await InterruptingStore(app.store, somebody).inspector().delete(FAILED)
    assert (changed.changed, changed.unchanged, changed.moved) == (4, 0, 1)
    assert jobs[3] not in changed.ids
    assert [(job.id, job.state) for job in (await app_inspector.find(Filter())).jobs] == [
        (jobs[3], State.READY)
    ]


async def test_a_filter_without_states_follows_a_job_through_its_states(
    app: Tidemill, app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker
) -> None:
    jobs = [(await refresh.enqueue(f"{number}")).id for number in range(3)]

    async def starts(step: int) -> None:
        if step == 1:
            await manual_worker.claim()

    changed = await InterruptingStore(app.store, starts).inspector().archive(Filter(queue="feeds"))
    assert changed.unchanged_ids == (jobs[0],)
    assert changed.ids == tuple(jobs[1:])


async def test_repeating_a_change_changes_nothing_more(
    app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker
) -> None:
    await fail_some(refresh, manual_worker, 5)
    assert (await app_inspector.retry(FAILED)).changed == 5
    again = await app_inspector.retry(FAILED)
    assert (again.changed, again.unchanged, again.moved, again.ids) == (0, 0, 0, ())


async def test_an_interrupted_change_is_finished_by_repeating_it(
    app: Tidemill, app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker
) -> None:
    await fail_some(refresh, manual_worker, 5)

    async def breaks(step: int) -> None:
        if step == 2:
            raise StoreUnavailable("gone")

    with pytest.raises(StoreUnavailable):
        await InterruptingStore(app.store, breaks).inspector().retry(FAILED)
    assert (await app_inspector.count(FAILED)).jobs == 3
    assert (await app_inspector.retry(FAILED)).changed == 3
    assert (await app_inspector.count(Filter(states=(State.READY,)))).jobs == 5


async def test_a_job_that_fails_again_at_once_is_retried_once(
    app: Tidemill, app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker, clock: ManualClock
) -> None:
    """Otherwise retrying jobs that fail at once would never end."""
    await fail_some(refresh, manual_worker, 5)

    async def fails(step: int) -> None:
        clock.advance(1)
        if step > 1:
            await manual_worker.run(FinalFailure(BOOM), FinalFailure(BOOM))

    changed = await InterruptingStore(app.store, fails).inspector().retry(FAILED)
    assert changed.changed == 5
    assert (await app_inspector.count(FAILED)).jobs == 4


async def test_many_and_repeated_ids_are_changed_once(
    app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker
) -> None:
    jobs = await fail_some(refresh, manual_worker, 5)
    named = Filter(ids=(*jobs, "nobody", *jobs), states=(State.FAILED,))
    changed = await app_inspector.retry(named)
    assert (changed.changed, changed.unchanged, changed.moved) == (5, 0, 0)
    assert changed.ids == tuple(jobs)


async def test_a_filter_without_matches_reports_no_progress(
    app_inspector: Inspector, refresh: Refresh
) -> None:
    await refresh.enqueue("a")
    progress: list[int] = []
    changed = await app_inspector.delete(FAILED, progress=progress.append)
    assert (changed.changed, progress) == (0, [])


async def test_empty_deletes_waiting_successors_and_leaves_new_jobs(
    app: Tidemill, app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker
) -> None:
    unique = refresh.using(unique=Unique("feed-7", on_conflict="rerun"))
    running = await unique.enqueue("first")
    [held] = await manual_worker.claim()
    waiting = await unique.enqueue("second")
    assert (await app_inspector.job(waiting.id)).job.state is State.WAITING
    for number in range(3):
        await refresh.enqueue(f"{number}")
    new: list[str] = []

    async def enqueued(_step: int) -> None:
        new.append((await refresh.enqueue("meanwhile")).id)

    progress: list[int] = []
    inspector = InterruptingStore(app.store, enqueued).inspector()
    assert await inspector.empty("feeds", confirm="feeds", progress=progress.append) == 4
    assert progress == [2, 4]
    assert {job.id for job in (await app_inspector.find(Filter())).jobs} == {running.id, *new}
    await manual_worker.settle(held, Success())
    assert (await app_inspector.job(running.id)).job.state is State.DONE


async def test_a_job_that_starts_while_its_queue_is_emptied_runs_on(
    app: Tidemill, app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker
) -> None:
    job = await refresh.enqueue("a")

    async def starts(_step: int) -> None:
        await manual_worker.claim()

    assert await InterruptingStore(app.store, starts).inspector().empty("feeds", confirm="feeds") == 0
    assert (await app_inspector.job(job.id)).job.state is State.RUNNING
