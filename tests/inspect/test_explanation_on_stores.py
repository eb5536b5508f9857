"""Explanations on real stores change when their causes are removed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.inspect.support import ManualWorker
from tidemill import Context, Inspector, JobNotFound, Retry, Task, Tidemill, Unique
from tidemill.core.jobs import Error
from tidemill.core.outcomes import FinalFailure, JobRelease, RetryLater, Snooze, Success
from tidemill.inspect.causes import CauseCode
from tidemill.testing import ManualClock

BOOM = Error("ValueError", "boom")
Refresh = Task[[str], None]


async def codes(app_inspector: Inspector, job: str) -> list[CauseCode]:
    return [cause.code for cause in (await app_inspector.explain(job)).causes]


async def test_from_paused_to_done_with_a_real_worker(url: str) -> None:
    """The job is first without a worker, then paused, resumed, running and done."""
    async with Tidemill(url) as app:
        begun, may_end = asyncio.Event(), asyncio.Event()

        @app.task(name="report", queue="other")
        async def report(ctx: Context) -> None:
            await ctx.progress(
                1
            )  # an outcome with progress waits for a heartbeat, so the worker is known by then

        @app.task(name="hold", queue="feeds", timeout=60)
        async def hold(ctx: Context) -> None:
            begun.set()
            await may_end.wait()

        job = await hold.enqueue()
        app_inspector = app.inspect
        assert await codes(app_inspector, job.id) == [CauseCode.NO_WORKER]
        await app_inspector.pause("feeds", reason="deploy")
        assert await codes(app_inspector, job.id) == [CauseCode.PAUSED, CauseCode.NO_WORKER]

        worker = app.worker(isolation=False)
        running = asyncio.create_task(worker.run())
        await (await report.enqueue()).result(timeout=30)
        assert await codes(app_inspector, job.id) == [CauseCode.PAUSED]
        assert "deploy" in (await app.explain(job.id)).sentence

        await app_inspector.resume("feeds")
        async with asyncio.timeout(30):
            await begun.wait()
        explanation = await app_inspector.explain(job.id)
        assert explanation.code is CauseCode.RUNNING
        [known] = await app_inspector.workers()
        assert (explanation.details["worker"], explanation.details["timeout"]) == (known.id, 60)

        may_end.set()
        await job.result(timeout=30)
        assert await codes(app_inspector, job.id) == [CauseCode.DONE]
        worker.stop()
        await running


async def test_scheduled_then_next_then_running_then_retrying_then_failed(
    app_inspector: Inspector, app: Tidemill, manual_worker: ManualWorker, clock: ManualClock
) -> None:
    @app.task(name="ask", queue="feeds", retry=Retry(attempts=2))
    async def ask() -> None: ...

    job = await ask.using(delay=200).enqueue()
    await manual_worker.beat()
    explanation = await app_inspector.explain(job.id)
    assert explanation.code is CauseCode.SCHEDULED
    assert "in 3 min 20 s, at 20" in explanation.sentence
    clock.advance(200)
    await manual_worker.beat()
    assert await codes(app_inspector, job.id) == [CauseCode.NEXT]
    [held] = await manual_worker.claim()
    assert await codes(app_inspector, job.id) == [CauseCode.RUNNING]
    await manual_worker.settle(held, RetryLater(10, BOOM))
    explanation = await app_inspector.explain(job.id)
    assert explanation.code is CauseCode.RETRYING
    assert explanation.sentence.startswith(
        "Attempt 1 of 2 failed with ValueError: boom. The next starts in 10 s, at "
    )
    clock.advance(10)
    await manual_worker.run(FinalFailure(BOOM))
    explanation = await app_inspector.explain(job.id)
    assert explanation.sentence.startswith("The job failed for good 0.0 s ago")
    assert explanation.sentence.endswith("attempt 2 ended with ValueError: boom.")


async def test_snoozed_before_and_after_a_failure(
    app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker, clock: ManualClock
) -> None:
    job = await refresh.enqueue("a")
    await manual_worker.run(Snooze(5))
    assert await codes(app_inspector, job.id) == [CauseCode.SNOOZED]
    clock.advance(5)
    await manual_worker.run(RetryLater(5, BOOM))
    assert await codes(app_inspector, job.id) == [CauseCode.RETRYING]
    clock.advance(5)
    await manual_worker.run(Snooze(5))
    assert await codes(app_inspector, job.id) == [CauseCode.SNOOZED]
    await app_inspector.run(job.id)
    assert await codes(app_inspector, job.id) == [CauseCode.NEXT]


async def test_at_the_limit_of_the_queue_and_of_the_key_and_behind_others(
    app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker
) -> None:
    jobs = [(await refresh.using(key="a.example").enqueue(f"{number}")).id for number in range(3)]
    await app_inspector.override("feeds", by="ann", concurrency=1, key_concurrency=1)
    [held] = await manual_worker.claim(3)
    assert await codes(app_inspector, jobs[1]) == [CauseCode.QUEUE_LIMIT, CauseCode.KEY_LIMIT]
    assert await codes(app_inspector, jobs[2]) == [
        CauseCode.QUEUE_LIMIT,
        CauseCode.KEY_LIMIT,
        CauseCode.BEHIND,
    ]
    await app_inspector.clear_override("feeds", "concurrency")
    explanation = await app_inspector.explain(jobs[2])
    assert [cause.code for cause in explanation.causes] == [CauseCode.KEY_LIMIT, CauseCode.BEHIND]
    assert explanation.causes[1].sentence == "1 job with the key 'a.example' starts before it."
    await manual_worker.settle(held, Success())
    assert await codes(app_inspector, jobs[2]) == [CauseCode.BEHIND]
    await manual_worker.run(Success())
    assert await codes(app_inspector, jobs[2]) == [CauseCode.NEXT]


async def test_jobs_without_a_key_do_not_block_other_keys(
    app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker
) -> None:
    await app_inspector.override("feeds", by="ann", key_concurrency=1)
    await refresh.enqueue("a")
    await manual_worker.claim()
    job = await refresh.enqueue("b")
    assert await codes(app_inspector, job.id) == [CauseCode.NEXT]


async def test_every_worker_is_busy(app: Tidemill, app_inspector: Inspector, refresh: Refresh) -> None:
    manual_worker = ManualWorker(app.store, concurrency=1)
    await refresh.enqueue("a")
    [held] = await manual_worker.claim()
    job = await refresh.enqueue("b")
    assert await codes(app_inspector, job.id) == [CauseCode.WORKERS_BUSY]
    await manual_worker.settle(held, Success())
    assert await codes(app_inspector, job.id) == [CauseCode.NEXT]


async def test_a_worker_of_another_queue_does_not_serve_this_one(
    app: Tidemill, app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker
) -> None:
    job = await refresh.enqueue("a")
    await ManualWorker(app.store, "songs").beat()
    assert await codes(app_inspector, job.id) == [CauseCode.NO_WORKER]
    await manual_worker.beat()
    assert await codes(app_inspector, job.id) == [CauseCode.NEXT]


async def test_no_worker_knows_the_task(
    app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker
) -> None:
    job = await refresh.enqueue("a")
    await manual_worker.run(JobRelease(unknown=True))
    explanation = await app_inspector.explain(job.id)
    assert explanation.code is CauseCode.UNKNOWN_TASK
    assert explanation.details["known_here"] is True


async def test_a_rerun_waits_for_its_predecessor(
    app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker
) -> None:
    unique = refresh.using(unique=Unique("feed-7", on_conflict="rerun"))
    first = await unique.enqueue("old")
    [held] = await manual_worker.claim()
    second = await unique.enqueue("new")
    explanation = await app_inspector.explain(second.id)
    assert explanation.code is CauseCode.PREDECESSOR
    assert explanation.details == {"predecessor": first.id, "unique_key": "feed-7", "state": "running"}
    await manual_worker.settle(held, Success())
    assert await codes(app_inspector, second.id) == [CauseCode.NEXT]


async def test_a_worker_that_fell_silent(
    app: Tidemill, app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker, clock: ManualClock
) -> None:
    job = await refresh.enqueue("a")
    await manual_worker.claim()
    assert await codes(app_inspector, job.id) == [CauseCode.RUNNING]
    clock.advance(31)
    assert await codes(app_inspector, job.id) == [CauseCode.WORKER_SILENT]
    await app.store.reclaim()
    assert await codes(app_inspector, job.id) == [CauseCode.NO_WORKER]


async def test_archived_after_a_failure_differs_from_failed(
    app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker, clock: ManualClock
) -> None:
    job = await refresh.enqueue("a")
    await manual_worker.run(RetryLater(60, BOOM))
    clock.advance(1)
    await app_inspector.archive(job.id, reason="not worth it")
    explanation = await app_inspector.explain(job.id)
    assert "by hand 0.0 s ago" in explanation.sentence
    assert explanation.sentence.endswith("Before that, 1 attempt failed, the last with ValueError: boom.")


async def test_cancelled_expired_and_missing_jobs(
    app_inspector: Inspector, refresh: Refresh, manual_worker: ManualWorker, clock: ManualClock
) -> None:
    job = await refresh.enqueue("a")
    await app_inspector.cancel(job.id, reason="wrong feed")
    assert (await app_inspector.explain(job.id)).sentence.endswith(": wrong feed.")
    short = await refresh.using(expires=5).enqueue("b")
    await manual_worker.beat()
    assert (
        "Unless it starts before, it is cancelled in 5 s" in (await app_inspector.explain(short.id)).sentence
    )
    clock.advance(6)
    assert await codes(app_inspector, short.id) == [CauseCode.EXPIRED]
    await manual_worker.claim()
    assert (await app_inspector.explain(short.id)).sentence.endswith(
        ": it had not started by the time it expired."
    )
    with pytest.raises(JobNotFound, match="there is no job 'nobody'"):
        await app_inspector.explain("nobody")


async def test_inputs_are_read_again_when_the_job_changes_meanwhile(
    app: Tidemill, refresh: Refresh, manual_worker: ManualWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first read happened while the job started; it would say that the job waits for itself."""
    job = await refresh.enqueue("a")
    store, counts = app.store, app.store.counts

    async def starts_meanwhile() -> object:
        monkeypatch.undo()
        await manual_worker.claim()
        return await counts()

    monkeypatch.setattr(store, "counts", starts_meanwhile)
    assert await codes(app.inspect, job.id) == [CauseCode.RUNNING]


def test_programs_without_an_event_loop(tmp_path: Path) -> None:
    app = Tidemill(f"sqlite:///{tmp_path}/jobs.db")

    @app.task(name="refresh", queue="feeds")
    def refresh(feed: str) -> None: ...

    job = refresh.enqueue_sync("a")
    assert app.run_sync(app.explain(job.id)).code is CauseCode.NO_WORKER
    assert app.run_sync(app.inspect.queue("feeds")).size == 1
    assert app.run_sync(app.inspect.cancel(job.id)).changed == 1
    app.close_sync()
