"""`app.answer`: an urgent job whose result a caller waits for, or one error that says why there is none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tidemill import (
    AnswerUnavailable,
    ConfigurationError,
    Filter,
    GiveUp,
    JobFailed,
    Limit,
    Retry,
    State,
    Task,
    Tidemill,
)


def declare(app: Tidemill, *, per_day: int = 100) -> Task[[str], str]:
    pool = app.pool("llm", Limit.requests(per_day, per=86_400.0))

    @app.task(name="embed", queue="search", pool=pool, retry=Retry(attempts=1))
    async def embed(text: str) -> str:
        if text == "bad":
            raise GiveUp("no such word")
        return text.upper()

    return embed


@asynccontextmanager
async def running_worker(app: Tidemill) -> AsyncIterator[None]:
    worker = app.worker()
    running = asyncio.create_task(worker.run())
    while not await app.inspect.workers():  # noqa: ASYNC110 - it is in the store
        await asyncio.sleep(0.01)
    try:
        yield
    finally:
        worker.stop()
        await running


async def unavailable(app: Tidemill, task: Task[[str], str], text: str, within: float) -> AnswerUnavailable:
    with pytest.raises(AnswerUnavailable) as caught:
        await app.answer(task.job(text), within=within)
    return caught.value


async def states(app: Tidemill) -> dict[State, int]:
    found = (await app.inspect.counts()).get("search", {})
    return {state: number for state, number in found.items() if number}


async def test_an_answer_overtakes_the_backlog(app: Tidemill) -> None:
    embed = declare(app)
    for number in range(20):
        await embed.using(priority=-100).enqueue(f"text {number}")
    order: list[str] = []

    @app.middleware
    async def note(ctx, call):  # type: ignore[no-untyped-def]
        result = await call()
        order.append(result)
        return result

    asking = asyncio.create_task(app.answer(embed.job("tide"), within=20))
    while (await app.inspect.count(Filter(queue="search"))).jobs < 21:  # noqa: ASYNC110 - in the store
        await asyncio.sleep(0.01)
    worker = app.worker(concurrency=1)
    running = asyncio.create_task(worker.run())
    assert await asking == "TIDE"
    assert order.index("TIDE") == 0
    worker.stop()
    await running


async def test_without_a_worker_the_job_is_withdrawn_at_the_deadline(app: Tidemill) -> None:
    error = await unavailable(app, declare(app), "tide", 0.05)
    assert (error.code, error.retry_after) == ("timeout", 60)
    assert str(error).startswith("the job did not end within 0.05 s. ")
    assert "No living worker serves the queue" in error.reason
    assert await states(app) == {State.CANCELLED: 1}


async def test_a_closed_pool_is_known_at_once_and_no_job_is_sent(app: Tidemill) -> None:
    embed = declare(app)
    await app.inspect.counts()
    await app.inspect.close_pool("llm", by="ann", reason="key revoked")
    error = await unavailable(app, embed, "tide", 30)
    assert (error.code, error.reason, error.retry_after) == ("pool_closed", "key revoked", None)
    assert str(error) == "the pool 'llm' is closed: key revoked; an operator must open it"
    await app.inspect.close_pool("llm", by="ann", reason="lunch", until=app.clock.wall() + 3600)
    error = await unavailable(app, embed, "tide", 30)
    assert error.retry_after is not None
    assert 3590 < error.retry_after <= 3600
    assert await states(app) == {}


async def test_a_closure_that_ends_before_the_deadline_is_waited_for(app: Tidemill) -> None:
    embed = declare(app)
    await app.inspect.counts()
    async with running_worker(app):
        await app.inspect.close_pool("llm", by="ann", until=app.clock.wall() + 0.3)
        assert await app.answer(embed.job("tide"), within=20) == "TIDE"


async def test_a_used_up_limit_raises_before_the_deadline(app: Tidemill) -> None:
    embed = declare(app, per_day=1)
    async with running_worker(app):
        assert await app.answer(embed.job("first"), within=20) == "FIRST"
        async with asyncio.timeout(15):
            error = await unavailable(app, embed, "second", 30)
        assert error.code == "too_late"
        assert str(error).startswith("the job did not start within 30 s. ")
        assert error.retry_after is not None
        assert error.retry_after > 60
    assert await states(app) == {State.DONE: 1, State.CANCELLED: 1}


async def test_a_job_that_fails_is_the_cause(app: Tidemill) -> None:
    embed = declare(app)
    async with running_worker(app):
        error = await unavailable(app, embed, "bad", 20)
    assert (error.code, error.retry_after) == ("failed", None)
    assert "no such word" in str(error)
    assert isinstance(error.__cause__, JobFailed)


async def test_a_job_that_an_operator_cancels_gives_no_answer(app: Tidemill) -> None:
    embed = declare(app)
    asking = asyncio.create_task(unavailable(app, embed, "tide", 20))
    while not (jobs := (await app.inspect.find(Filter(queue="search"))).jobs):  # noqa: ASYNC110 - in the store
        await asyncio.sleep(0.01)
    await app.inspect.cancel(jobs[0].id)
    error = await asking
    assert error.code == "cancelled"
    assert "The job was cancelled" in error.reason


@pytest.mark.parametrize("within", [0, -1])
async def test_a_deadline_that_is_over_is_refused(app: Tidemill, within: float) -> None:
    embed = declare(app)
    with pytest.raises(ConfigurationError, match=r"^within: must be a number of seconds above 0, is"):
        await app.answer(embed.job("tide"), within=within)
    assert await states(app) == {}
