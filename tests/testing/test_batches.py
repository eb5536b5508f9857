"""Batch tasks in the test kit: as in production with the kit, one item at a time inline."""

from __future__ import annotations

import pytest

from tidemill import Context, FailedItem, GiveUp, JobFailed, State, Tidemill, testing

app = Tidemill("memory://")
calls: list[list[str]] = []


@app.batch_task(max_items=3, linger=20)
async def embed(ctx: Context, texts: list[str]) -> list[int | FailedItem]:
    assert len(ctx.batch) == len(texts)
    calls.append(texts)
    return [FailedItem("empty", retry=False) if not text else len(text) for text in texts]


@app.batch_task(max_items=3, linger=0.1)
def shout(texts: list[str]) -> list[str]:
    calls.append(texts)
    return [text.upper() for text in texts]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    calls.clear()


def test_the_kit_waits_for_company_in_no_time() -> None:
    with testing.kit(app) as kit:
        jobs = [embed.enqueue_sync(text) for text in ("a", "bb", "ccc", "dddd")]
        kit.assert_enqueued(embed, "bb")
        ended = kit.run_until_idle()
        assert calls == [["a", "bb", "ccc"], ["dddd"]]
        assert [kit.result(job) for job in jobs] == [1, 2, 3, 4]
        assert len(ended) == 4


def test_sync_handlers_in_the_kit() -> None:
    with testing.kit(app) as kit:
        jobs = [shout.enqueue_sync(text) for text in "ab"]
        kit.run_until_idle()
        assert calls == [["a", "b"]]
        assert [kit.result(job) for job in jobs] == ["A", "B"]


async def test_the_kit_on_a_real_loop() -> None:
    async with testing.kit(app) as kit:
        jobs = [await shout.enqueue(text) for text in "ab"]
        await kit.run_until_idle()
        assert calls == [["a", "b"]]
        assert [kit.result(job) for job in jobs] == ["A", "B"]


async def test_inline_is_a_batch_of_one() -> None:
    with testing.inline(app):
        job = await embed.enqueue("abc")
        assert calls == [["abc"]]
        assert await job.result(timeout=1) == 3
        many = await app.enqueue_many(shout.job(text) for text in "ab")
        assert calls == [["abc"], ["a"], ["b"]]
        assert [await one.result(timeout=1) for one in many] == ["A", "B"]


async def test_inline_an_item_that_failed_is_the_callers_error() -> None:
    with testing.inline(app) as kit:
        with pytest.raises(GiveUp, match="empty"):
            await embed.enqueue("")
        assert [job.state for job in kit.enqueued(state=State.FAILED)] == [State.FAILED]
    with testing.inline(app, errors="store"):
        job = await embed.enqueue("")
        with pytest.raises(JobFailed, match="empty"):
            await job.result(timeout=1)
