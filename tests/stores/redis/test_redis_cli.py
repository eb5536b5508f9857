"""Q3: every common question has a redis-cli command on the page, and these commands answer it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis

from tests.docs.pages import page, rows
from tidemill.core.claims import ClaimedJob, ClaimRequest, QueueShare, Settlement
from tidemill.core.jobs import Error, JobGroup, NewJob
from tidemill.core.outcomes import FinalFailure, Success
from tidemill.stores.redis import RedisStore

PAGE = page("how-to/ask-redis.md")
COMMANDS = {question.rstrip("?"): command.strip("`") for question, command in rows(PAGE)}
SAY_THE_WORDS = "redis-cli() { printf '%s\\0' \"$@\"; }; "


@pytest.fixture
async def store(redis_url: str) -> AsyncIterator[RedisStore]:
    opened = await RedisStore(redis_url).open()
    yield opened
    await opened.close()


@pytest.fixture
def answer(redis_url: str) -> Any:
    """Runs a command as redis-cli would; not every machine has redis-cli."""
    client: Any = redis.Redis.from_url(redis_url)

    def ask(command: str) -> Any:
        replies = subprocess.run(
            ["bash", "-c", SAY_THE_WORDS + command], stdout=subprocess.PIPE, check=True, timeout=10
        )
        return client.execute_command(*replies.stdout.split(b"\0")[:-1])

    yield ask
    client.close()


async def work(store: RedisStore) -> list[ClaimedJob]:
    """Creates one queue with a job in each common state, and a second queue."""
    jobs = [NewJob(id=f"feed-{n}", task="rss:fetch", payload=b'{"n": %d}' % n) for n in range(7, 12)]
    later = NewJob(id="soon", task="rss:fetch", payload=b"{}", delay=600.0)
    much_later = NewJob(id="tomorrow", task="rss:fetch", payload=b"{}", delay=86_400.0)
    await store.insert(
        [
            JobGroup("rss", (*jobs, later, much_later)),
            JobGroup("podcast", (NewJob(id="p", task="p", payload=b"{}"),)),
        ]
    )
    request = ClaimRequest(worker="w", number=1, shares=(QueueShare("rss", 3),), limit=3, lease=30.0)
    held = (await store.claim(request)).jobs
    done, failed, _ = held
    await store.settle(
        [
            Settlement(done.id, done.fence, done.claim, Success()),
            Settlement(
                failed.id, failed.fence, failed.claim, FinalFailure(Error("ValueError", "no such feed"))
            ),
        ]
    )
    return held


async def test_q3_every_command_of_the_page_answers_its_question(store: RedisStore, answer: Any) -> None:
    held = await work(store)
    replies = {question: answer(command) for question, command in COMMANDS.items()}
    assert sorted(replies["Which queues are there"]) == [b"podcast", b"rss"]
    assert [int(count or 0) for count in replies["How many jobs of a queue are in each state"]] == [
        2,
        1,
        2,
        1,
        1,
    ]
    assert int(replies["How many jobs are ready"]) == 2
    assert [member[6:] for member in replies["Which jobs are running"]] == [held[2].id.encode()]
    assert [member[6:] for member in replies["Which jobs are due in the next hour"]] == [b"soon"]
    assert b'{"n": 7}' in replies["What does the store know about one job"]
    assert [member[6:] for member in replies["Which jobs failed last"]] == [b"feed-8"]
    history = replies["How many failed, minute by minute"]
    assert any(b"failed" in field for field in history)
    assert len(replies) == 8


async def test_q3_the_command_that_sends_a_job_works(store: RedisStore, answer: Any) -> None:
    (command,) = re.findall(r"^redis-cli XADD.*$", PAGE, re.MULTILINE)
    answer(command)
    (arrival,) = await store.arrivals(10)
    assert (arrival.id, arrival.task) == ("feed-8", "rss:fetch")
