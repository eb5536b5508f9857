"""What happens in the demo, in order."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemill.client.handle import JobHandle
from tidemill.core.job import Job
from tidemill.core.states import State
from tidemill.demo.tasks import (
    BUSY_LINES,
    CRASH_LIMIT,
    UNREADABLE,
    app,
    convert,
    describe,
    fetch,
    play,
    playing,
    send,
    witness,
)
from tidemill.errors import JobCancelled, JobFailed

SONGS, LETTERS, PAGES = 60, 12, 4
HOSTS = ("blue.example", "green.example", "red.example")
PAUSE = 5.0
PATIENCE = 50.0

Say = Callable[[str], None]


@dataclass
class Told:
    """Every job of the story, how often it should run, and how it ended."""

    expected_runs: dict[str, int] = field(default_factory=dict)
    handles: list[JobHandle[Any]] = field(default_factory=list)
    ended: list[Job] = field(default_factory=list)

    def add(self, job: JobHandle[Any], runs: int = 1) -> JobHandle[Any]:
        self.handles.append(job)
        self.expected_runs[job.id] = runs
        return job

    def endings(self) -> Counter[State]:
        return Counter(job.state for job in self.ended)

    def of(self, task: str, state: State) -> list[Job]:
        return [job for job in self.ended if job.task == task and job.state is state]


async def tell(say: Say, deaths: Path) -> Told:
    """Enqueue, steer, and wait for every job."""
    told = Told()
    await _pause_mail(say)
    # Started first: its process takes a moment, and the neighbours are to be there when it dies.
    told.add(await convert.enqueue(str(deaths)), runs=CRASH_LIMIT)
    say("a job that kills its process is enqueued, among innocent ones")
    await _enqueue_songs(told, say)
    pages = [fetch.job(host, page) for page in range(PAGES) for host in HOSTS]
    for page in await app.enqueue_many(pages):
        told.add(page)
    say(f"{PAGES} pages of each of {len(HOSTS)} hosts enqueued; one at a time per host")
    for letter in await app.enqueue_many(send.job(number) for number in range(LETTERS)):
        told.add(letter)
    say(f"{LETTERS} letters enqueued; they wait for mail to open")
    await _cancel_while_running(told, say)
    told.ended = await asyncio.gather(*(_ended(job, say) for job in told.handles))
    return told


async def _pause_mail(say: Say) -> None:
    now = (await app.store.read_clock()).wall
    witness.paused = asyncio.get_running_loop().time()
    await app.inspect.pause("mail", until=now + PAUSE, reason="the mail server rests")
    say(f"the queue mail is paused for {PAUSE:g} s; it opens by itself")


async def _enqueue_songs(told: Told, say: Say) -> None:
    titles = [f"song {number}" for number in range(SONGS)]
    for title, song in zip(titles, await app.enqueue_many(map(describe.job, titles)), strict=True):
        told.add(song, runs=2 if title.endswith(BUSY_LINES) else 1)
    say(f"{SONGS} songs enqueued in one trip; a fifth of them will meet a busy line")
    told.add(await describe.using(priority=1).enqueue(UNREADABLE))
    say("a song that cannot be described enqueued; no retry will be spent on it")


async def _cancel_while_running(told: Told, say: Say) -> None:
    job = told.add(await play.using(priority=1).enqueue())
    await playing.wait()
    await job.cancel("nobody listens")
    say("a job of ten minutes started and was cancelled while it ran")


async def _ended(handle: JobHandle[Any], say: Say) -> Job:
    # Some are to end badly; the summary says whether they were the right ones.
    with suppress(JobFailed, JobCancelled):
        await handle.result(timeout=PATIENCE)
    job = await handle.status()
    if job.reason == "poison":
        say(f"the job that killed its process was set aside after {job.crashes} crashes")
    return job
