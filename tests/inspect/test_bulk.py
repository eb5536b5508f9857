"""Changes to many jobs: in short steps, only to those that are still meant, harmless when repeated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from tests.inspect.support import Hand
from tidemill import Filter, Inspector, RetryNow, State, Task, Tidemill, Unique
from tidemill.contract.store import Store
from tidemill.core.changes import Amended, Change
from tidemill.core.job import Error
from tidemill.core.outcomes import Done, Fail
from tidemill.errors import StoreUnavailable
from tidemill.inspect import bulk
from tidemill.telemetry.signals import Signals
from tidemill.testing import ManualClock

BOOM = Error("ValueError", "boom")
FAILED = Filter(queue="feeds", states=(State.FAILED,))
Refresh = Task[[str], None]


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "PAGE", 3)
    monkeypatch.setattr(bulk, "CHUNK", 2)


class Between:
    """The real store, with something happening before each amend."""

    def __init__(self, store: Store, happens: Callable[[int], Awaitable[object]]) -> None:
        self.store, self.happens = store, happens
        self.steps: list[tuple[str, ...] | None] = []

    async def amend(self, wanted: Filter, change: Change, limit: int = 1000) -> Amended:
        self.steps.append(wanted.ids)
        await self.happens(len(self.steps))
        return await self.store.amend(wanted, change, limit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def inspector(self) -> Inspector:
        async def here() -> Store:
            return cast("Store", self)

        return Inspector(here, {}, Signals())


async def fail_some(refresh: Refresh, hand: Hand, count: int) -> list[str]:
    jobs = [(await refresh.enqueue(f"{number}")).id for number in range(count)]
    await hand.run(*[Fail(BOOM)] * count)
    return jobs


async def nothing(_step: int) -> None: ...


async def test_no_step_is_long_and_progress_is_told(app: Tidemill, refresh: Refresh, hand: Hand) -> None:
    jobs = await fail_some(refresh, hand, 5)
    store, told = Between(app.store, nothing), list[int]()
    changed = await store.inspector().retry(FAILED, progress=told.append)
    assert store.steps == [tuple(jobs[0:2]), tuple(jobs[2:4]), tuple(jobs[4:5])]
    assert told == [2, 4, 5]
    assert (changed.changed, changed.unchanged, changed.moved) == (5, 0, 0)
    assert changed.ids == tuple(jobs)


async def test_a_job_retried_by_someone_meanwhile_is_not_deleted(
    app: Tidemill, look: Inspector, refresh: Refresh, hand: Hand
) -> None:
    jobs = await fail_some(refresh, hand, 5)

    async def somebody(step: int) -> None:
        if step == 2:
            await app.store.amend(Filter(ids=(jobs[0], jobs[3])), RetryNow())

    changed = await Between(app.store, somebody).inspector().delete(FAILED)
    assert (changed.changed, changed.unchanged, changed.moved) == (4, 0, 1)
    assert jobs[3] not in changed.ids
    assert [(job.id, job.state) for job in (await look.find(Filter())).jobs] == [(jobs[3], State.READY)]


async def test_a_job_that_changes_state_where_none_was_asked_for_is_still_meant(
    app: Tidemill, look: Inspector, refresh: Refresh, hand: Hand
) -> None:
    jobs = [(await refresh.enqueue(f"{number}")).id for number in range(3)]

    async def starts(step: int) -> None:
        if step == 1:
            await hand.claim()

    changed = await Between(app.store, starts).inspector().archive(Filter(queue="feeds"))
    assert changed.unchanged_ids == (jobs[0],)
    assert changed.ids == tuple(jobs[1:])


async def test_repeating_a_change_changes_nothing_more(look: Inspector, refresh: Refresh, hand: Hand) -> None:
    await fail_some(refresh, hand, 5)
    assert (await look.retry(FAILED)).changed == 5
    again = await look.retry(FAILED)
    assert (again.changed, again.unchanged, again.moved, again.ids) == (0, 0, 0, ())


async def test_a_change_that_broke_off_is_finished_by_repeating_it(
    app: Tidemill, look: Inspector, refresh: Refresh, hand: Hand
) -> None:
    await fail_some(refresh, hand, 5)

    async def breaks(step: int) -> None:
        if step == 2:
            raise StoreUnavailable("gone")

    with pytest.raises(StoreUnavailable):
        await Between(app.store, breaks).inspector().retry(FAILED)
    assert (await look.count(FAILED)).jobs == 3
    assert (await look.retry(FAILED)).changed == 3
    assert (await look.count(Filter(states=(State.READY,)))).jobs == 5


async def test_a_job_that_fails_again_at_once_is_retried_once(
    app: Tidemill, look: Inspector, refresh: Refresh, hand: Hand, clock: ManualClock
) -> None:
    """Otherwise a retry of everything that fails at once would never end."""
    await fail_some(refresh, hand, 5)

    async def fails(step: int) -> None:
        clock.advance(1)
        if step > 1:
            await hand.run(Fail(BOOM), Fail(BOOM))

    changed = await Between(app.store, fails).inspector().retry(FAILED)
    assert changed.changed == 5
    assert (await look.count(FAILED)).jobs == 4


async def test_by_ids_however_many_and_however_often_named(
    look: Inspector, refresh: Refresh, hand: Hand
) -> None:
    jobs = await fail_some(refresh, hand, 5)
    named = Filter(ids=(*jobs, "nobody", *jobs), states=(State.FAILED,))
    changed = await look.retry(named)
    assert (changed.changed, changed.unchanged, changed.moved) == (5, 0, 0)
    assert changed.ids == tuple(jobs)


async def test_nobody_meant_nothing_told(look: Inspector, refresh: Refresh) -> None:
    await refresh.enqueue("a")
    told: list[int] = []
    changed = await look.delete(FAILED, progress=told.append)
    assert (changed.changed, told) == (0, [])


async def test_empty_takes_waiting_successors_along_and_leaves_what_is_enqueued_meanwhile(
    app: Tidemill, look: Inspector, refresh: Refresh, hand: Hand
) -> None:
    unique = refresh.using(unique=Unique("feed-7", on_conflict="rerun"))
    running = await unique.enqueue("first")
    [held] = await hand.claim()
    waiting = await unique.enqueue("second")
    assert (await look.job(waiting.id)).job.state is State.WAITING
    for number in range(3):
        await refresh.enqueue(f"{number}")
    new: list[str] = []

    async def enqueued(_step: int) -> None:
        new.append((await refresh.enqueue("meanwhile")).id)

    told: list[int] = []
    inspector = Between(app.store, enqueued).inspector()
    assert await inspector.empty("feeds", confirm="feeds", progress=told.append) == 4
    assert told == [2, 4]
    assert {job.id for job in (await look.find(Filter())).jobs} == {running.id, *new}
    await hand.settle(held, Done())
    assert (await look.job(running.id)).job.state is State.DONE


async def test_a_job_that_starts_while_its_queue_is_emptied_runs_on(
    app: Tidemill, look: Inspector, refresh: Refresh, hand: Hand
) -> None:
    job = await refresh.enqueue("a")

    async def starts(_step: int) -> None:
        await hand.claim()

    assert await Between(app.store, starts).inspector().empty("feeds", confirm="feeds") == 0
    assert (await look.job(job.id)).job.state is State.RUNNING
