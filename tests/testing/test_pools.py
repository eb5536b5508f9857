"""Pools in the test kit: time passes as the pools of the waiting jobs open (P15)."""

from __future__ import annotations

import pytest

from tidemill import Day, Limit, State, Tidemill, testing
from tidemill.testing.virtual_loop import run_virtual

app = Tidemill("memory://")
gemini = app.pool("gemini", Limit.requests(10, per=5.0), Limit.requests(60, per=Day("America/Los_Angeles")))
pairs = app.pool("pairs", Limit.requests(2, per=60.0))
site = app.pool("site", Limit.requests(1, per=10.0), keyed=True)
calls: list[str] = []


@app.task(pool=gemini)
async def describe(song: str) -> str:
    calls.append(song)
    return song.upper()


@app.batch_task(max_items=2, linger=3, pool=pairs)
async def embed(texts: list[str]) -> list[int]:
    calls.append(" ".join(texts))
    return [len(text) for text in texts]


@app.task(pool=site.by(lambda url: url.split("/")[0]))
def fetch(url: str) -> None:
    calls.append(url)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    calls.clear()


def test_the_plain_kit_follows_a_pool() -> None:
    with testing.kit(app) as kit:
        for number in range(80):
            describe.enqueue_sync(f"song{number}")
        kit.run_for(20)
        assert 30 <= len(calls) <= 40
        kit.run_for(280)
        assert len(calls) == 60, "the day's allowance"
        kit.run_for(86_400)
        assert len(calls) == 80


async def test_the_awaited_kit_follows_a_pool_on_a_real_loop() -> None:
    async with testing.kit(app) as kit:
        for number in range(25):
            await describe.enqueue(f"song{number}")
        await kit.run_for(20)
        assert len(calls) == 25


def test_the_awaited_kit_follows_a_pool_in_virtual_time() -> None:
    async def main() -> None:
        async with testing.kit(app) as kit:
            for number in range(25):
                await describe.enqueue(f"song{number}")
            await kit.run_for(20)
            assert len(calls) == 25

    run_virtual(main())


def test_batches_in_the_kit_wait_for_company_and_for_their_pool() -> None:
    with testing.kit(app) as kit:
        jobs = [embed.enqueue_sync(text) for text in "abcdefg"]
        kit.run_for(30)
        assert calls == ["a b", "c d"]
        kit.run_for(60)
        assert calls == ["a b", "c d", "e f", "g"]
        assert [kit.result(job) for job in jobs] == [1] * 7


def test_each_key_of_a_pool_opens_by_itself() -> None:
    with testing.kit(app) as kit:
        for url in ("a/1", "a/2", "a/3", "b/1", "b/2"):
            fetch.enqueue_sync(url)
        kit.run_for(12)
        assert sorted(calls) == ["a/1", "a/2", "b/1", "b/2"]


def test_jobs_that_wait_for_a_pool_stay_when_idle_and_say_so() -> None:
    with testing.kit(app) as kit:
        jobs = [describe.enqueue_sync(f"song{number}") for number in range(12)]
        kit.run_until_idle()
        assert len(calls) == 10
        assert kit.job(jobs[-1]).state is State.READY
        with pytest.raises(AssertionError, match="`run_for` lets time pass") as failure:
            kit.result(jobs[-1])
        assert "pool 'gemini' allows 10 requests per 5 s" in str(failure.value)


def test_a_pool_without_an_end_ends_the_run() -> None:
    with testing.kit(app) as kit:
        describe.enqueue_sync("song")
        kit.run(_closed())
        kit.run_for(3600)
        assert calls == []


async def _closed() -> None:
    await app.inspect.close_pool("gemini", by="ann", reason="invoice")
