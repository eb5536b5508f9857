"""The test kit as a user's test sees it, in sync and async tests."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.testing.shop_app import URL, Mail, app, broken, once, receipt, refund
from tidemill import ConfigurationError, JobNotFound, ResultTimeout, Retry, State, Tidemill, testing
from tidemill.clock import SystemClock
from tidemill.frameworks.starlette import running_worker
from tidemill.telemetry.events import WorkerStarted
from tidemill.testing import virtual_loop


def test_a_retry_runs_in_virtual_time() -> None:
    began = time.perf_counter()
    with testing.kit(app, state=Mail(fails=2)) as kit:
        job = receipt.enqueue_sync(7)
        kit.run_until_idle()
        assert kit.job(job).state is State.SCHEDULED
        kit.run_for(3600)
        assert kit.result(job) == "1 sent"
        assert kit.job(job).attempts == 3
        assert kit.log(job) == ["attempt 1", "attempt 2", "attempt 3"]
        assert kit.now == pytest.approx(testing.START_TIME + 3600 + 30, abs=1e-3)
    assert time.perf_counter() - began < 30  # two minutes of waits and sleeps took no real time


async def test_a_delay_is_waited_for_on_the_loop_of_the_test() -> None:
    """On a normal loop: handlers may use sockets, and only the store's clock is virtual."""
    async with testing.kit(app) as kit:
        job = await once.using(delay=3600).enqueue()
        assert await kit.run_until_idle() == []
        assert await kit.run_for(3599) == []
        kit.advance(1)
        (ended,) = await kit.run_until_idle()
        assert ended.id == job.id
        await job.result(timeout=1)


def test_the_application_gets_its_own_store_back() -> None:
    before = app.url, app.clock, app.entropy
    with testing.kit(app):
        receipt.enqueue_sync(7)
    with testing.kit(app) as kit:
        assert kit.enqueued() == []
    assert (app.url, app.clock, app.entropy) == before
    assert str(app.url) == URL


def test_the_same_test_draws_the_same_ids() -> None:
    def ids(seed: int) -> list[str]:
        with testing.kit(app, seed=seed) as kit:
            receipt.enqueue_sync(1)
            refund.enqueue_sync(2)
            return [job.id for job in kit.enqueued()]

    assert ids(3) == ids(3) != ids(4)


def test_enqueued_jobs_are_filtered_by_task_queue_and_tag() -> None:
    with testing.kit(app) as kit:
        first = receipt.using(tags=["vip"]).enqueue_sync(1)
        second = receipt.using(queue="slow", delay=5).enqueue_sync(2)
        third = refund.enqueue_sync(3)
        assert [job.id for job in kit.enqueued()] == [first.id, second.id, third.id]
        assert [job.id for job in kit.enqueued(receipt)] == [first.id, second.id]
        assert [job.id for job in kit.enqueued("refund")] == [third.id]
        assert [job.id for job in kit.enqueued(receipt, queue="slow")] == [second.id]
        assert [job.id for job in kit.enqueued(state="scheduled")] == [second.id]
        assert [job.id for job in kit.enqueued(tag="vip")] == [first.id]
        assert kit.arguments(third) == {"order": 3}


def test_enqueued_or_not_is_asserted_by_the_call() -> None:
    with testing.kit(app) as kit:
        job = receipt.using(priority=1).enqueue_sync(7)
        assert kit.assert_enqueued(receipt, 7).id == job.id
        assert kit.assert_enqueued(receipt, order=7, copies=1).priority == 1, "a default is the same call"
        kit.assert_enqueued(receipt)
        kit.assert_not_enqueued(receipt, 8)
        kit.assert_not_enqueued(refund)
        kit.run_until_idle()
        kit.assert_enqueued(receipt, 7)


def test_a_failed_assertion_shows_what_was_enqueued_instead() -> None:
    with testing.kit(app) as kit:
        refund.enqueue_sync(1)
        receipt.enqueue_sync(7, copies=2)
        with pytest.raises(AssertionError) as failure:
            kit.assert_enqueued(receipt, 8)
        lines = str(failure.value).splitlines()
        assert lines[0] == "receipt was not enqueued with (order=8). Enqueued were:"
        assert lines[1].startswith("  receipt(order=7, copies=2), ready on queue 'mail' (job ")
        assert lines[2:4] == ["      order: 7 instead of 8", "      copies: 2 instead of its default"]
        assert lines[4].startswith("  refund(order=1), ready on queue 'default' (job ")
        with pytest.raises(AssertionError, match=r"receipt was enqueued with \(order=7, copies=2\):"):
            kit.assert_not_enqueued(receipt, 7, 2)


def test_nothing_enqueued_is_said() -> None:
    with (
        testing.kit(app) as kit,
        pytest.raises(AssertionError, match="receipt was not enqueued; nothing was"),
    ):
        kit.assert_enqueued(receipt)


def test_a_handler_that_fails_fails_the_test_with_its_traceback() -> None:
    with testing.kit(app) as kit:
        job = broken.enqueue_sync(7)
        with pytest.raises(testing.UnexpectedFailure) as failure:
            kit.run_until_idle()
        message = str(failure.value)
        assert "broken(order=7), failed on queue 'default'" in message
        assert 'raise ValueError(f"order {order} is broken")' in message
        assert "check=False" in message
        assert [job.id for job in failure.value.jobs] == [job.id]


def test_a_failure_that_is_wanted_is_looked_at() -> None:
    with testing.kit(app) as kit:
        job = broken.enqueue_sync(7)
        (ended,) = kit.run_until_idle(check=False)
        assert (ended.id, ended.state) == (job.id, State.FAILED)
        with pytest.raises(AssertionError, match="order 7 is broken"):
            kit.result(job)
        assert kit.run_until_idle() == [], "a failure is told once"


def test_a_missing_result_says_what_to_do() -> None:
    with testing.kit(app, state=Mail(fails=3)) as kit:
        job = receipt.enqueue_sync(7)
        with pytest.raises(AssertionError, match="run_until_idle"):
            kit.result(job)
        kit.run_until_idle()
        with pytest.raises(AssertionError, match=r"due in 60 s: `run_for`[\s\S]*no connection for order 7"):
            kit.result(job)


def test_a_sync_handler_runs_on_the_thread_of_the_test() -> None:
    """That thread has the database connection of a framework."""
    app, threads = Tidemill("memory://"), list[int]()

    @app.task
    def where() -> None:
        threads.append(threading.get_ident())

    with testing.kit(app) as kit:
        where.enqueue_sync()
        kit.run_until_idle()
    assert threads == [threading.get_ident()]


def test_a_handler_may_enqueue_to_an_undeclared_queue() -> None:
    with testing.kit(app) as kit:
        refund.using(queue="unheard-of").enqueue_sync(7)
        kit.run_until_idle()
        assert [job.state for job in kit.enqueued()] == [State.DONE, State.DONE]


def test_ended_jobs_stay_however_much_time_passes() -> None:
    with testing.kit(app) as kit:
        job = receipt.enqueue_sync(7)
        kit.run_for(90 * 86_400)
        once.enqueue_sync()
        kit.run_until_idle()
        assert kit.result(job) == "1 sent"


def test_a_pause_ends_while_time_passes() -> None:
    with testing.kit(app) as kit:
        kit.run(app.inspect.pause("mail", until=kit.now + 600))
        job = receipt.enqueue_sync(7)
        kit.run_for(599)
        assert kit.job(job).state is State.READY
        kit.run_for(1)
        assert kit.result(job) == "1 sent"


def test_time_only_goes_forward() -> None:
    with testing.kit(app) as kit, pytest.raises(ValueError, match="seconds: time only goes forward"):
        kit.advance(-1)


async def test_a_plain_kit_on_a_loop_says_what_to_write() -> None:
    with testing.kit(app) as kit, pytest.raises(ConfigurationError, match=r"async with testing\.kit"):
        kit.run_until_idle()


async def test_a_job_of_another_test_is_not_found() -> None:
    async with testing.kit(app) as kit:
        job = await receipt.enqueue(7)
    async with testing.kit(app) as kit:
        with pytest.raises(JobNotFound, match=job.id):
            kit.job(job)


def test_threads_and_the_test_enqueue_to_the_same_place() -> None:
    """Like the threads of a web server's test client."""
    with testing.kit(app) as kit:
        threads = [threading.Thread(target=receipt.enqueue_sync, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        kit.run_for(600)
        assert sorted(kit.arguments(job)["order"] for job in kit.enqueued(state="done")) == list(range(8))


def test_in_virtual_time_a_handler_may_call_asyncio_run() -> None:
    app = Tidemill("memory://")

    async def answer() -> int:
        await asyncio.sleep(0)
        return 42

    @app.task
    def asks() -> int:
        return asyncio.run(answer())

    with testing.kit(app) as kit:
        job = asks.enqueue_sync()
        kit.run_until_idle()
        assert kit.result(job) == 42


def test_virtual_time_says_that_it_has_no_sockets() -> None:
    app = Tidemill("memory://")

    @app.task(name="fetch", retry=Retry(attempts=1))
    async def fetch() -> None:
        await asyncio.open_connection("127.0.0.1", 9)

    with testing.kit(app) as kit:
        fetch.enqueue_sync()
        with pytest.raises(testing.UnexpectedFailure, match="virtual time has no sockets"):
            kit.run_until_idle()


async def test_an_ordinary_loop_has_sockets() -> None:
    app = Tidemill("memory://")

    @app.task(name="fetch")
    async def fetch(port: int) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        text = (await reader.read()).decode()
        writer.close()
        return text

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, testing.kit(app) as kit:
        job = await fetch.using(delay=86_400).enqueue(server.sockets[0].getsockname()[1])
        await kit.run_for(86_400)
        assert kit.result(job) == "hello"


def test_a_task_that_enqueues_itself_without_end_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_loop, "MAX_CALLBACKS_PER_INSTANT", 10_000)
    app = Tidemill("memory://")

    @app.task(name="again")
    async def again() -> None:
        await again.enqueue()

    with testing.kit(app) as kit:
        again.enqueue_sync()
        with pytest.raises(testing.VirtualStandstill, match="enqueue itself without end"):
            kit.run_until_idle()


async def test_a_kit_is_entered_once_at_a_time() -> None:
    """After an inner block, the application would use its real store while the outer one is still open."""
    kit = testing.kit(app)
    async with kit as outer:
        with pytest.raises(ConfigurationError, match="this kit is entered already"), kit:
            pass
        with pytest.raises(ConfigurationError, match="this kit is entered already"), kit.awaited():
            pass
        with pytest.raises(ConfigurationError, match="this kit is entered already"):
            await kit.__aenter__()
        await refund.enqueue(7)
        assert len(outer.enqueued()) == 1
    async with kit as again:
        assert again.enqueued() == []


def test_waiting_for_what_nothing_runs_fails_at_once() -> None:
    with testing.kit(app) as kit:
        job = receipt.enqueue_sync(7)
        with pytest.raises(testing.JobNotRun, match=r"receipt\(order=7.*\n.*`run_until_idle` runs it"):
            job.result_sync()
        kit.run_until_idle()
        assert job.result_sync() == "1 sent"


def test_the_result_of_a_retry_not_yet_due_says_when_it_is_due() -> None:
    with testing.kit(app, state=Mail(fails=1)) as kit:
        job = receipt.enqueue_sync(7)
        kit.run_for(60)  # one second too short: the handler takes some time before it fails
        with pytest.raises(testing.JobNotRun, match=r"It is due in \d+ s: `run_for` lets that time pass"):
            job.result_sync()


@pytest.mark.parametrize("virtual_time", [True, False])
def test_waiting_for_what_nothing_runs_fails_at_once_on_a_loop(virtual_time: bool) -> None:
    async def waits() -> None:
        async with testing.kit(app):
            job = await receipt.enqueue(7)
            with pytest.raises(testing.JobNotRun, match="`run_until_idle` runs it"):
                await job.result()
            with pytest.raises(ResultTimeout):  # code that catches ResultTimeout works unchanged
                await job.result(timeout=60)

    (testing.run_virtual if virtual_time else asyncio.run)(waits())


@pytest.mark.tidemill
async def test_with_a_worker_beside_it_a_test_may_wait() -> None:
    async with testing.kit(app), running_worker(app, heartbeat_thread=False):
        job = await receipt.using(delay=600).enqueue(7)
        assert await job.result() == "1 sent"


@pytest.mark.tidemill
async def test_a_handler_may_wait_for_another_job() -> None:
    @app.task(name="waits for another")
    async def waits() -> str:
        return await (await receipt.enqueue(7)).result()

    try:
        async with testing.kit(app) as kit:
            job = await waits.enqueue()
            await kit.run_until_idle()
            assert kit.result(job) == "1 sent"
    finally:
        del app.tasks[waits.name]


@pytest.mark.parametrize("enter", [testing.kit, testing.inline])
def test_a_kit_takes_the_application_itself(enter: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^app: must be the application itself, .* is 'shop:app'"):
        enter("shop:app")


def test_the_signature_of_a_kit_can_be_read() -> None:
    assert "= <not given>" in str(inspect.signature(testing.kit))


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Advances the real-time clock without a wait."""
    passed = [0.0]
    boot = SystemClock.boot
    monkeypatch.setattr(SystemClock, "boot", lambda clock: boot(clock) + passed[0])

    def let_pass(seconds: float) -> None:
        passed[0] += seconds

    return let_pass


@pytest.mark.parametrize("fails", [False, True])
def test_a_sync_handler_that_takes_too_long_has_timed_out(
    passing: Callable[[float], None], *, fails: bool
) -> None:
    app = Tidemill("memory://")

    @app.task(name="slow", timeout=30, retry=Retry(attempts=2, first=60, jitter=0))
    def slow(seconds: float) -> str:
        passing(seconds)
        if fails:
            raise OSError("too late to matter")
        return "ended"

    with testing.kit(app) as kit:
        job = slow.enqueue_sync(31)
        kit.run_until_idle()
        assert kit.job(job).state is State.SCHEDULED
        kit.run_for(60, check=False)
        assert kit.job(job).state is State.FAILED
        error = kit.job(job).error
        assert error is not None
        assert (error.type, error.message) == ("Timeout", "did not end within its timeout of 30 seconds")
        patient = slow.using(timeout=60).enqueue_sync(31)
        kit.run_until_idle(check=False)
        assert kit.job(patient).state is (State.SCHEDULED if fails else State.DONE)


def test_a_sync_handler_cannot_wait_for_a_job() -> None:
    """As in a worker, although a kit runs the handler on the thread of the test."""
    app = Tidemill("memory://")

    @app.task(name="child")
    def child() -> int:
        return 1

    @app.task(name="parent", retry=Retry(attempts=1))
    def parent() -> int:
        return child.enqueue_sync().result_sync()

    with testing.kit(app) as kit:
        parent.enqueue_sync()
        with pytest.raises(
            testing.UnexpectedFailure, match=r"WaitRefused: job \w+ cannot wait for job \w+ in"
        ):
            kit.run_until_idle()
        assert [job.state for job in kit.enqueued(child)] == [State.DONE], "what does not wait runs on"


def test_the_result_of_a_job_in_a_paused_queue_names_the_pause() -> None:
    with testing.kit(app) as kit:
        kit.run(app.inspect.pause("mail", reason="no stamps"))
        job = receipt.enqueue_sync(7)
        kit.run_until_idle()
        with pytest.raises(testing.JobNotRun, match=r"'mail' has been paused .*no stamps") as waited:
            job.result_sync()
        assert "run_until_idle" not in str(waited.value)
        with pytest.raises(AssertionError, match="'mail' has been paused"):
            kit.result(job)


def test_a_job_that_is_due_by_now_says_what_runs_it() -> None:
    with testing.kit(app) as kit:
        job = once.using(delay=60).enqueue_sync()
        kit.advance(timedelta(seconds=129))
        with pytest.raises(testing.JobNotRun, match=r"due for 69 s: `run_until_idle` or `run_for` runs it"):
            job.result_sync()


def test_a_kit_that_was_not_entered_says_what_to_write() -> None:
    kit: Any = testing.kit(app)
    for use in ("run_until_idle", "run_for", "enqueued", "result"):
        with pytest.raises(ConfigurationError, match=r"write `with testing\.kit\(app\) as kit`"):
            getattr(kit, use)
    assert not hasattr(kit, "nothing")


def test_the_worker_of_a_kit_names_the_store_in_memory() -> None:
    own, stores = Tidemill(URL), list[str | None]()

    @own.task
    def work() -> None: ...

    @own.on(WorkerStarted)
    def note(event: WorkerStarted) -> None:
        stores.append(event.store)

    with testing.kit(own) as kit:
        work.enqueue_sync()
        kit.run_until_idle()
    assert stores == ["memory://"]


@pytest.mark.parametrize("seconds", ["10", -1, float("nan"), True, timedelta(-1)])
def test_run_for_refuses_an_invalid_duration(seconds: Any) -> None:
    with testing.kit(app) as kit:
        for move in (kit.run_for, kit.advance):
            with pytest.raises(ValueError, match=r"seconds: time only goes forward, .* a timedelta"):
                move(seconds)
        assert kit.now == testing.START_TIME


def test_a_state_that_is_none_is_refused() -> None:
    with testing.kit(app) as kit, pytest.raises(ConfigurationError, match=r"no state 'faild'; .*failed"):
        kit.enqueued(state="faild")


def test_a_handle_is_of_no_use_after_its_kit() -> None:
    """The real store is not used; it cannot even be opened here."""
    with testing.kit(app):
        job = receipt.enqueue_sync(7)
    for use in (job.status_sync, job.result_sync, job.cancel_sync):
        with pytest.raises(JobNotFound, match="a job of a test kit is gone with its block"):
            use()
