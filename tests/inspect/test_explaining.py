"""Explanations on real stores: they change as their causes are removed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.inspect.support import Hand
from tidemill import Context, Inspector, JobNotFound, Retry, Task, Tidemill, Unique
from tidemill.core.job import Error
from tidemill.core.outcomes import Done, Fail, Release, Retrying, Snooze
from tidemill.inspect.causes import Code
from tidemill.testing import ManualClock

BOOM = Error("ValueError", "boom")
Refresh = Task[[str], None]


async def codes(look: Inspector, job: str) -> list[Code]:
    return [cause.code for cause in (await look.explain(job)).causes]


async def test_from_paused_to_done_with_a_real_worker(url: str) -> None:
    """Pause → resume → running → done, and nobody serving it to begin with."""
    async with Tidemill(url) as app:
        begun, may_end = asyncio.Event(), asyncio.Event()

        @app.task(name="report", queue="other")
        async def report(ctx: Context) -> None:
            await ctx.progress(1)  # an outcome with news waits for a heartbeat: the worker is known then

        @app.task(name="hold", queue="feeds", timeout=60)
        async def hold(ctx: Context) -> None:
            begun.set()
            await may_end.wait()

        job = await hold.enqueue()
        look = app.inspect
        assert await codes(look, job.id) == [Code.UNSERVED]
        await look.pause("feeds", reason="deploy")
        assert await codes(look, job.id) == [Code.PAUSED, Code.UNSERVED]

        worker = app.worker(isolation=False)
        running = asyncio.create_task(worker.run())
        await (await report.enqueue()).result(timeout=30)
        assert await codes(look, job.id) == [Code.PAUSED]
        assert "deploy" in (await app.explain(job.id)).sentence

        await look.resume("feeds")
        async with asyncio.timeout(30):
            await begun.wait()
        told = await look.explain(job.id)
        assert told.code is Code.RUNNING
        [known] = await look.workers()
        assert (told.details["worker"], told.details["timeout"]) == (known.id, 60)

        may_end.set()
        await job.result(timeout=30)
        assert await codes(look, job.id) == [Code.DONE]
        worker.stop()
        await running


async def test_scheduled_then_next_then_running_then_retrying_then_failed(
    look: Inspector, app: Tidemill, hand: Hand, clock: ManualClock
) -> None:
    @app.task(name="ask", queue="feeds", retry=Retry(attempts=2))
    async def ask() -> None: ...

    job = await ask.using(delay=200).enqueue()
    await hand.beat()
    told = await look.explain(job.id)
    assert told.code is Code.SCHEDULED
    assert "in 3 min 20 s, at 20" in told.sentence
    clock.advance(200)
    await hand.beat()
    assert await codes(look, job.id) == [Code.NEXT]
    [held] = await hand.claim()
    assert await codes(look, job.id) == [Code.RUNNING]
    await hand.settle(held, Retrying(10, BOOM))
    told = await look.explain(job.id)
    assert told.code is Code.RETRYING
    assert told.sentence.startswith(
        "Attempt 1 of 2 failed with ValueError: boom. The next starts in 10 s, at "
    )
    clock.advance(10)
    await hand.run(Fail(BOOM))
    told = await look.explain(job.id)
    assert told.sentence.startswith("The job failed for good 0.0 s ago")
    assert told.sentence.endswith("attempt 2 ended with ValueError: boom.")


async def test_snoozed_before_and_after_a_failure(
    look: Inspector, refresh: Refresh, hand: Hand, clock: ManualClock
) -> None:
    job = await refresh.enqueue("a")
    await hand.run(Snooze(5))
    assert await codes(look, job.id) == [Code.SNOOZED]
    clock.advance(5)
    await hand.run(Retrying(5, BOOM))
    assert await codes(look, job.id) == [Code.RETRYING]
    clock.advance(5)
    await hand.run(Snooze(5))
    assert await codes(look, job.id) == [Code.SNOOZED]
    await look.run(job.id)
    assert await codes(look, job.id) == [Code.NEXT]


async def test_at_the_limit_of_the_queue_and_of_the_key_and_behind_others(
    look: Inspector, refresh: Refresh, hand: Hand
) -> None:
    jobs = [(await refresh.using(key="a.example").enqueue(f"{number}")).id for number in range(3)]
    await look.override("feeds", by="ann", concurrency=1, key_concurrency=1)
    [held] = await hand.claim(3)
    assert await codes(look, jobs[1]) == [Code.QUEUE_LIMIT, Code.KEY_LIMIT]
    assert await codes(look, jobs[2]) == [Code.QUEUE_LIMIT, Code.KEY_LIMIT, Code.BEHIND]
    await look.clear_override("feeds", "concurrency")
    told = await look.explain(jobs[2])
    assert [cause.code for cause in told.causes] == [Code.KEY_LIMIT, Code.BEHIND]
    assert told.causes[1].sentence == "1 job with the key 'a.example' starts before it."
    await hand.settle(held, Done())
    assert await codes(look, jobs[2]) == [Code.BEHIND]
    await hand.run(Done())
    assert await codes(look, jobs[2]) == [Code.NEXT]


async def test_jobs_without_a_key_are_in_nobody_s_way(look: Inspector, refresh: Refresh, hand: Hand) -> None:
    await look.override("feeds", by="ann", key_concurrency=1)
    await refresh.enqueue("a")
    await hand.claim()
    job = await refresh.enqueue("b")
    assert await codes(look, job.id) == [Code.NEXT]


async def test_every_worker_is_busy(app: Tidemill, look: Inspector, refresh: Refresh) -> None:
    hand = Hand(app.store, concurrency=1)
    await refresh.enqueue("a")
    [held] = await hand.claim()
    job = await refresh.enqueue("b")
    assert await codes(look, job.id) == [Code.WORKERS_BUSY]
    await hand.settle(held, Done())
    assert await codes(look, job.id) == [Code.NEXT]


async def test_a_worker_of_another_queue_does_not_serve_this_one(
    app: Tidemill, look: Inspector, refresh: Refresh, hand: Hand
) -> None:
    job = await refresh.enqueue("a")
    await Hand(app.store, "songs").beat()
    assert await codes(look, job.id) == [Code.UNSERVED]
    await hand.beat()
    assert await codes(look, job.id) == [Code.NEXT]


async def test_nobody_knows_the_task(look: Inspector, refresh: Refresh, hand: Hand) -> None:
    job = await refresh.enqueue("a")
    await hand.run(Release(unknown=True))
    told = await look.explain(job.id)
    assert told.code is Code.UNKNOWN_TASK
    assert told.details["known_here"] is True


async def test_a_rerun_waits_for_its_predecessor(look: Inspector, refresh: Refresh, hand: Hand) -> None:
    unique = refresh.using(unique=Unique("feed-7", on_conflict="rerun"))
    first = await unique.enqueue("old")
    [held] = await hand.claim()
    second = await unique.enqueue("new")
    told = await look.explain(second.id)
    assert told.code is Code.PREDECESSOR
    assert told.details == {"predecessor": first.id, "unique_key": "feed-7", "state": "running"}
    await hand.settle(held, Done())
    assert await codes(look, second.id) == [Code.NEXT]


async def test_a_worker_that_fell_silent(
    app: Tidemill, look: Inspector, refresh: Refresh, hand: Hand, clock: ManualClock
) -> None:
    job = await refresh.enqueue("a")
    await hand.claim()
    assert await codes(look, job.id) == [Code.RUNNING]
    clock.advance(31)
    assert await codes(look, job.id) == [Code.WORKER_SILENT]
    await app.store.reclaim()
    assert await codes(look, job.id) == [Code.UNSERVED]


async def test_archived_after_a_failure_is_told_from_a_failure(
    look: Inspector, refresh: Refresh, hand: Hand, clock: ManualClock
) -> None:
    job = await refresh.enqueue("a")
    await hand.run(Retrying(60, BOOM))
    clock.advance(1)
    await look.archive(job.id, reason="not worth it")
    told = await look.explain(job.id)
    assert "by hand 0.0 s ago" in told.sentence
    assert told.sentence.endswith("Before that, 1 attempt failed, the last with ValueError: boom.")


async def test_cancelled_expired_and_not_there(
    look: Inspector, refresh: Refresh, hand: Hand, clock: ManualClock
) -> None:
    job = await refresh.enqueue("a")
    await look.cancel(job.id, reason="wrong feed")
    assert (await look.explain(job.id)).sentence.endswith(": wrong feed.")
    short = await refresh.using(expires=5).enqueue("b")
    await hand.beat()
    assert "Unless it starts before, it is cancelled in 5 s" in (await look.explain(short.id)).sentence
    clock.advance(6)
    assert await codes(look, short.id) == [Code.EXPIRED]
    await hand.claim()
    assert (await look.explain(short.id)).sentence.endswith(": it had not started by the time it expired.")
    with pytest.raises(JobNotFound, match="there is no job 'nobody'"):
        await look.explain("nobody")


async def test_facts_are_read_again_when_the_job_moves_meanwhile(
    app: Tidemill, refresh: Refresh, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read while it started, the first facts would say that it waits behind itself."""
    job = await refresh.enqueue("a")
    store, counts = app.store, app.store.counts

    async def starts_meanwhile() -> object:
        monkeypatch.undo()
        await hand.claim()
        return await counts()

    monkeypatch.setattr(store, "counts", starts_meanwhile)
    assert await codes(app.inspect, job.id) == [Code.RUNNING]


def test_programs_without_an_event_loop(tmp_path: Path) -> None:
    app = Tidemill(f"sqlite:///{tmp_path}/jobs.db")

    @app.task(name="refresh", queue="feeds")
    def refresh(feed: str) -> None: ...

    job = refresh.enqueue_sync("a")
    assert app.run_sync(app.explain(job.id)).code is Code.UNSERVED
    assert app.run_sync(app.inspect.queue("feeds")).size == 1
    assert app.run_sync(app.inspect.cancel(job.id)).changed == 1
    app.close_sync()
