"""Q3: each of the common questions has a redis-cli line, and the page's lines answer them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis

from tests.docs.pages import page, rows
from tidemill.core.claims import Claimed, ClaimRequest, Settlement, Share
from tidemill.core.job import Error, Group, NewJob
from tidemill.core.outcomes import Done, Fail
from tidemill.stores.redis import RedisStore

PAGE = page("how-to/ask-redis.md")
LINES = {question.rstrip("?"): line.strip("`") for question, line in rows(PAGE)}
SAY_THE_WORDS = "redis-cli() { printf '%s\\0' \"$@\"; }; "


@pytest.fixture
async def store(redis_url: str) -> AsyncIterator[RedisStore]:
    opened = await RedisStore(redis_url).open()
    yield opened
    await opened.close()


@pytest.fixture
def answer(redis_url: str) -> Any:
    """What redis-cli would send and be told; not every machine has it."""
    client: Any = redis.Redis.from_url(redis_url)

    def ask(line: str) -> Any:
        said = subprocess.run(
            ["bash", "-c", SAY_THE_WORDS + line], stdout=subprocess.PIPE, check=True, timeout=10
        )
        return client.execute_command(*said.stdout.split(b"\0")[:-1])

    yield ask
    client.close()


async def work(store: RedisStore) -> list[Claimed]:
    """One queue with a job in every state a person asks for, and another one."""
    jobs = [NewJob(id=f"feed-{n}", task="rss:fetch", payload=b'{"n": %d}' % n) for n in range(7, 12)]
    later = NewJob(id="soon", task="rss:fetch", payload=b"{}", delay=600.0)
    much_later = NewJob(id="tomorrow", task="rss:fetch", payload=b"{}", delay=86_400.0)
    await store.insert(
        [
            Group("rss", (*jobs, later, much_later)),
            Group("podcast", (NewJob(id="p", task="p", payload=b"{}"),)),
        ]
    )
    request = ClaimRequest(worker="w", number=1, shares=(Share("rss", 3),), limit=3, lease=30.0)
    held = (await store.claim(request)).jobs
    done, failed, _ = held
    await store.settle(
        [
            Settlement(done.id, done.fence, done.claim, Done()),
            Settlement(failed.id, failed.fence, failed.claim, Fail(Error("ValueError", "no such feed"))),
        ]
    )
    return held


async def test_q3_every_line_of_the_page_answers_its_question(store: RedisStore, answer: Any) -> None:
    held = await work(store)
    said = {question: answer(line) for question, line in LINES.items()}
    assert sorted(said["Which queues are there"]) == [b"podcast", b"rss"]
    assert [int(count or 0) for count in said["How is one of them doing"]] == [2, 1, 2, 1, 1]
    assert int(said["How many jobs are ready"]) == 2
    assert [member[6:] for member in said["Which jobs are running"]] == [held[2].id.encode()]
    assert [member[6:] for member in said["Which are due in the next hour"]] == [b"soon"]
    assert b'{"n": 7}' in said["What is known of one job"]
    assert [member[6:] for member in said["Which failed last, and may be tried again"]] == [b"feed-8"]
    history = said["How many failed, minute by minute"]
    assert any(b"failed" in field for field in history)
    assert len(said) == 8


async def test_q3_the_line_that_sends_a_job(store: RedisStore, answer: Any) -> None:
    (line,) = re.findall(r"^redis-cli XADD.*$", PAGE, re.MULTILINE)
    answer(line)
    (arrival,) = await store.arrivals(10)
    assert (arrival.id, arrival.task) == ("feed-8", "rss:fetch")
