"""Who waits for an embedding and who is being embedded, in the order they come (E8).

The counts are exact. The list of a long queue takes time to read, so it is read for everybody at once, and
kept for twenty times as long as that took.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tidemill import Filter, Job, State
from tidemill_apps.articles.glance import Glance, Line
from tidemill_apps.articles.holding import Holding
from tidemill_apps.articles.hurrying import WAITS

if TYPE_CHECKING:
    from tidemill_apps.articles.articles import Articles

SHOWN = 100
"""So many of each kind are listed."""
LOOKED = 10_000
"""So many that wait are put in order; of more, the newest."""
QUICK, SHARE = 0.05, 20
"""A reading that took so many seconds is kept for so many times as long."""


class EmbedTask(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`add_time` is in milliseconds, as the source has it."""

    post_id: int
    title: str
    hide: str
    priority: int
    add_time: int


class Running(EmbedTask, frozen=True, kw_only=True, rename="camel"):
    """`fraction` is how far it is, from 0 to 1, and `note` what it does."""

    fraction: float | None
    note: str | None


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The lists have the first 100 at most; `queue_shown` and `processing_shown` say how many those are.
    `held` is why nothing is embedded for now, None while articles are."""

    queue_length: int
    processing_count: int
    queue_tasks: tuple[EmbedTask, ...]
    processing_tasks: tuple[Running, ...]
    queue_shown: int
    processing_shown: int
    held: str | None


class Waiting:
    def __init__(self, articles: Articles) -> None:
        self._app, self._queue = articles.app, articles.queue
        self._glance, self._holding = Glance(articles.posts), Holding(articles)
        self._turn = asyncio.Lock()
        self._first: tuple[Job, ...] = ()
        self._good_until = 0.0

    async def status(self) -> QueueStatus:
        counts = (await self._app.inspect.counts()).get(self._queue, {})
        waiting = sum(counts.get(state, 0) for state in WAITS)
        running = await self.running()
        begun = {job.id for job in running}
        first = [job for job in await self.first() if job.id not in begun] if waiting else []
        shown = await self._glance.of({post_of(job) for job in (*first, *running)})
        tasks = tuple(EmbedTask(**_task(job, shown)) for job in first if post_of(job) in shown)
        runs = tuple(
            Running(**_task(job, shown), fraction=job.progress, note=job.note)
            for job in running
            if post_of(job) in shown
        )
        return QueueStatus(
            queue_length=waiting,
            processing_count=counts.get(State.RUNNING, 0),
            queue_tasks=tasks,
            processing_tasks=runs,
            queue_shown=len(tasks),
            processing_shown=len(runs),
            held=await self._holding.reason(),
        )

    async def running(self) -> tuple[Job, ...]:
        """Those that began first come first."""
        wanted = Filter(queue=self._queue, states=(State.RUNNING,))
        page = await self._app.inspect.find(wanted, limit=SHOWN)
        return tuple(sorted(page.jobs, key=lambda job: (job.started or 0.0, job.seq)))

    async def first(self) -> tuple[Job, ...]:
        """Of those that wait, as they will be called."""
        async with self._turn:
            began = self._app.clock.boot()
            if began >= self._good_until:
                wanted = Filter(queue=self._queue, states=WAITS)
                page = await self._app.inspect.find(wanted, limit=LOOKED, looks=LOOKED)
                self._first = tuple(sorted(page.jobs, key=_turn)[:SHOWN])
                took = self._app.clock.boot() - began
                self._good_until = began + SHARE * took if took > QUICK else 0.0
            return self._first


def post_of(job: Job) -> int:
    """Which article a job is for: a batch task's payload is one item."""
    return msgspec.json.decode(job.payload, type=_Payload).item


class _Payload(msgspec.Struct, frozen=True):
    item: int


def _turn(job: Job) -> tuple[bool, int, float, int]:
    """What is ready goes before what waits for its time."""
    return (
        job.state is not State.READY,
        job.priority,
        job.due if job.state is State.SCHEDULED else 0.0,
        job.seq,
    )


def _task(job: Job, shown: Mapping[int, Line]) -> dict[str, Any]:
    line = shown[post_of(job)]
    return {
        "post_id": line.id,
        "title": line.title,
        "hide": line.hide,
        "priority": job.priority,
        "add_time": int(job.created * 1000),
    }
