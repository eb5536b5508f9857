"""An enqueue ends in time, and no other call is ended with it (I22)."""

from __future__ import annotations

import asyncio

import pytest

from tidemill.client.enqueuer import CallDeadline

NEVER = 1e6


@pytest.fixture
async def deadline() -> CallDeadline:
    return CallDeadline(asyncio.get_running_loop())


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_i22_a_call_that_takes_too_long_is_ended(deadline: CallDeadline) -> None:
    with pytest.raises(TimeoutError), deadline.until(now()):
        await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)  # and it goes on undisturbed


async def test_i22_an_earlier_deadline_moves_the_timer(deadline: CallDeadline) -> None:
    with deadline.until(now() + NEVER):
        await asyncio.sleep(0)
    with pytest.raises(TimeoutError), deadline.until(now()):
        await asyncio.Event().wait()


async def test_the_timer_of_one_call_does_not_end_the_next(deadline: CallDeadline) -> None:
    soon, passed = now() + 0.01, asyncio.Event()
    with deadline.until(soon):
        await asyncio.sleep(0)
    asyncio.get_running_loop().call_at(soon + 0.01, passed.set)
    with deadline.until(now() + NEVER):
        await passed.wait()


async def test_a_cancelled_call_raises_cancelled_error(deadline: CallDeadline) -> None:
    begun = asyncio.Event()

    async def call() -> None:
        with deadline.until(now() + NEVER):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(call())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_is_more_than_a_timeout(deadline: CallDeadline) -> None:
    """If both happen at once, the caller that cancelled the task waits for its end."""

    async def call() -> None:
        with deadline.until(now()):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                asyncio.get_running_loop().call_soon(task.cancel)
                await asyncio.Event().wait()

    task = asyncio.create_task(call())
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_in_the_call_is_not_changed(deadline: CallDeadline) -> None:
    with pytest.raises(LookupError), deadline.until(now() + NEVER):
        raise LookupError
