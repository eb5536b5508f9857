"""The result, status, cancel and retry of a job: at once by wake-up, soon without (I23)."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.client.support import RecordingStore, claim, run_one, settle
from tidemill import (
    ConfigurationError,
    Error,
    JobCancelled,
    JobFailed,
    JobNotFound,
    ResultTimeout,
    ResultUnreadable,
    State,
    Task,
    Tidemill,
    Unique,
)
from tidemill.client.store_sessions import MAX_LISTENERS
from tidemill.core.outcomes import FinalFailure, Success
from tidemill.stores.memory import MemoryStore
from tidemill.testing.clocks import VirtualClock
from tidemill.testing.virtual_loop import run_virtual


class SampleAnswer(msgspec.Struct):
    text: str


def _ask(app: Tidemill) -> Task[[str], SampleAnswer]:
    @app.task(name="ask")
    async def ask(question: str) -> SampleAnswer:
        return SampleAnswer(question.upper())

    return ask


async def test_a_result_comes_back_as_its_type(app: Tidemill) -> None:
    handle = await _ask(app).enqueue("why")
    await run_one(app)
    assert await handle.result() == SampleAnswer("WHY")
    assert await app.job(handle.id).result() == SampleAnswer("WHY")


@pytest.mark.usefixtures("wakeups_only")
async def test_every_waiting_caller_gets_the_result_at_once(recording_store: RecordingStore) -> None:
    async with Tidemill(store=recording_store.as_store()) as app:
        handle = await _ask(app).enqueue("why")
        waiting = [asyncio.create_task(handle.result(timeout=600)) for _ in range(3)]
        await asyncio.to_thread(recording_store.wait_for, 3)
        await run_one(app)
        async with asyncio.timeout(30):
            assert await asyncio.gather(*waiting) == [SampleAnswer("WHY")] * 3


@pytest.mark.usefixtures("wakeups_only")
async def test_many_waiting_callers_share_few_listeners(recording_store: RecordingStore) -> None:
    """A caller without a listener gets one as soon as another is done with it."""
    many = MAX_LISTENERS + 20
    async with Tidemill(store=recording_store.as_store()) as app:
        ask = _ask(app)
        handles = [await ask.enqueue("why") for _ in range(many)]
        waiting = [asyncio.create_task(handle.result(timeout=600)) for handle in handles]
        await asyncio.to_thread(recording_store.wait_for, MAX_LISTENERS)
        for number in range(1, many + 1):
            await run_one(app, number=number)
        async with asyncio.timeout(30):
            assert await asyncio.gather(*waiting) == [SampleAnswer("WHY")] * many
    assert recording_store.most == MAX_LISTENERS


async def test_a_failed_job_raises_its_error(app: Tidemill) -> None:
    handle = await _ask(app).enqueue("why")
    (job,) = await claim(app.store)
    await settle(app.store, job, FinalFailure(Error("ValueError", "no idea")))
    with pytest.raises(
        JobFailed, match=r"job \w+ of task 'ask' failed after 1 attempts: ValueError: no idea"
    ):
        await handle.result()


async def test_cancel_and_retry(app: Tidemill) -> None:
    handle = await _ask(app).enqueue("why")
    assert not await handle.retry()  # it has not ended
    assert await handle.cancel("asked elsewhere")
    assert not await handle.cancel()
    with pytest.raises(JobCancelled, match="asked elsewhere"):
        await handle.result()
    assert await handle.retry()
    assert (await handle.status()).state is State.READY


async def test_a_missing_job_is_named(app: Tidemill) -> None:
    handle = app.job("nowhere")
    for call in (handle.result, handle.status, handle.cancel, handle.retry):
        with pytest.raises(JobNotFound, match=r"'nowhere'.*keep_done"):
            await call()


async def test_an_existing_job_is_followed_through_the_new_handle(app: Tidemill) -> None:
    ask = _ask(app).using(unique=Unique("q"))
    first, second = await ask.enqueue("one"), await ask.enqueue("two")
    assert (first.existing, second.existing) == (False, True)
    await run_one(app)
    assert await second.result() == SampleAnswer("ONE")


async def test_the_result_of_a_task_unknown_here_is_plain_data(app: Tidemill) -> None:
    handle = await _ask(app).enqueue("why")
    await run_one(app)
    del app.tasks["ask"]
    assert await app.job(handle.id).result() == {"text": "WHY"}


async def test_a_result_of_another_shape_is_an_error_that_names_the_job(app: Tidemill) -> None:
    handle = await _ask(app).enqueue("why")
    (job,) = await claim(app.store)
    await settle(app.store, job, Success(b'{"text": 7}'))
    with pytest.raises(ResultUnreadable, match=rf"job {handle.id} of task 'ask'.*`\$\.text`.*annotation"):
        await handle.result()


def test_waiting_ends_at_its_timeout_and_not_before() -> None:
    async def scenario() -> None:
        app = Tidemill("memory://", clock=VirtualClock())
        handle = await _ask(app).enqueue("why")
        with pytest.raises(ResultTimeout, match="within 7 s, it is ready"):
            await handle.result(timeout=7)
        assert asyncio.get_running_loop().time() == pytest.approx(7)

    run_virtual(scenario())


def test_a_result_arrives_with_every_wake_up_lost_i23() -> None:
    async def scenario() -> None:
        truth = MemoryStore(clock=VirtualClock())
        loop = asyncio.get_running_loop()
        app = Tidemill(store=truth)
        handle = await _ask(app).enqueue("why")
        waiting = asyncio.create_task(handle.result())
        await asyncio.sleep(100)
        (job,) = await claim(truth)
        truth._shared.hub._armed.clear()  # the ring is lost
        await settle(truth, job, Success(b'{"text":"LATE"}'))
        ended = loop.time()
        assert await waiting == SampleAnswer("LATE")
        assert loop.time() - ended <= 5.0

    run_virtual(scenario())


async def test_an_invalid_timeout_is_refused(app: Tidemill) -> None:
    handle = app.job("any")
    with pytest.raises(ConfigurationError, match=r"^timeout: must be a number of seconds or a timedelta"):
        await handle.result(timeout="x")  # type: ignore[arg-type]
