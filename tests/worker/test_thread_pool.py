"""Sync handlers in real threads, because threads do not run in virtual time."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest

from tidemill.clock import SystemClock, SystemEntropy
from tidemill.core.jobs import Job, JobGroup, NewJob
from tidemill.core.limits import Limit
from tidemill.core.retry import Retry
from tidemill.core.states import State
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.context import Context
from tidemill.tasks.costs import compute_needs
from tidemill.tasks.definition import TaskDefinition, make_task_definition
from tidemill.tasks.pools import declare_pool
from tidemill.telemetry.events import SlotStuck
from tidemill.telemetry.listeners import Signals
from tidemill.worker import Worker, WorkerOptions
from tidemill.worker.handler_threads import HandlerThreads


def make(
    store: MemoryStore, *tasks: TaskDefinition, signals: Signals | None = None, **options: Any
) -> Worker:
    return Worker(
        store,
        {task.name: task for task in tasks},
        options=WorkerOptions(**options),
        clock=SystemClock(),
        entropy=SystemEntropy(),
        signals=signals,
    )


async def insert(store: MemoryStore, task: str, *ids: str, payload: bytes = b"{}") -> None:
    jobs = tuple(NewJob(id=job, task=task, payload=payload) for job in ids)
    await store.insert([JobGroup("default", jobs)])


async def job(store: MemoryStore, id: str) -> Job:  # noqa: A002 - the word for it
    [found] = await store.get([id])
    assert found is not None
    return found


async def test_sync_handlers_run_beside_the_loop_with_context_and_errors() -> None:
    main = threading.get_ident()

    def double(ctx: Context, number: int) -> int:
        assert threading.get_ident() != main
        ctx.log("in a thread")
        ctx.progress_sync(0.5)
        return number * 2

    def broken() -> None:
        raise ValueError("in a thread")

    store = await MemoryStore().open()
    await insert(store, "double", *"abcdefgh", payload=b'{"number":4}')
    await insert(store, "broken", "x")
    tasks = (
        make_task_definition(double, name="double"),
        make_task_definition(broken, name="broken", retry=Retry(attempts=1)),
    )
    await make(store, *tasks, until_idle=True, concurrency=4).run()
    for letter in "abcdefgh":
        assert (await job(store, letter)).result == b"8"
        assert [line.line for line in await store.logs(letter)] == ["in a thread"]
    failed = await job(store, "x")
    assert failed.error is not None
    assert failed.error.message == "in a thread"


async def test_i21_a_stuck_thread_is_settled_reported_and_keeps_its_slot() -> None:
    release, seen = threading.Event(), threading.Event()

    def stuck(ctx: Context) -> None:
        release.wait(30)
        if ctx.cancelled:
            seen.set()

    async def quick() -> None: ...

    store = await MemoryStore().open()
    await insert(store, "stuck", "a")
    await insert(store, "quick", "b")
    tasks = (
        make_task_definition(stuck, name="stuck", timeout=0.05, retry=Retry(attempts=1)),
        make_task_definition(quick, name="quick"),
    )
    worker = make(store, *tasks, concurrency=1)
    running = asyncio.create_task(worker.run())
    ended = store.listen(["job:a"])
    ended.arm()
    if (await job(store, "a")).state is not State.FAILED:
        assert await ended.wait(10)
    assert worker.stats.stuck == 1
    assert (await job(store, "b")).state is State.READY
    done = store.listen(["job:b"])
    done.arm()
    release.set()
    assert await done.wait(10)
    assert seen.is_set()
    assert worker.stats.stuck == 0
    worker.stop()
    await running


async def test_context_variables_travel_into_the_thread() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("set on the loop")
    threads = HandlerThreads(1)
    await threads.free()
    assert await threads.start(variable.get, (), {}).future == "set on the loop"
    threads.close()


async def test_no_more_threads_run_than_allowed() -> None:
    running, most, lock = 0, 0, threading.Lock()
    together = threading.Barrier(3, timeout=10)

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait()
        with lock:
            running -= 1

    store = await MemoryStore().open()
    await insert(store, "work", *(str(number) for number in range(30)))
    worker = make(store, make_task_definition(work, name="work"), until_idle=True, concurrency=10, threads=3)
    await worker.run()
    assert (most, worker.stats.done) == (3, 30)


async def test_stop_iteration_reaches_the_caller_as_an_error() -> None:
    def stops() -> None:
        raise StopIteration

    threads = HandlerThreads(1)
    await threads.free()
    with pytest.raises(RuntimeError, match="StopIteration"):
        await threads.start(stops, (), {}).future
    threads.close()


async def test_a_thread_that_cannot_be_started_frees_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads = HandlerThreads(1)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", exhausted)
        await threads.free()
        with pytest.raises(RuntimeError):
            threads.start(int, (), {})
    async with asyncio.timeout(5):
        await threads.free()
        assert await threads.start(int, ("7",), {}).future == 7
    threads.close()


async def test_i21_a_thread_that_outlives_its_timeout_is_reported() -> None:
    release = threading.Event()

    def deaf() -> None:
        release.wait(30)

    store = await MemoryStore().open()
    await insert(store, "deaf", "a")
    task = make_task_definition(deaf, name="deaf", timeout=0.05, retry=Retry(attempts=1))
    events: list[SlotStuck] = []
    signals = Signals()
    signals.subscribe(events.append, SlotStuck)
    await make(store, task, signals=signals, until_idle=True).run()
    release.set()
    [stuck] = events
    assert (stuck.job, stuck.task) == ("a", "deaf")
    assert stuck.seconds >= 0.05


async def test_a_sync_handler_reports_its_usage() -> None:
    store = await MemoryStore().open()
    pool = declare_pool("api", (Limit.tokens(1000, per="minute"),), {"jitter": 60})
    await store.declare_pools({"api": pool.settings})

    def call(ctx: Context) -> None:
        for _ in range(5):
            ctx.used(tokens=10)

    task = make_task_definition(call, name="call", pool=pool, cost={"tokens": 900})
    new = NewJob(id="a", task="call", payload=b"{}", needs=compute_needs(task, {}))
    await store.insert([JobGroup("default", (new,))])
    await make(store, task, until_idle=True).run()
    [view] = await store.pools()
    assert [limit.used for limit in view.limits] == [50]
