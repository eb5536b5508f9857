"""I22: an enqueue ends in time, and nothing else is ended with it."""

from __future__ import annotations

import asyncio

import pytest

from tidemill.client.patience import Patience

NEVER = 1e6


@pytest.fixture
async def patience() -> Patience:
    return Patience(asyncio.get_running_loop())


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_i22_what_takes_too_long_is_ended(patience: Patience) -> None:
    with pytest.raises(TimeoutError), patience.until(now()):
        await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)  # and it goes on undisturbed


async def test_i22_a_sooner_end_than_the_timer_stands_for(patience: Patience) -> None:
    with patience.until(now() + NEVER):
        await asyncio.sleep(0)
    with pytest.raises(TimeoutError), patience.until(now()):
        await asyncio.Event().wait()


async def test_the_timer_of_one_call_does_not_end_the_next(patience: Patience) -> None:
    soon, passed = now() + 0.01, asyncio.Event()
    with patience.until(soon):
        await asyncio.sleep(0)
    asyncio.get_running_loop().call_at(soon + 0.01, passed.set)
    with patience.until(now() + NEVER):
        await passed.wait()


async def test_whoever_is_cancelled_is_cancelled(patience: Patience) -> None:
    begun = asyncio.Event()

    async def call() -> None:
        with patience.until(now() + NEVER):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(call())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_is_more_than_a_timeout(patience: Patience) -> None:
    """Both at once: whoever cancelled the task waits for it to end."""

    async def call() -> None:
        with patience.until(now()):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                asyncio.get_running_loop().call_soon(task.cancel)
                await asyncio.Event().wait()

    task = asyncio.create_task(call())
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_stays_what_it_is(patience: Patience) -> None:
    with pytest.raises(LookupError), patience.until(now() + NEVER):
        raise LookupError
