"""A child process that is suspended, cancelled early or cannot be started."""

from __future__ import annotations

import asyncio
import errno
import multiprocessing
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec
import pytest

from tests.worker import isolated_tasks
from tests.worker.test_isolation import LONG, get, gone, insert, isolated, make, run_with_pools, store, used
from tidemill.clock import SystemClock
from tidemill.contract.coordination import job_topic
from tidemill.core.claims import ClaimedJob
from tidemill.core.retry import Retry
from tidemill.core.states import State
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.context import Context
from tidemill.tasks.definition import make_task_definition
from tidemill.telemetry.events import JobReleased
from tidemill.worker.isolation import runner
from tidemill.worker.isolation.child import ChildRunner
from tidemill.worker.isolation.child_reporter import WorkerPipe
from tidemill.worker.isolation.messages import (
    ChildStart,
    HandlerPath,
    LateStartReply,
    MessageFromChild,
    PrepareRequest,
    RunRequest,
    StopReply,
)
from tidemill.worker.isolation.process import IsolatedProcess
from tidemill.worker.isolation.result_waits import ChildWaits, ProcessWaits

__all__ = ["store"]
JOB = ClaimedJob("a", "default", "t", b"{}", 1, 2, 1, 5, "", 0, 0, None, None, 0.0, 0.0, "")
CALLED: list[str] = []


async def note_call() -> None:
    CALLED.append("called")


async def cleans_up() -> None:
    await asyncio.sleep(LONG)


def run_message(**changes: Any) -> RunRequest:
    message = RunRequest(
        job=JOB, chance=0.5, policy={}, pools={}, began=SystemClock().boot(), wall=0.0, timeout=LONG
    )
    return msgspec.structs.replace(message, **changes)


class RecordingPipe:
    def __init__(self) -> None:
        self.sent: list[MessageFromChild] = []
        self.send = self.sent.append


def child() -> tuple[ChildRunner, RecordingPipe]:
    CALLED.clear()
    begin = ChildStart(path=[], argv=[], parent=0, uvloop=False, main=None, application=None, logs=None)
    pipe = RecordingPipe()
    made = ChildRunner(cast("WorkerPipe", pipe), begin)
    made._definition = make_task_definition(note_call, name="t")
    made._waits = ChildWaits(cast("WorkerPipe", pipe))
    return made, pipe


@pytest.mark.timeout(30)
async def test_a_cancel_does_not_wait_for_a_suspended_child() -> None:
    """The thread is blocked while it writes a large job; the event loop must not be."""
    process = IsolatedProcess(lambda _: None)
    await process.prepare(PrepareRequest("pid", HandlerPath("tests.worker.isolated_tasks", "pid")))
    assert process._process is not None
    pid = process._process.pid
    os.kill(pid, signal.SIGSTOP)
    large = msgspec.structs.replace(JOB, payload=b"x" * 8_000_000)
    attempt: Any = None  # no event reports it
    waits = ProcessWaits(attempt, lambda _: None)
    running = asyncio.create_task(process.run(run_message(job=large), attempt, waits))
    while not process._sending.locked():  # noqa: ASYNC110 - a lock of threads
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):  # not `ChildDeath`, which would be a crash of the job
        await running
    await gone(pid)


@pytest.mark.parametrize("early", [False, True])
async def test_a_job_that_is_cancelled_before_its_first_step_is_no_crash(early: bool) -> None:
    """`early`: before the child has started its task."""
    made, pipe = child()
    loop = asyncio.get_running_loop()
    if early:
        made._cancel()
    else:
        loop.call_soon(loop.call_soon, made._cancel)
    answering = asyncio.create_task(made._run_job(run_message()))
    await answering
    assert pipe.sent == [StopReply()]
    assert CALLED == []


async def test_i14_a_suspended_child_does_not_call_the_handler() -> None:
    """The time counts from when the worker sent the job, not from when the child read it."""
    made, pipe = child()
    await made._run_job(run_message(began=SystemClock().boot() - 5.0, late_in=1.0))
    [answer] = pipe.sent
    assert isinstance(answer, LateStartReply)
    assert answer.late == pytest.approx(4.0, abs=0.5)
    assert CALLED == []


async def test_i14_units_too_old_after_the_pipe_are_returned(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, delays = runner._make_run_request, [60.0]

    def delayed(*given: Any) -> RunRequest:
        message = made(*given)
        return msgspec.structs.replace(message, began=message.began - (delays.pop() if delays else 0.0))

    monkeypatch.setattr(runner, "_make_run_request", delayed)
    task = isolated(isolated_tasks.hasty, pool=isolated_tasks.API, cost={"tokens": 10})
    events = await run_with_pools(store, (task, "a"))
    assert delays == []
    assert [event.reason for event in events if isinstance(event, JobReleased)] == ["too late"]
    job = await get(store, "a")
    assert (job.state, job.attempts, job.crashes) == (State.DONE, 1, 0)
    assert (await used(store))["api: tokens"] == 10


async def test_the_wait_for_a_child_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lifespan that fails every few minutes fails a thousand times in four days."""
    children = runner.IsolatedRunner(1)
    monkeypatch.setattr(children, "_failures", 2000)
    assert children._start_failed("no such host").retry_in == runner.MAX_RETRY_SECONDS
    children.close()


async def test_middleware_may_give_a_handler_less_time(store: MemoryStore) -> None:
    """In the worker, around a child. Python 3.11: `asyncio.timeout` ignores subclasses of CancelledError."""
    seen: list[str] = []

    async def hurries(_: Context, run: Callable[[], Awaitable[Any]]) -> Any:
        try:
            async with asyncio.timeout(2):
                return await run()
        except TimeoutError:
            seen.append("too slow")
            return None

    task = make_task_definition(cleans_up, name="cleans_up", isolate=True, retry=Retry(attempts=1))
    await insert(store, "cleans_up", "a")
    await make(store, task, middleware=(hurries,), until_idle=True).run()
    assert seen == ["too slow"]
    assert (await get(store, "a")).state is State.DONE


async def test_a_worker_without_free_files_charges_no_job(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, failures = multiprocessing.Pipe, [1]

    def pipe() -> Any:
        if failures:
            failures.pop()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return system()

    monkeypatch.setattr(multiprocessing, "Pipe", pipe)
    monkeypatch.setattr(runner, "FIRST_RETRY_SECONDS", 0.01)
    worker = make(store, poll=0.05)
    running = asyncio.create_task(worker.run())
    listener = store.listen([job_topic("a")])
    listener.arm()
    await insert(store, "pid", "a")
    assert await listener.wait(runner.START_TIMEOUT_SECONDS / 2)
    worker.stop()
    await running
    job = await get(store, "a")
    assert (failures, job.state, job.attempts, job.crashes) == ([], State.DONE, 1, 0)
