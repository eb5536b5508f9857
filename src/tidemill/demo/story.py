"""What happens in the demo, in order."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from tidemill.client.handle import JobHandle
from tidemill.demo.tasks import UNREADABLE, Demo
from tidemill.errors import JobCancelled, JobFailed

SONGS, LETTERS, PAGES = 60, 12, 4
HOSTS = ("blue.example", "green.example", "red.example")
PAUSE = 5.0
PATIENCE = 50.0

Say = Callable[[str], None]


async def tell(demo: Demo, say: Say) -> Counter[str]:
    """Enqueue, steer, and wait for every job. Answers how many ended how."""
    app = demo.app
    now = (await app.store.read_clock()).wall
    demo.witness.paused = asyncio.get_running_loop().time()
    await app.pause("mail", until=now + PAUSE, reason="the mail server rests")
    say(f"the queue mail is paused for {PAUSE:g} s; it opens by itself")
    jobs: list[JobHandle[Any]] = []
    jobs += await app.enqueue_many(demo.describe.job(f"song {number}") for number in range(SONGS))
    say(f"{SONGS} songs enqueued in one trip; those ending in 3 and 8 will meet a busy line")
    jobs += await app.enqueue_many(demo.fetch.job(host, page) for page in range(PAGES) for host in HOSTS)
    say(f"{PAGES} pages of each of {len(HOSTS)} hosts enqueued; one at a time per host")
    jobs += await app.enqueue_many(demo.send.job(number) for number in range(LETTERS))
    jobs.append(await demo.describe.using(priority=1).enqueue(UNREADABLE))
    say("one song that cannot be described enqueued; no retry will be spent on it")
    jobs.append(await _cancelled_while_running(demo, say))
    return Counter(await asyncio.gather(*(_ending(job) for job in jobs)))


async def _cancelled_while_running(demo: Demo, say: Say) -> JobHandle[None]:
    job = await demo.play.using(priority=1).enqueue()
    await demo.playing.wait()
    await job.cancel("nobody listens")
    say("a job of ten minutes started and was cancelled while it ran")
    return job


async def _ending(job: JobHandle[Any]) -> str:
    try:
        await job.result(timeout=PATIENCE)
    except JobFailed:
        return "failed"
    except JobCancelled:
        return "cancelled"
    return "done"
