"""A program without an event loop can run every coroutine of the application."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tidemill import ConfigurationError, Filter, Job, JobHandle, Task, Tidemill
from tidemill.contract.queues import QueueInfo
from tidemill.telemetry.events import JobEnqueued


def sample(number: int) -> None: ...


def noted(number: int) -> None: ...


@pytest.fixture
def loopless(url: str) -> Tidemill:
    return Tidemill(url)


def test_run_sync_returns_the_result(loopless: Tidemill) -> None:
    handle = loopless.task(sample).enqueue_sync(1)
    assert loopless.run_sync(handle.status()).id == handle.id
    loopless.run_sync(loopless.inspect.pause("default", reason="invoice"))
    (info,) = loopless.run_sync(_queues(loopless))
    assert info.pause is not None
    loopless.run_sync(loopless.inspect.resume("default"))
    (info,) = loopless.run_sync(_queues(loopless))
    assert info.pause is None
    loopless.close_sync()


async def _queues(app: Tidemill) -> list[QueueInfo]:
    return await app.store.queues()


def test_run_sync_raises_the_error(loopless: Tidemill) -> None:
    async def fails() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loopless.run_sync(fails())
    loopless.close_sync()


def test_a_coroutine_may_close_the_application_it_runs_on(loopless: Tidemill) -> None:
    send = loopless.task(sample)

    async def whole_program() -> Job:
        async with loopless:
            handle = await send.enqueue(1)
            return await handle.status()

    first = loopless.run_sync(whole_program())
    second = loopless.run_sync(whole_program())
    assert first.id != second.id
    loopless.run_sync(loopless.close())
    loopless.close_sync()


async def test_on_an_event_loop_it_is_refused_and_nothing_runs(loopless: Tidemill) -> None:
    """No coroutine is left without an await: warnings are errors here."""
    ran: list[str] = []

    async def runs() -> None:
        ran.append("ran")

    with pytest.raises(ConfigurationError, match="run_sync was called on the thread of a running event loop"):
        loopless.run_sync(runs())
    assert not ran


Verb = Callable[[Task[[int], None]], object]


async def _inside(send: Task[[int], None], verb: Verb) -> object:
    return verb(send)


@pytest.mark.parametrize(
    "verb",
    [
        lambda send: send.enqueue_sync(1),
        lambda send: JobHandle(send.client, "x").result_sync(),
        lambda send: send.client.blocking(),
    ],
)
def test_a_blocking_call_on_the_portal_thread_is_refused(loopless: Tidemill, verb: Verb) -> None:
    """A coroutine on the thread of the background loop must not wait for that loop, or it would hang."""
    with pytest.raises(ConfigurationError, match="await"):
        loopless.run_sync(_inside(loopless.task(sample), verb))
    loopless.close_sync()


def test_a_listener_may_enqueue_while_run_sync_does(tmp_path: Path) -> None:
    loopless = Tidemill(f"sqlite:///{tmp_path}/jobs.db")
    send, note = loopless.task(sample), loopless.task(noted)

    @loopless.on(JobEnqueued)
    def also(event: JobEnqueued) -> None:
        if event.task == send.name:
            note.enqueue_sync(2)

    loopless.run_sync(send.enqueue(1))
    assert loopless.run_sync(loopless.inspect.count(Filter(task=note.name))).jobs == 1
    loopless.close_sync()
