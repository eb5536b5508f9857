"""Real child processes: kills, crashes, and handlers that cannot be imported."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.worker import isolated_tasks
from tidemill.clock import SystemClock, SystemEntropy
from tidemill.contract.coordination import job_topic
from tidemill.contract.store import Store
from tidemill.core.claims import ClaimRequest, QueueShare
from tidemill.core.filters import Filter
from tidemill.core.jobs import Job, JobGroup, NewJob
from tidemill.core.operator_changes import CancelJobs
from tidemill.core.queues import InsertVerdict
from tidemill.core.retry import Retry
from tidemill.core.states import State
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.context import Context
from tidemill.tasks.costs import compute_needs
from tidemill.tasks.definition import Middleware, TaskDefinition, make_task_definition
from tidemill.telemetry.events import Event, FeedbackProblem, JobReleased, PoolClosed, UnreservedCall
from tidemill.telemetry.listeners import Signals
from tidemill.worker import Worker, WorkerOptions

LONG = 60.0


def isolated(handler: Any, **options: Any) -> TaskDefinition:
    return make_task_definition(handler, name=handler.__name__, isolate=True, **options)


TASKS = [
    isolated(isolated_tasks.pid),
    isolated(isolated_tasks.reports),
    isolated(isolated_tasks.remembers),
    isolated(isolated_tasks.exits),
    isolated(isolated_tasks.segfaults),
    isolated(isolated_tasks.endless, timeout=0.5, retry=Retry(attempts=1)),
    isolated(isolated_tasks.raises, retry=Retry(attempts=2, first=100, jitter=0)),
    isolated(isolated_tasks.panics),
    isolated(isolated_tasks.snoozes),
    isolated(isolated_tasks.odd),
    isolated(isolated_tasks.waits),
    isolated(isolated_tasks.babbles),
    isolated(isolated_tasks.returns_more_than_it_said),
    isolated_tasks.picky.definition,
]


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    opened = await MemoryStore().open()
    yield opened
    await opened.close()


def make(
    store: Store, *more: TaskDefinition, middleware: tuple[Middleware, ...] = (), **options: Any
) -> Worker:
    return Worker(
        store,
        {task.name: task for task in (*TASKS, *more)},
        options=WorkerOptions(**options),
        clock=SystemClock(),
        entropy=SystemEntropy(),
        middleware=middleware,
    )


async def insert(store: MemoryStore, task: str, id: str, payload: bytes = b"{}") -> None:  # noqa: A002 - the word
    await store.insert([JobGroup("default", (NewJob(id=id, task=task, payload=payload),))])


async def get(store: MemoryStore, id: str) -> Job:  # noqa: A002 - the word for it
    [job] = await store.get([id])
    assert job is not None
    return job


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """A pipe into which a handler writes its process ids; reading waits for it."""
    path = tmp_path / "fifo-forever"
    os.mkfifo(path)
    return path


async def said(fifo: Path) -> list[int]:
    text = await asyncio.to_thread(fifo.read_text)
    return [int(pid) for pid in text.split()]


async def gone(pid: int) -> None:
    """Returns when the process has ended, according to the kernel."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(process, ended.set)
    try:
        async with asyncio.timeout(5):
            await ended.wait()
    finally:
        loop.remove_reader(process)
        os.close(process)


async def test_results_errors_and_reports_come_back(store: MemoryStore) -> None:
    await insert(store, "reports", "a", b'{"number":1}')
    await insert(store, "raises", "b")
    await insert(store, "snoozes", "c")
    await insert(store, "odd", "d")
    await insert(store, "reports", "e", b'{"number":"x"}')
    await make(store, until_idle=True).run()
    done = await get(store, "a")
    assert (done.state, done.result, done.progress, done.note) == (State.DONE, b"2", 0.25, "quarter")
    assert [line.line for line in await store.logs("a")] == ["attempt 1"]
    retried = await get(store, "b")
    assert (retried.state, retried.attempts) == (State.SCHEDULED, 1)
    assert 100 <= retried.due - retried.created < 110, "the worker's policy holds for a plain function"
    assert retried.error is not None
    assert "in its own process" in retried.error.message
    assert ((await get(store, "c")).state, (await get(store, "c")).attempts) == (State.SCHEDULED, 0)
    assert (await get(store, "d")).reason == "result cannot be stored"
    assert (await get(store, "e")).reason == "invalid payload"


async def test_a_process_is_reused_while_it_is_healthy(store: MemoryStore) -> None:
    for number in range(5):
        await insert(store, "pid", str(number))
    await make(store, until_idle=True, isolated_processes=1).run()
    pids = {(await get(store, str(number))).result for number in range(5)}
    assert len(pids) == 1
    assert pids != {str(os.getpid()).encode()}


async def test_context_variables_do_not_reach_the_next_job_of_a_process(store: MemoryStore) -> None:
    for number in range(3):
        await insert(store, "remembers", str(number))
    await make(store, until_idle=True, isolated_processes=1).run()
    assert [(await get(store, str(number))).result for number in range(3)] == [b"1"] * 3


async def test_i8_a_job_that_kills_its_process_ends_as_poison_and_harms_no_other_job(
    store: MemoryStore,
) -> None:
    await insert(store, "exits", "exits")
    await insert(store, "segfaults", "segfaults")
    for number in range(20):
        await insert(store, "pid", str(number))
    worker = make(store, until_idle=True)
    await worker.run()
    for name, cause in (("exits", "exit code 7"), ("segfaults", "SIGSEGV")):
        job = await get(store, name)
        assert (job.state, job.reason, job.crashes, job.attempts) == (State.FAILED, "poison", 3, 0)
        assert job.error is not None
        assert cause in job.error.message
    assert worker.stats.crashed == 6
    for number in range(20):
        job = await get(store, str(number))
        assert (job.state, job.crashes) == (State.DONE, 0)


async def test_a_panic_is_a_failure_and_not_a_crash(store: MemoryStore) -> None:
    await insert(store, "panics", "a")
    await make(store, until_idle=True).run()
    job = await get(store, "a")
    assert (job.state, job.attempts, job.crashes) == (State.SCHEDULED, 1, 0)
    assert job.error is not None
    assert job.error.type == "Panic"


async def test_i21_an_endless_loop_is_killed_at_its_timeout_with_all_it_started(
    store: MemoryStore, fifo: Path
) -> None:
    await insert(store, "endless", "a", b'{"path":"%s"}' % str(fifo).encode())
    running = asyncio.create_task(make(store, until_idle=True).run())
    pids = await said(fifo)
    assert len(pids) == 2
    await running
    for pid in pids:
        await gone(pid)
    job = await get(store, "a")
    assert (job.state, job.crashes) == (State.FAILED, 0)
    assert job.error is not None
    assert job.error.type == "Timeout"


async def test_i19_cancelling_a_job_kills_its_process(store: MemoryStore, fifo: Path) -> None:
    await insert(store, "waits", "a", b'{"path":"%s"}' % str(fifo).encode())
    worker = make(store)
    running = asyncio.create_task(worker.run())
    [pid] = await said(fifo)
    await store.amend(Filter(ids=("a",)), CancelJobs())
    await gone(pid)
    worker.stop()
    await running
    assert (await get(store, "a")).state is State.CANCELLED


async def test_i20_a_drain_kills_the_process_and_releases_the_job(store: MemoryStore, fifo: Path) -> None:
    await insert(store, "waits", "a", b'{"path":"%s"}' % str(fifo).encode())
    worker = make(store)
    running = asyncio.create_task(worker.run())
    [pid] = await said(fifo)
    worker.stop_now()
    await running
    await gone(pid)
    job = await get(store, "a")
    assert (job.state, job.attempts, job.crashes) == (State.READY, 0, 0)


async def test_i8_a_suspect_runs_alone_although_its_task_is_not_isolated(store: MemoryStore) -> None:
    plain = make_task_definition(isolated_tasks.pid, name="plain")
    await insert(store, "plain", "a")
    dying = make(store, plain)
    await store.settle([], _claim(dying.id))
    await store.reclaim(dead=[dying.id])
    assert (await get(store, "a")).crashes == 1
    await make(store, plain, until_idle=True).run()
    job = await get(store, "a")
    assert job.state is State.DONE
    assert job.result != str(os.getpid()).encode()


def _claim(worker: str) -> ClaimRequest:
    return ClaimRequest(worker=worker, number=1, shares=(QueueShare("default", 1),), limit=1, lease=LONG)


async def test_a_handler_that_cannot_be_imported_fails_with_the_reason(store: MemoryStore) -> None:
    def local() -> None: ...

    await insert(store, "local", "a")
    await make(store, isolated(local), until_idle=True).run()
    job = await get(store, "a")
    assert (job.state, job.reason) == (State.FAILED, "cannot isolate")
    assert job.error is not None
    assert "top of a module" in job.error.message


async def test_i8_a_suspect_that_cannot_be_imported_runs_in_the_worker(store: MemoryStore) -> None:
    """It only ran beside the job that crashed."""

    def local() -> int:
        return os.getpid()

    await insert(store, "local", "a")
    await store.settle([], _claim("gone"))
    await store.reclaim(dead=["gone"])
    await make(store, make_task_definition(local, name="local"), until_idle=True).run()
    job = await get(store, "a")
    assert (job.state, job.result, job.crashes) == (State.DONE, str(os.getpid()).encode(), 1)


async def test_a_process_in_use_is_not_closed(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.worker.isolation.process.MAX_IDLE_SECONDS", 0.0)
    for number in range(3):
        await insert(store, "pid", str(number))
    async with asyncio.timeout(LONG / 2):
        await make(store, until_idle=True, isolated_processes=1).run()
    assert {(await get(store, str(number))).state for number in range(3)} == {State.DONE}


async def test_an_unreadable_reply_is_a_crash(store: MemoryStore) -> None:
    await insert(store, "babbles", "a")
    async with asyncio.timeout(LONG / 2):
        await make(store, until_idle=True).run()
    job = await get(store, "a")
    assert (job.state, job.reason) == (State.FAILED, "poison")


async def passes_on(_: Context, run: Callable[[], Awaitable[Any]]) -> Any:
    return await run()


@pytest.mark.parametrize("middleware", [(), (passes_on,)])
async def test_a_result_without_annotation_is_stored_as_on_the_loop(
    store: MemoryStore, middleware: tuple[Any, ...]
) -> None:
    await insert(store, "returns_more_than_it_said", "a")
    await make(store, until_idle=True, middleware=middleware).run()
    job = await get(store, "a")
    assert (job.state, job.result) == (State.DONE, b"5")


async def test_a_decorated_task_brings_its_own_policy(store: MemoryStore) -> None:
    await insert(store, "picky", "a")
    picky = isolated_tasks.picky.definition
    # A suspect, so that it runs in a child process.
    await store.settle([], _claim("gone"))
    await store.reclaim(dead=["gone"])
    await make(store, picky, until_idle=True).run()
    job = await get(store, "a")
    assert (job.state, job.attempts) == (State.FAILED, 1), "LookupError is not worth another try"


MAIN = """
import asyncio, sys
from tidemill.clock import SystemClock, SystemEntropy
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.definition import make_task_definition
from tidemill.worker import Worker, WorkerOptions

def where(path: str) -> str:
    import os, pathlib, time
    pathlib.Path(path).write_text(str(os.getpid()))
    if path.endswith("forever"):
        time.sleep(600)
    return __name__

async def main() -> None:
    store = await MemoryStore().open()
    task = make_task_definition(where, name="where", isolate=True)
    job = NewJob(id="a", task="where", payload=b'{"path":"%s"}' % sys.argv[1].encode())
    await store.insert([JobGroup("default", (job,))])
    options = WorkerOptions(until_idle=True)
    await Worker(store, {"where": task}, options=options, clock=SystemClock(), entropy=SystemEntropy()).run()
    [job] = await store.get(["a"])
    print(job.state, job.result)

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_handlers_of_the_main_script_are_found(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(MAIN)
    command = [sys.executable, str(script), str(tmp_path / "pid")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=True)
    assert "done b'\"__mp_main__\"'" in ran.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's death")
async def test_an_isolated_process_dies_with_its_worker(tmp_path: Path, fifo: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(MAIN)
    worker = await asyncio.create_subprocess_exec(
        sys.executable, str(script), str(fifo), stdout=subprocess.DEVNULL
    )
    [pid] = await said(fifo)
    worker.send_signal(signal.SIGKILL)
    await worker.wait()
    await gone(pid)


async def test_the_end_of_an_isolated_job_sends_a_wakeup(store: MemoryStore) -> None:
    """The result of an isolated job is settled while the worker is idle otherwise."""
    worker = make(store, poll=1000)
    running = asyncio.create_task(worker.run())
    listener = store.listen([job_topic("a")])
    listener.arm()
    await insert(store, "pid", "a")
    assert await listener.wait(LONG)
    worker.stop()
    await running


async def run_with_pools(store: MemoryStore, *tasks: tuple[TaskDefinition, str]) -> list[Event]:
    """Runs one job of each task, one after the other."""
    pools = {
        pool.name: pool.settings for pool in (isolated_tasks.API, isolated_tasks.OTHER, isolated_tasks.HASTY)
    }
    await store.declare_pools(pools)
    events: list[Event] = []
    signals = Signals()
    signals.subscribe(events.append)
    for task, id_ in tasks:
        job = NewJob(id=id_, task=task.name, payload=b"{}", needs=compute_needs(task, {}))
        [[answer]] = await store.insert([JobGroup("default", (job,))])
        assert answer.verdict is InsertVerdict.ACCEPTED
        worker = Worker(
            store,
            {task.name: task},
            pools,
            options=WorkerOptions(until_idle=True),
            clock=SystemClock(),
            entropy=SystemEntropy(),
            signals=signals,
        )
        await worker.run()
    return events


async def used(store: MemoryStore) -> dict[str, float]:
    return {f"{view.name}: {limit.unit}": limit.used for view in await store.pools() for limit in view.limits}


async def test_usage_of_an_isolated_handler_is_settled(store: MemoryStore) -> None:
    meters = isolated(isolated_tasks.meters, pool=isolated_tasks.API, cost={"tokens": 900})
    more = isolated(isolated_tasks.asks_for_more)
    await run_with_pools(store, (meters, "a"), (more, "b"))
    assert (await get(store, "a")).state is State.DONE
    counted = await used(store)
    assert (counted["api: tokens"], counted["other: tokens"], counted["other: concurrent"]) == (40, 7, 0)
    waits = await get(store, "b")
    assert (waits.state, waits.attempts) == (State.READY, 0)
    assert [need.pool for need in waits.deferred_needs] == ["other"]


async def test_usage_seen_by_a_hook_in_an_isolated_process_is_settled(store: MemoryStore) -> None:
    task = isolated(isolated_tasks.watches, pool=isolated_tasks.API, cost={"tokens": 900})
    events = await run_with_pools(store, (task, "a"))
    assert (await get(store, "a")).state is State.DONE
    assert (await used(store))["api: tokens"] == 40 + 60
    [event] = [event for event in events if isinstance(event, UnreservedCall)]
    assert (event.pool, event.job) == ("api", "a")


async def test_i16_a_refusal_in_an_isolated_process_closes_the_pool(store: MemoryStore) -> None:
    task = isolated(isolated_tasks.refused, pool=isolated_tasks.API, cost={"tokens": 1})
    events = await run_with_pools(store, (task, "a"))
    job = await get(store, "a")
    assert (job.state, job.attempts) == (State.READY, 0)
    [closed] = [event for event in events if isinstance(event, PoolClosed)]
    assert (closed.pool, closed.job, closed.reason) == ("api", "a", "stated")


async def test_classifiers_of_the_application_run_in_an_isolated_process(store: MemoryStore) -> None:
    task = isolated_tasks.judges.definition
    await store.declare_pools({"judged": isolated_tasks.JUDGED.settings})
    bug = NewJob(id="bug", task=task.name, payload=b'{"kind": "bug"}', needs=compute_needs(task, {}))
    money = NewJob(id="money", task=task.name, payload=b'{"kind": "money"}', needs=compute_needs(task, {}))
    await store.insert([JobGroup("default", (bug, money))])
    events: list[Event] = []
    signals = Signals()
    signals.subscribe(events.append)
    worker = Worker(
        store,
        {task.name: task},
        {"judged": isolated_tasks.JUDGED.settings},
        options=WorkerOptions(until_idle=True, concurrency=1),
        clock=SystemClock(),
        entropy=SystemEntropy(),
        signals=signals,
    )
    await worker.run()
    assert (await get(store, "bug")).state is State.FAILED
    assert (await get(store, "money")).attempts == 0
    [problem] = [event.problem for event in events if isinstance(event, FeedbackProblem)]
    assert "raised KeyError" in problem
    [closed] = [event for event in events if isinstance(event, PoolClosed)]
    assert (closed.pool, closed.reason, closed.until) == ("judged", "spending", None)


async def test_i14_units_too_old_after_a_process_start_are_returned(store: MemoryStore) -> None:
    """The process is free for the next claim."""
    task = isolated(isolated_tasks.hasty, pool=isolated_tasks.HASTY)
    events = await run_with_pools(store, (task, "a"))
    released = {event.reason for event in events if isinstance(event, JobReleased)}
    assert released == {"too late"}
    assert (await get(store, "a")).state is State.DONE
    assert (await used(store))["hasty: requests"] == 1


async def test_i14_many_suspects_of_a_pool_are_not_released_for_ever(store: MemoryStore) -> None:
    """A killed worker leaves as many suspects as it had slots, more than there are processes for. A suspect
    that waits too long is released, and one runs in each round: 21 are released on an idle machine."""
    task = isolated(isolated_tasks.hasty, pool=isolated_tasks.HASTY)
    pools = {"hasty": isolated_tasks.HASTY.settings}
    await store.declare_pools(pools)
    jobs = [NewJob(id=f"{n}", task=task.name, payload=b"{}", needs=compute_needs(task, {})) for n in range(6)]
    await store.insert([JobGroup("default", tuple(jobs))])
    events: list[Event] = []
    signals = Signals()
    signals.subscribe(events.append)
    worker = Worker(
        store,
        {task.name: task},
        pools,
        options=WorkerOptions(until_idle=True, concurrency=6, isolated_processes=1),
        clock=SystemClock(),
        entropy=SystemEntropy(),
        signals=signals,
    )
    await worker.run()
    assert {(await get(store, job.id)).state for job in jobs} == {State.DONE}
    assert 6 <= sum(isinstance(event, JobReleased) for event in events) <= 60
    assert (await used(store))["hasty: requests"] == 6
