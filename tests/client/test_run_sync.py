"""Everything that is async can be run by a program without an event loop."""

from __future__ import annotations

import pytest

from tidemill import ConfigurationError, Job, Tidemill
from tidemill.contract.queues import QueueInfo


def sample(number: int) -> None: ...


@pytest.fixture
def loopless(url: str) -> Tidemill:
    return Tidemill(url)


def test_a_coroutine_is_run_and_answered(loopless: Tidemill) -> None:
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


def test_what_it_raises_is_raised(loopless: Tidemill) -> None:
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
    """And Python has no forgotten coroutine to warn of: warnings are errors here."""
    ran: list[str] = []

    async def runs() -> None:
        ran.append("ran")

    with pytest.raises(ConfigurationError, match="run_sync was called on the thread of a running event loop"):
        loopless.run_sync(runs())
    assert not ran
