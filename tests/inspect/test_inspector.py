"""Q7, item by item.

Queue info: size, active, pending, scheduled, retry, archived, completed, processed, failed, latency,
last processed. Jobs: list (also by time range), get, cancel, delete, archive and run one or all of a
state. Queues: pause, unpause, and empty with the name as confirmation."""

from __future__ import annotations

import pytest

from tests.inspect.support import ManualWorker
from tidemill import ConfigurationError, Filter, Inspector, JobNotFound, QueueNotFound, State, Task, Tidemill
from tidemill.core.claims import Settlement
from tidemill.core.jobs import Error
from tidemill.core.outcomes import Cancellation, FinalFailure, RetryLater, Success, WriteAnswer
from tidemill.testing import ManualClock

BOOM = Error("ValueError", "boom")
Refresh = Task[[str], None]


async def ids(app_inspector: Inspector, wanted: Filter) -> set[str]:
    return {job.id for job in (await app_inspector.find(wanted)).jobs}


async def state(app_inspector: Inspector, job: str) -> State:
    return (await app_inspector.job(job)).job.state


async def test_queue_info_q7(
    app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker, clock: ManualClock
) -> None:
    """Every number of the requirement, each with a different value."""
    for number in range(15):
        await refresh.enqueue(f"{number}")
    clock.advance(2)
    await manual_worker.run(
        Success(), Success(), Success(), Success(), FinalFailure(BOOM), FinalFailure(BOOM), FinalFailure(BOOM)
    )
    await manual_worker.run(RetryLater(60, BOOM), RetryLater(90, BOOM), Cancellation("not needed"))
    await manual_worker.claim(1)
    for number in range(3):
        await refresh.using(delay=300 + number).enqueue("later")
    clock.advance(3)

    queue = await app_inspector.queue("feeds")

    assert queue.name == "feeds"
    assert queue.size == 10  # 4 ready, 1 running, 5 scheduled
    assert queue.counts == {
        State.READY: 4,  # pending
        State.RUNNING: 1,  # active
        State.SCHEDULED: 5,  # scheduled, of which …
        State.WAITING: 0,
        State.DONE: 4,  # completed
        State.FAILED: 3,  # archived
        State.CANCELLED: 1,
    }
    assert queue.retrying == 2  # … retry
    assert queue.processed == 7
    assert queue.failed == 3
    assert queue.retried == 2
    assert queue.cancelled == 1
    assert queue.reclaimed == 0
    assert queue.latency == pytest.approx(5)
    assert queue.last_ended == pytest.approx(clock.wall() - 3)
    assert queue.next_due == pytest.approx(clock.wall() - 3 + 60)
    assert queue.workers == ("hand-feeds",)
    assert queue.pause is None


async def test_daily_counters_cover_24_hours_q7(
    app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker, clock: ManualClock
) -> None:
    await refresh.enqueue("a")
    await manual_worker.run(Success())
    clock.advance(23 * 3600)
    assert (await app_inspector.queue("feeds")).processed == 1
    clock.advance(3600 + 61)
    assert (await app_inspector.queue("feeds")).processed == 0


async def test_reclaimed_jobs_are_counted_q7(
    app: Tidemill, app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker, clock: ManualClock
) -> None:
    await refresh.enqueue("a")
    await manual_worker.claim()
    clock.advance(60)
    await app.store.reclaim()
    queue = await app_inspector.queue("feeds")
    assert (queue.reclaimed, queue.counts[State.READY], queue.workers) == (1, 1, ())


async def test_every_queue_by_name_q7(app: Tidemill, app_inspector: Inspector, refresh: Refresh) -> None:
    app.queue("songs")
    await refresh.enqueue("a")
    assert [queue.name for queue in await app_inspector.queues()] == ["feeds", "songs"]
    assert [queue.size for queue in await app_inspector.queues()] == [1, 0]
    await ManualWorker(app.store, "songs").beat()
    assert [queue.workers for queue in await app_inspector.queues()] == [(), ("hand-songs",)]


async def test_a_mistyped_queue_lists_the_known_ones_q7(app: Tidemill, app_inspector: Inspector) -> None:
    app.queue("songs")
    for wrong in (
        app_inspector.queue("fed"),
        app_inspector.pause("fed"),
        app_inspector.resume("fed"),
        app_inspector.override("fed", by="me", weight=2),
        app_inspector.clear_override("fed"),
        app_inspector.empty("fed", confirm="fed"),
        app_inspector.history("fed", 0),
    ):
        with pytest.raises(QueueNotFound, match="there is no queue 'fed'; there are: feeds, songs"):
            await wrong
    assert [queue.name for queue in await app_inspector.queues()] == ["feeds", "songs"]


async def test_list_by_state_and_by_time_range_q7(
    app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker, clock: ManualClock
) -> None:
    began = clock.wall()
    early = await refresh.enqueue("early")
    clock.advance(100)
    late = await refresh.enqueue("late")
    later = await refresh.using(delay=3600).enqueue("later")
    assert await ids(app_inspector, Filter(queue="feeds")) == {early.id, late.id, later.id}
    assert await ids(app_inspector, Filter(states=(State.SCHEDULED,))) == {later.id}
    assert await ids(app_inspector, Filter(until=began + 100)) == {early.id}
    assert await ids(app_inspector, Filter(since=began + 100)) == {late.id, later.id}
    assert await ids(app_inspector, Filter(since=began + 1000, time="due")) == {later.id}
    clock.advance(50)
    [ended] = await manual_worker.run(Success())
    assert await ids(app_inspector, Filter(since=began + 150, time="finished")) == {ended}


async def test_get_a_job_with_its_attempts_and_log_q7(
    app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker
) -> None:
    job = await refresh.enqueue("https://a.example")
    [held] = await manual_worker.claim()
    await manual_worker.say(held, "first", "second", progress=0.5)
    await manual_worker.settle(held, RetryLater(0, BOOM))
    [held] = await manual_worker.claim()
    await manual_worker.settle(held, Success(b"7"))
    view = await app_inspector.job(job.id)
    assert view.job.state is State.DONE
    assert view.payload == {"feed": "https://a.example"}
    assert view.result == 7
    assert [attempt.error for attempt in view.attempts] == [BOOM]
    assert [line.line for line in view.log] == ["first", "second"]
    with pytest.raises(JobNotFound, match="there is no job 'nobody'"):
        await app_inspector.job("nobody")


async def test_cancel_a_running_job_q7(
    app: Tidemill, app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker
) -> None:
    job = await refresh.enqueue("a")
    [held] = await manual_worker.claim()
    changed = await app_inspector.cancel(job.id, reason="wrong feed")
    assert changed.ids == (job.id,)
    view = await app_inspector.job(job.id)
    assert (view.job.state, view.job.reason) == (State.CANCELLED, "wrong feed")
    settled = await app.store.settle([Settlement(held.id, held.fence, held.claim, Success())])
    assert settled.answers == [WriteAnswer.STALE]


async def test_delete_one_and_all_of_a_state_q7(
    app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker
) -> None:
    jobs = [await refresh.enqueue(f"{number}") for number in range(5)]
    await manual_worker.run(Success(), Success(), Success())
    assert (await app_inspector.delete(jobs[0].id)).changed == 1
    with pytest.raises(JobNotFound):
        await app_inspector.job(jobs[0].id)
    changed = await app_inspector.delete(Filter(queue="feeds", states=(State.DONE,)))
    assert set(changed.ids) == {jobs[1].id, jobs[2].id}
    assert await ids(app_inspector, Filter()) == {jobs[3].id, jobs[4].id}


async def test_a_running_job_is_not_deleted_q7(
    app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker
) -> None:
    job = await refresh.enqueue("a")
    await manual_worker.claim()
    changed = await app_inspector.delete(job.id)
    assert (changed.changed, changed.unchanged_ids) == (0, (job.id,))
    assert await state(app_inspector, job.id) is State.RUNNING


async def test_archive_one_and_all_of_a_state_q7(app_inspector: Inspector, refresh: Refresh) -> None:
    jobs = [await refresh.using(delay=60 * (number > 0)).enqueue("x") for number in range(3)]
    assert (await app_inspector.archive(jobs[0].id, reason="not now")).changed == 1
    view = await app_inspector.job(jobs[0].id)
    assert (view.job.state, view.job.reason) == (State.FAILED, "not now")
    assert (await app_inspector.archive(Filter(states=(State.SCHEDULED,)))).changed == 2
    assert (await app_inspector.count(Filter(states=(State.FAILED,)))).jobs == 3


async def test_run_one_and_all_of_a_state_q7(app_inspector: Inspector, refresh: Refresh) -> None:
    """asynq's "run" is `run` for scheduled jobs here, and `retry` for finished ones."""
    jobs = [await refresh.using(delay=60).enqueue("x") for _ in range(3)]
    assert (await app_inspector.run(jobs[0].id)).changed == 1
    assert await state(app_inspector, jobs[0].id) is State.READY
    assert (await app_inspector.run(Filter(states=(State.SCHEDULED,)))).changed == 2
    assert (await app_inspector.count(Filter(states=(State.READY,)))).jobs == 3


async def test_retry_one_and_all_of_a_state_q7(
    app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker, clock: ManualClock
) -> None:
    """If all jobs of a state are retried, the oldest runs first."""
    jobs = [await refresh.enqueue(f"{number}") for number in range(3)]
    await manual_worker.run(FinalFailure(BOOM), FinalFailure(BOOM), FinalFailure(BOOM))
    assert (await app_inspector.retry(jobs[1].id)).changed == 1
    clock.advance(1)
    assert (await app_inspector.retry(Filter(states=(State.FAILED,)))).changed == 2
    assert [claimed.id for claimed in await manual_worker.claim(3)] == [jobs[1].id, jobs[0].id, jobs[2].id]


async def test_reprioritise_one_and_all_q7(
    app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker
) -> None:
    jobs = [await refresh.enqueue(f"{number}") for number in range(3)]
    await app_inspector.reprioritise(Filter(queue="feeds"), 7)
    await app_inspector.reprioritise(jobs[2].id, 1)
    assert [claimed.id for claimed in await manual_worker.claim(3)] == [jobs[2].id, jobs[0].id, jobs[1].id]
    with pytest.raises(ConfigurationError, match="priority: must lie between"):
        await app_inspector.reprioritise(jobs[0].id, 99_999)


async def test_a_change_to_a_missing_job_is_refused_q7(app_inspector: Inspector) -> None:
    for change in (
        app_inspector.retry,
        app_inspector.cancel,
        app_inspector.run,
        app_inspector.archive,
        app_inspector.delete,
    ):
        with pytest.raises(JobNotFound, match="there is no job 'nobody'"):
            await change("nobody")


async def test_pause_and_unpause_q7(
    app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker, clock: ManualClock
) -> None:
    await refresh.enqueue("a")
    await app_inspector.pause("feeds", reason="deploy")
    pause = (await app_inspector.queue("feeds")).pause
    assert pause is not None
    assert (pause.since, pause.until, pause.reason) == (clock.wall(), None, "deploy")
    assert await manual_worker.claim() == []
    await app_inspector.resume("feeds")
    assert (await app_inspector.queue("feeds")).pause is None
    assert len(await manual_worker.claim()) == 1


async def test_a_pause_with_an_end_is_gone_then_q7(app_inspector: Inspector, clock: ManualClock) -> None:
    await app_inspector.pause("feeds", until=clock.wall() + 60)
    assert (await app_inspector.queue("feeds")).pause is not None
    clock.advance(60)
    assert (await app_inspector.queue("feeds")).pause is None


async def test_empty_a_queue_by_force_with_its_name_typed_q7(
    app: Tidemill, app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker
) -> None:
    @app.task(name="elsewhere", queue="songs")
    async def elsewhere() -> None: ...

    kept = await elsewhere.enqueue()
    for number in range(4):
        await refresh.enqueue(f"{number}")
    await refresh.using(delay=60).enqueue("later")
    await manual_worker.run(Success(), FinalFailure(BOOM))
    [running] = await manual_worker.claim()
    for wrong in ("", "Feeds", "songs"):
        with pytest.raises(ConfigurationError, match=r"confirm: must be the name of the queue, 'feeds'"):
            await app_inspector.empty("feeds", confirm=wrong)
    assert (await app_inspector.count(Filter(queue="feeds"))).jobs == 5

    assert await app_inspector.empty("feeds", confirm="feeds") == 4

    assert await ids(app_inspector, Filter()) == {kept.id, running.id}
    await manual_worker.settle(running, Success())
    assert await state(app_inspector, running.id) is State.DONE


async def test_history_minute_by_minute_q7(
    app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker, clock: ManualClock
) -> None:
    for number in range(3):
        await refresh.enqueue(f"{number}")
    began = clock.wall()
    await manual_worker.run(Success(), Success())
    clock.advance(120)
    await manual_worker.run(FinalFailure(BOOM))
    assert [(minute.done, minute.failed) for minute in await app_inspector.history("feeds", began)] == [
        (2, 0),
        (0, 1),
    ]
    assert [minute.failed for minute in await app_inspector.history("feeds", began + 120)] == [1]


async def test_the_overview_contains_queues_pools_workers_and_store_q7(
    app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker, clock: ManualClock
) -> None:
    await refresh.enqueue("a")
    await manual_worker.claim()
    overview = await app_inspector.overview()
    assert overview.now == clock.wall()
    assert [(queue.name, queue.size) for queue in overview.queues] == [("feeds", 1)]
    assert [(worker.id, worker.holds) for worker in overview.workers] == [("hand-feeds", 1)]
    assert overview.store.kind in ("memory", "sqlite")
    assert list(overview.workers) == await app_inspector.workers()


async def test_a_queue_that_only_a_task_names_can_be_paused_before_its_first_job_q7(
    app: Tidemill, app_inspector: Inspector
) -> None:
    @app.task(queue="letters")
    def send(number: int) -> None: ...

    await app_inspector.pause("letters", reason="not yet")
    view = await app_inspector.override("letters", by="ann", concurrency=1)
    assert view.pause is not None
    assert view.settings.concurrency == 1


async def test_an_empty_filter_changes_nothing_q7(app_inspector: Inspector, refresh: Refresh) -> None:
    job = await refresh.enqueue("a")
    for empty in (Filter(), Filter(time="due")):
        with pytest.raises(ConfigurationError, match="would change every job"):
            await app_inspector.cancel(empty)
    assert (await job.status()).state is State.READY
    assert (await app_inspector.cancel(Filter(states=tuple(State)))).changed == 1
