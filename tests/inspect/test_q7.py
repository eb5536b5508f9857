"""Q7, line by line: queue info (size, active, pending, scheduled, retry, archived, completed, processed,
failed, latency, last processed), list (also by time range) and get tasks, cancel a running one, delete,
archive, run: one or all of a state; pause/unpause; empty a queue by force with its name typed."""

from __future__ import annotations

import pytest

from tests.inspect.support import Hand
from tidemill import ConfigurationError, Filter, Inspector, JobNotFound, QueueNotFound, State, Task, Tidemill
from tidemill.core.claims import Settlement
from tidemill.core.job import Error
from tidemill.core.outcomes import Answer, Cancelled, Done, Fail, Retrying
from tidemill.testing import ManualClock

BOOM = Error("ValueError", "boom")
Refresh = Task[[str], None]


async def ids(look: Inspector, wanted: Filter) -> set[str]:
    return {job.id for job in (await look.find(wanted)).jobs}


async def state(look: Inspector, job: str) -> State:
    return (await look.job(job)).job.state


async def test_queue_info_q7(look: Inspector, refresh: Refresh, hand: Hand, clock: ManualClock) -> None:
    """Every number of the requirement's list, each with a different value."""
    for number in range(15):
        await refresh.enqueue(f"{number}")
    clock.advance(2)
    await hand.run(Done(), Done(), Done(), Done(), Fail(BOOM), Fail(BOOM), Fail(BOOM))
    await hand.run(Retrying(60, BOOM), Retrying(90, BOOM), Cancelled("not needed"))
    await hand.claim(1)
    for number in range(3):
        await refresh.using(delay=300 + number).enqueue("later")
    clock.advance(3)

    queue = await look.queue("feeds")

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


async def test_the_day_s_numbers_are_those_of_a_day_q7(
    look: Inspector, refresh: Refresh, hand: Hand, clock: ManualClock
) -> None:
    await refresh.enqueue("a")
    await hand.run(Done())
    clock.advance(23 * 3600)
    assert (await look.queue("feeds")).processed == 1
    clock.advance(3600 + 61)
    assert (await look.queue("feeds")).processed == 0


async def test_reclaimed_jobs_are_counted_q7(
    app: Tidemill, look: Inspector, refresh: Refresh, hand: Hand, clock: ManualClock
) -> None:
    await refresh.enqueue("a")
    await hand.claim()
    clock.advance(60)
    await app.store.reclaim()
    queue = await look.queue("feeds")
    assert (queue.reclaimed, queue.counts[State.READY], queue.workers) == (1, 1, ())


async def test_every_queue_by_name_q7(app: Tidemill, look: Inspector, refresh: Refresh) -> None:
    app.queue("songs")
    await refresh.enqueue("a")
    assert [queue.name for queue in await look.queues()] == ["feeds", "songs"]
    assert [queue.size for queue in await look.queues()] == [1, 0]
    await Hand(app.store, "songs").beat()
    assert [queue.workers for queue in await look.queues()] == [(), ("hand-songs",)]


async def test_a_mistyped_queue_is_told_which_there_are_q7(app: Tidemill, look: Inspector) -> None:
    app.queue("songs")
    for wrong in (
        look.queue("fed"),
        look.pause("fed"),
        look.resume("fed"),
        look.override("fed", by="me", weight=2),
        look.clear_override("fed"),
        look.empty("fed", confirm="fed"),
        look.history("fed", 0),
    ):
        with pytest.raises(QueueNotFound, match="there is no queue 'fed'; there are: feeds, songs"):
            await wrong
    assert [queue.name for queue in await look.queues()] == ["feeds", "songs"]


async def test_list_by_state_and_by_time_range_q7(
    look: Inspector, refresh: Refresh, hand: Hand, clock: ManualClock
) -> None:
    began = clock.wall()
    early = await refresh.enqueue("early")
    clock.advance(100)
    late = await refresh.enqueue("late")
    later = await refresh.using(delay=3600).enqueue("later")
    assert await ids(look, Filter(queue="feeds")) == {early.id, late.id, later.id}
    assert await ids(look, Filter(states=(State.SCHEDULED,))) == {later.id}
    assert await ids(look, Filter(until=began + 100)) == {early.id}
    assert await ids(look, Filter(since=began + 100)) == {late.id, later.id}
    assert await ids(look, Filter(since=began + 1000, time="due")) == {later.id}
    clock.advance(50)
    [ended] = await hand.run(Done())
    assert await ids(look, Filter(since=began + 150, time="finished")) == {ended}


async def test_get_a_job_with_its_attempts_and_log_q7(look: Inspector, refresh: Refresh, hand: Hand) -> None:
    job = await refresh.enqueue("https://a.example")
    [held] = await hand.claim()
    await hand.say(held, "first", "second", progress=0.5)
    await hand.settle(held, Retrying(0, BOOM))
    [held] = await hand.claim()
    await hand.settle(held, Done(b"7"))
    view = await look.job(job.id)
    assert view.job.state is State.DONE
    assert view.payload == {"feed": "https://a.example"}
    assert view.result == 7
    assert [attempt.error for attempt in view.attempts] == [BOOM]
    assert [line.line for line in view.log] == ["first", "second"]
    with pytest.raises(JobNotFound, match="there is no job 'nobody'"):
        await look.job("nobody")


async def test_cancel_a_running_one_q7(app: Tidemill, look: Inspector, refresh: Refresh, hand: Hand) -> None:
    job = await refresh.enqueue("a")
    [held] = await hand.claim()
    changed = await look.cancel(job.id, reason="wrong feed")
    assert changed.ids == (job.id,)
    view = await look.job(job.id)
    assert (view.job.state, view.job.reason) == (State.CANCELLED, "wrong feed")
    settled = await app.store.settle([Settlement(held.id, held.fence, held.claim, Done())])
    assert settled.answers == [Answer.STALE]


async def test_delete_one_and_all_of_a_state_q7(look: Inspector, refresh: Refresh, hand: Hand) -> None:
    jobs = [await refresh.enqueue(f"{number}") for number in range(5)]
    await hand.run(Done(), Done(), Done())
    assert (await look.delete(jobs[0].id)).changed == 1
    with pytest.raises(JobNotFound):
        await look.job(jobs[0].id)
    changed = await look.delete(Filter(queue="feeds", states=(State.DONE,)))
    assert set(changed.ids) == {jobs[1].id, jobs[2].id}
    assert await ids(look, Filter()) == {jobs[3].id, jobs[4].id}


async def test_a_running_job_is_not_deleted_q7(look: Inspector, refresh: Refresh, hand: Hand) -> None:
    job = await refresh.enqueue("a")
    await hand.claim()
    changed = await look.delete(job.id)
    assert (changed.changed, changed.unchanged_ids) == (0, (job.id,))
    assert await state(look, job.id) is State.RUNNING


async def test_archive_one_and_all_of_a_state_q7(look: Inspector, refresh: Refresh) -> None:
    jobs = [await refresh.using(delay=60 * (number > 0)).enqueue("x") for number in range(3)]
    assert (await look.archive(jobs[0].id, reason="not now")).changed == 1
    view = await look.job(jobs[0].id)
    assert (view.job.state, view.job.reason) == (State.FAILED, "not now")
    assert (await look.archive(Filter(states=(State.SCHEDULED,)))).changed == 2
    assert (await look.count(Filter(states=(State.FAILED,)))).jobs == 3


async def test_run_one_and_all_of_a_state_q7(look: Inspector, refresh: Refresh) -> None:
    """asynq's run is ours for scheduled jobs, and retry for ended ones."""
    jobs = [await refresh.using(delay=60).enqueue("x") for _ in range(3)]
    assert (await look.run(jobs[0].id)).changed == 1
    assert await state(look, jobs[0].id) is State.READY
    assert (await look.run(Filter(states=(State.SCHEDULED,)))).changed == 2
    assert (await look.count(Filter(states=(State.READY,)))).jobs == 3


async def test_retry_one_and_all_of_a_state_q7(
    look: Inspector, refresh: Refresh, hand: Hand, clock: ManualClock
) -> None:
    """Of all of a state the oldest runs first again."""
    jobs = [await refresh.enqueue(f"{number}") for number in range(3)]
    await hand.run(Fail(BOOM), Fail(BOOM), Fail(BOOM))
    assert (await look.retry(jobs[1].id)).changed == 1
    clock.advance(1)
    assert (await look.retry(Filter(states=(State.FAILED,)))).changed == 2
    assert [claimed.id for claimed in await hand.claim(3)] == [jobs[1].id, jobs[0].id, jobs[2].id]


async def test_reprioritise_one_and_all_q7(look: Inspector, refresh: Refresh, hand: Hand) -> None:
    jobs = [await refresh.enqueue(f"{number}") for number in range(3)]
    await look.reprioritise(Filter(queue="feeds"), 7)
    await look.reprioritise(jobs[2].id, 1)
    assert [claimed.id for claimed in await hand.claim(3)] == [jobs[2].id, jobs[0].id, jobs[1].id]
    with pytest.raises(ConfigurationError, match="priority: must lie between"):
        await look.reprioritise(jobs[0].id, 99_999)


async def test_a_change_to_one_job_that_is_not_there_is_told_q7(look: Inspector) -> None:
    for change in (look.retry, look.cancel, look.run, look.archive, look.delete):
        with pytest.raises(JobNotFound, match="there is no job 'nobody'"):
            await change("nobody")


async def test_pause_and_unpause_q7(
    look: Inspector, refresh: Refresh, hand: Hand, clock: ManualClock
) -> None:
    await refresh.enqueue("a")
    await look.pause("feeds", reason="deploy")
    pause = (await look.queue("feeds")).pause
    assert pause is not None
    assert (pause.since, pause.until, pause.reason) == (clock.wall(), None, "deploy")
    assert await hand.claim() == []
    await look.resume("feeds")
    assert (await look.queue("feeds")).pause is None
    assert len(await hand.claim()) == 1


async def test_a_pause_with_an_end_is_gone_then_q7(look: Inspector, clock: ManualClock) -> None:
    await look.pause("feeds", until=clock.wall() + 60)
    assert (await look.queue("feeds")).pause is not None
    clock.advance(60)
    assert (await look.queue("feeds")).pause is None


async def test_empty_a_queue_by_force_with_its_name_typed_q7(
    app: Tidemill, look: Inspector, refresh: Refresh, hand: Hand
) -> None:
    @app.task(name="elsewhere", queue="songs")
    async def elsewhere() -> None: ...

    kept = await elsewhere.enqueue()
    for number in range(4):
        await refresh.enqueue(f"{number}")
    await refresh.using(delay=60).enqueue("later")
    await hand.run(Done(), Fail(BOOM))
    [running] = await hand.claim()
    for wrong in ("", "Feeds", "songs"):
        with pytest.raises(ConfigurationError, match=r"confirm: must be the name of the queue, 'feeds'"):
            await look.empty("feeds", confirm=wrong)
    assert (await look.count(Filter(queue="feeds"))).jobs == 5

    assert await look.empty("feeds", confirm="feeds") == 4

    assert await ids(look, Filter()) == {kept.id, running.id}
    await hand.settle(running, Done())
    assert await state(look, running.id) is State.DONE


async def test_history_minute_by_minute_q7(
    look: Inspector, refresh: Refresh, hand: Hand, clock: ManualClock
) -> None:
    for number in range(3):
        await refresh.enqueue(f"{number}")
    began = clock.wall()
    await hand.run(Done(), Done())
    clock.advance(120)
    await hand.run(Fail(BOOM))
    assert [(minute.done, minute.failed) for minute in await look.history("feeds", began)] == [(2, 0), (0, 1)]
    assert [minute.failed for minute in await look.history("feeds", began + 120)] == [1]


async def test_the_overview_is_everything_at_a_glance_q7(
    look: Inspector, refresh: Refresh, hand: Hand, clock: ManualClock
) -> None:
    await refresh.enqueue("a")
    await hand.claim()
    overview = await look.overview()
    assert overview.now == clock.wall()
    assert [(queue.name, queue.size) for queue in overview.queues] == [("feeds", 1)]
    assert [(worker.id, worker.holds) for worker in overview.workers] == [("hand-feeds", 1)]
    assert overview.store.kind in ("memory", "sqlite")
    assert list(overview.workers) == await look.workers()


async def test_a_queue_that_only_a_task_names_can_be_paused_before_its_first_job_q7(
    app: Tidemill, look: Inspector
) -> None:
    @app.task(queue="letters")
    def send(number: int) -> None: ...

    await look.pause("letters", reason="not yet")
    view = await look.override("letters", by="ann", concurrency=1)
    assert view.pause is not None
    assert view.settings.concurrency == 1


async def test_an_empty_filter_changes_nothing_q7(look: Inspector, refresh: Refresh) -> None:
    job = await refresh.enqueue("a")
    for empty in (Filter(), Filter(time="due")):
        with pytest.raises(ConfigurationError, match="would change every job"):
            await look.cancel(empty)
    assert (await job.status()).state is State.READY
    assert (await look.cancel(Filter(states=tuple(State)))).changed == 1
