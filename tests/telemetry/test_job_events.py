"""A real client or worker emits every job event, with the documented fields."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.worker.bench import Bench, Unreliable, Virtually
from tidemill import GiveUp, Retry, SnoozeFor, Tidemill, Unique
from tidemill.contract.jobs import ExtendResult
from tidemill.core.claims import ClaimRequest, Heartbeat, QueueShare
from tidemill.core.filters import Filter
from tidemill.core.jobs import Error
from tidemill.core.operator_changes import CancelJobs
from tidemill.core.outcomes import Crash, Outcome
from tidemill.errors import StoreUnavailable
from tidemill.telemetry.events import (
    AttemptStopped,
    Event,
    JobCrashed,
    JobDone,
    JobEnqueued,
    JobFailed,
    JobReclaimed,
    JobReleased,
    JobRetrying,
    JobSnoozed,
    JobStarted,
    LargePayload,
    OutcomeRefused,
    SlotStuck,
    UnknownTaskReleased,
    WorkerUnresponsive,
)
from tidemill.testing.clocks import VirtualClock
from tidemill.worker.attempt import Attempt


def test_started_and_done_say_how_long_it_waited_and_ran(virtually: Virtually) -> None:
    async def takes_two() -> None:
        await asyncio.sleep(2)

    async def scenario(bench: Bench) -> None:
        bench.task(takes_two)
        job = await bench.enqueue("takes_two", trace="t-1")
        await asyncio.sleep(5)
        worker = await bench.run_until_idle()
        [started], [done] = bench.events_of(JobStarted), bench.events_of(JobDone)
        assert (started.job, started.task, started.queue) == (job, "takes_two", "default")
        assert (started.attempt, started.trace, started.worker) == (1, "t-1", worker.id)
        assert started.waited == pytest.approx(5, abs=0.01)
        assert (done.job, done.trace) == (job, "t-1")
        assert done.seconds == pytest.approx(2)
        assert done.waited == started.waited

    virtually(scenario)


def test_waited_is_measured_by_the_store_s_clock(virtually: Virtually) -> None:
    """I26: with a worker clock that is five minutes fast, `waited` is not five minutes longer."""

    async def noop() -> None: ...

    async def scenario(bench: Bench) -> None:
        bench.task(noop)
        bench.clock = VirtualClock(skew=300)
        worker = bench.worker()
        running = bench.start(worker)
        await asyncio.sleep(20)
        await bench.enqueue("noop")
        await asyncio.sleep(1)
        [done] = bench.events_of(JobDone)
        assert done.waited < 1.1
        worker.stop()
        await running

    virtually(scenario)


def test_a_retry_and_a_failure_say_what_was_raised(virtually: Virtually) -> None:
    async def breaks() -> None:
        raise ValueError("no such feed")

    async def scenario(bench: Bench) -> None:
        bench.task(breaks, retry=Retry(attempts=2, first=3, jitter=0))
        job = await bench.enqueue("breaks")
        running = bench.start(worker := bench.worker())
        await asyncio.sleep(10)
        [retrying], [failed] = bench.events_of(JobRetrying), bench.events_of(JobFailed)
        assert (retrying.job, retrying.attempt, retrying.delay) == (job, 1, 3)
        assert (retrying.error, retrying.message) == ("ValueError", "no such feed")
        assert (failed.job, failed.attempt, failed.reason) == (job, 2, "failed")
        assert (failed.error, failed.message) == ("ValueError", "no such feed")
        assert failed.traceback is not None
        assert "in breaks" in failed.traceback
        worker.stop()
        await running

    virtually(scenario)


def test_a_snooze_says_for_how_long_and_why(virtually: Virtually) -> None:
    async def sleepy() -> None:
        raise SnoozeFor(60, "quota")

    async def scenario(bench: Bench) -> None:
        bench.task(sleepy)
        job = await bench.enqueue("sleepy")
        await bench.run_until_idle()
        [snoozed] = bench.events_of(JobSnoozed)
        assert (snoozed.job, snoozed.delay, snoozed.reason) == (job, 60, "quota")

    virtually(scenario)


def test_a_job_handed_back_says_why(virtually: Virtually) -> None:
    async def long() -> None:
        await asyncio.sleep(3600)

    async def scenario(bench: Bench) -> None:
        bench.task(long)
        stopped = await bench.enqueue("long")
        stranger = await bench.enqueue("nobody_knows")
        running = bench.start(worker := bench.worker(grace=1))
        await asyncio.sleep(0.5)
        worker.stop()
        await running
        reasons = {event.job: event.reason for event in bench.events_of(JobReleased)}
        assert reasons == {stopped: "stopping", stranger: "unknown task"}
        [unknown] = bench.events_of(UnknownTaskReleased)
        assert (unknown.task, unknown.queue, unknown.known) == ("nobody_knows", "default", ("long",))
        assert (await bench.job(stranger)).note == f"worker {worker.id} does not know this task"

    virtually(scenario)


class Deadly:
    """An isolated runner whose process dies in every job."""

    runs_middleware = False
    lifespan_problem = None

    def __init__(self, limit: int) -> None: ...

    async def run(
        self, attempt: Attempt, definition: Any, chance: float, started: Callable[[], None], middleware: int
    ) -> Outcome:
        started()
        return Crash(Error("ProcessDied", "the process was ended by SIGSEGV"))

    async def drain(self) -> None: ...

    def close(self) -> None: ...


def test_i8_a_crash_emits_job_crashed_and_the_last_one_job_failed(virtually: Virtually) -> None:
    async def deadly() -> None: ...

    async def scenario(bench: Bench) -> None:
        bench.task(deadly, isolate=True)
        job = await bench.enqueue("deadly")
        worker = await bench.run_until_idle(runner=Deadly)
        assert [(event.job, event.crashes) for event in bench.events_of(JobCrashed)] == [(job, 1), (job, 2)]
        [failed] = bench.events_of(JobFailed)
        assert (failed.job, failed.reason, failed.error) == (job, "poison", "ProcessDied")
        assert (worker.stats.crashed, worker.stats.failed) == (3, 1)

    virtually(scenario)


def test_i19_a_cancelled_job_is_lost_to_its_worker(virtually: Virtually) -> None:
    async def long() -> None:
        await asyncio.sleep(3600)

    async def scenario(bench: Bench) -> None:
        bench.task(long)
        job = await bench.enqueue("long")
        running = bench.start(worker := bench.worker())
        await asyncio.sleep(10)
        await bench.store.amend(Filter(ids=(job,)), CancelJobs("not wanted"))
        await asyncio.sleep(1)
        [lost] = bench.events_of(AttemptStopped)
        assert lost.job == job
        assert lost.seconds == pytest.approx(10, abs=0.1)
        worker.stop()
        await running

    virtually(scenario)


class Deaf(Unreliable):
    """A store whose heartbeats fail."""

    async def extend(self, heartbeat: Heartbeat) -> ExtendResult:
        raise StoreUnavailable("down")


def test_i6_a_late_outcome_is_refused_and_emits_an_event(virtually: Virtually) -> None:
    async def long() -> None:
        await asyncio.sleep(40)

    async def scenario(bench: Bench) -> None:
        bench.task(long)
        job = await bench.enqueue("long")
        running = bench.start(worker := bench.worker(store=Deaf(bench.store)))
        await asyncio.sleep(1)
        await bench.store.reclaim(dead=[worker.id])
        await bench.store.claim(
            ClaimRequest(worker="other", number=1, shares=(QueueShare("default", 1),), limit=1, lease=3600)
        )
        await asyncio.sleep(45)
        [refused] = bench.events_of(OutcomeRefused)
        assert (refused.job, refused.outcome, refused.answer) == (job, "done", "stale")
        worker.stop()
        await running

    virtually(scenario)


def test_i7_a_reclaimed_job_names_the_silent_worker(virtually: Virtually) -> None:
    async def noop() -> None: ...

    async def scenario(bench: Bench) -> None:
        bench.task(noop)
        job = await bench.enqueue("noop", trace="t-9")
        await bench.store.claim(
            ClaimRequest(worker="ghost", number=1, shares=(QueueShare("default", 1),), limit=1, lease=2)
        )
        running = bench.start(worker := bench.worker(reclaim_every=4))
        await asyncio.sleep(10)
        [reclaimed] = bench.events_of(JobReclaimed)
        assert (reclaimed.job, reclaimed.task, reclaimed.queue) == (job, "noop", "default")
        assert (reclaimed.trace, reclaimed.attempt, reclaimed.crashes) == ("t-9", 1, 1)
        assert reclaimed.error == "LeaseExpired"
        assert "ghost" in reclaimed.message
        worker.stop()
        await running

    virtually(scenario)


def test_many_jobs_reclaimed_from_one_worker_are_one_log_line(virtually: Virtually) -> None:
    """Listeners get an event for each job; the log has these at `debug`."""

    async def noop() -> None: ...

    async def scenario(bench: Bench) -> None:
        bench.task(noop)
        held = {}
        for name, count in (("ghost", 40), ("shade", 1)):
            for _ in range(count):
                await bench.enqueue("noop")
            claims = await bench.store.claim(
                ClaimRequest(
                    worker=name, number=1, shares=(QueueShare("default", count),), limit=count, lease=2
                )
            )
            held[name] = {job.id for job in claims.jobs}
        running = bench.start(worker := bench.worker(reclaim_every=4))
        await asyncio.sleep(10)
        assert len(bench.events_of(JobReclaimed)) == 41
        silent = {event.worker: event for event in bench.events_of(WorkerUnresponsive)}
        assert {name: event.jobs for name, event in silent.items()} == {"ghost": 40, "shade": 1}
        assert all(event.job in held[name] for name, event in silent.items())
        assert (WorkerUnresponsive.level, JobReclaimed.level) == ("warning", "debug")
        worker.stop()
        await running

    virtually(scenario)


def test_i8_reclaimed_poison_emits_job_failed(virtually: Virtually) -> None:
    async def noop() -> None: ...

    async def scenario(bench: Bench) -> None:
        bench.task(noop)
        job = await bench.enqueue("noop")
        for number in range(1, 5):  # once with other jobs, then alone up to the crash limit of three
            await bench.store.claim(
                ClaimRequest(
                    worker="ghost", number=number, shares=(QueueShare("default", 1),), limit=1, lease=1
                )
            )
            if (await bench.job(job)).crashes < 2:
                await bench.store.reclaim(dead=["ghost"])
            else:
                break
        running = bench.start(worker := bench.worker(reclaim_every=4))
        await asyncio.sleep(10)
        [failed] = bench.events_of(JobFailed)
        assert (failed.job, failed.task, failed.reason) == (job, "noop", "poison")
        worker.stop()
        await running

    virtually(scenario)


def test_i21_a_stuck_slot_emits_slot_stuck(virtually: Virtually) -> None:
    async def deaf() -> None:
        while True:
            try:
                await asyncio.sleep(30)
                break
            except asyncio.CancelledError:
                continue

    async def scenario(bench: Bench) -> None:
        bench.task(deaf, timeout=1, retry=Retry(attempts=1))
        job = await bench.enqueue("deaf")
        await bench.run_until_idle()
        [stuck] = bench.events_of(SlotStuck)
        assert stuck.job == job
        assert stuck.seconds == pytest.approx(6)

    virtually(scenario)


async def test_a_client_emits_job_enqueued() -> None:
    app, events = Tidemill("memory://"), list[Event]()

    @app.task(name="feeds:refresh", queue="feeds")
    async def refresh(feed: str) -> None: ...

    app.on(JobEnqueued)(events.append)
    async with app:
        first = await refresh.using(unique=Unique("f")).enqueue("f")
        second = await refresh.using(unique=Unique("f")).enqueue("f")
        await app.enqueue_many([refresh.job("a"), refresh.job("b")])
    assert first.id == second.id
    assert events[:2] == [
        JobEnqueued(job=first.id, task="feeds:refresh", queue="feeds", trace=first.id, existing=existing)
        for existing in (False, True)
    ]
    assert len(events) == 4


async def test_q9_a_large_payload_emits_one_event_per_minute() -> None:
    app, events = Tidemill("memory://"), list[LargePayload]()

    @app.task(name="big", warn_bytes=10)
    async def big(text: str) -> None: ...

    app.on(LargePayload)(events.append)
    big.job("x" * 20)
    big.job("x" * 20)
    [large] = events
    assert (large.task, large.warn_bytes) == ("big", 10)
    assert large.size > 20


def test_give_up_emits_job_failed_and_no_retry(virtually: Virtually) -> None:
    async def hopeless() -> None:
        raise GiveUp("no such song")

    async def scenario(bench: Bench) -> None:
        bench.task(hopeless)
        await bench.enqueue("hopeless")
        await bench.run_until_idle()
        assert [event.message for event in bench.events_of(JobFailed)] == ["no such song"]
        assert bench.events_of(JobRetrying) == []

    virtually(scenario)
