"""insert: requests become jobs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from asyncpg import Record

from tidemill.contract.wakeups import queue_topic
from tidemill.core.job import Group, NewJob, problem_with
from tidemill.core.queues import Inserted, QueueSettings, Verdict
from tidemill.engine import insert as engine
from tidemill.engine import plans
from tidemill.stores.postgres.columns import given, shared, words
from tidemill.stores.postgres.home import Home, patience_for
from tidemill.stores.postgres.rows import text_of
from tidemill.stores.postgres.statements import load

SQL = load("plain")
_SETTINGS = text_of(QueueSettings())


async def insert(home: Home, groups: Sequence[Group]) -> list[list[Inserted]]:
    """Groups are taken in order: those that follow one another and are plain go in together."""
    answers: list[list[Inserted]] = []
    for plain, some in groupby(groups, _is_plain):
        together = list(some)
        answers += await (_insert_plain if plain else _insert_slowly)(home, together)
    return answers


def _is_plain(group: Group) -> bool:
    return all(map(_is_plain_job, group.jobs)) and problem_with(group) is None


def _is_plain_job(job: NewJob) -> bool:
    lone = job.key is None and not job.needs and job.batching is None
    return lone and job.unique is None and job.flow is None


async def _insert_plain(home: Home, groups: list[Group]) -> list[list[Inserted]]:
    jobs = [job for group in groups for job in group.jobs]
    if not jobs:
        return [[] for _ in groups]
    ids = [job.id for job in jobs]
    if len(set(ids)) < len(ids):
        return await _insert_slowly(home, groups)
    queues = list({group.queue: None for group in groups})
    if len(jobs) == 1 and not home.connection.links.pooled:
        rows = await _send_one(home, queues[0], jobs[0])
    else:
        rows = await _send_all(home, queues, groups, jobs)
    inserted = rows[0]["inserted"] if rows else 0
    if inserted:
        home.connection.announce(map(queue_topic, queues))
    if inserted < len(jobs):
        # Somebody has sent some of them before, perhaps we ourselves. Those that were new are known by now.
        return await _insert_slowly(home, groups)
    return [[Inserted(Verdict.ACCEPTED, job.id) for job in group.jobs] for group in groups]


async def _send_one(home: Home, queue: str, job: NewJob) -> list[Record]:
    wall, *_ = home.connection.clock.asked()
    return await home.connection.fetch(
        SQL.insert_one,
        wall,
        queue,
        job.id,
        job.task,
        job.payload.decode(),
        job.priority,
        job.delay,
        job.at,
        job.expires,
        job.timeout,
        job.trace,
        text_of(job.tags) if job.tags else None,
    )


async def _send_all(home: Home, queues: list[str], groups: list[Group], jobs: list[NewJob]) -> list[Record]:
    return await home.connection.fetch(
        SQL.insert,
        *home.connection.clock.asked(),
        queues,
        _SETTINGS,
        [job.id for job in jobs],
        shared([group.queue for group in groups for _ in group.jobs]),
        shared([job.task for job in jobs]),
        [job.payload.decode() for job in jobs],
        words(shared([job.priority for job in jobs])),
        words(given([job.delay or None for job in jobs])),
        words(given([job.at for job in jobs])),
        words(given([job.expires for job in jobs])),
        words(given([job.timeout for job in jobs])),
        given([job.trace for job in jobs]),
        given([text_of(job.tags) if job.tags else None for job in jobs]),
        patience=patience_for(len(jobs)),
    )


async def _insert_slowly(home: Home, groups: list[Group]) -> list[list[Inserted]]:
    return await home.run(plans.insert(groups), lambda records: engine.insert(records, groups))
