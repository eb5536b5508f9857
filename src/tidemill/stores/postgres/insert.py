"""Implements `insert`: adds jobs on the fast path, or in the engine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from asyncpg import Record

from tidemill.contract.coordination import queue_topic
from tidemill.core.jobs import JobGroup, NewJob, problem_with_group
from tidemill.core.queues import InsertResult, InsertVerdict, QueueSettings
from tidemill.engine import insert as engine
from tidemill.engine import read_sets
from tidemill.stores.postgres.engine_runner import PostgresEngineRunner, timeout_for
from tidemill.stores.postgres.rows import collapse_equal, json_text, omit_empty, text_array
from tidemill.stores.postgres.statements import load_statements

SQL = load_statements("fast_path")
_SETTINGS = json_text(QueueSettings())


async def insert(runner: PostgresEngineRunner, groups: Sequence[JobGroup]) -> list[list[InsertResult]]:
    """Inserts the groups in order and returns one result per job. Jobs without key, pool, batch, unique key
    or flow take the fast path."""
    answers: list[list[InsertResult]] = []
    for plain, some in groupby(groups, _is_plain):
        adjacent = list(some)
        answers += await (_insert_plain if plain else _insert_by_engine)(runner, adjacent)
    return answers


def _is_plain(group: JobGroup) -> bool:
    return all(map(_is_plain_job, group.jobs)) and problem_with_group(group) is None


def _is_plain_job(job: NewJob) -> bool:
    is_keyless = job.key is None and not job.needs and job.batching is None
    return is_keyless and job.unique is None and job.flow is None


async def _insert_plain(runner: PostgresEngineRunner, groups: list[JobGroup]) -> list[list[InsertResult]]:
    jobs = [job for group in groups for job in group.jobs]
    if not jobs:
        return [[] for _ in groups]
    ids = [job.id for job in jobs]
    if len(set(ids)) < len(ids):
        return await _insert_by_engine(runner, groups)
    queues = list({group.queue: None for group in groups})
    if len(jobs) == 1 and not runner.connection.pool.pooled:
        rows = await _insert_one(runner, queues[0], jobs[0])
    else:
        rows = await _insert_many(runner, queues, groups, jobs)
    inserted = rows[0]["inserted"] if rows else 0
    if inserted:
        runner.connection.announce(map(queue_topic, queues))
    if inserted < len(jobs):
        # Some were sent before, perhaps by a retry of this call. The new ones are known by now.
        return await _insert_by_engine(runner, groups)
    return [[InsertResult(InsertVerdict.ACCEPTED, job.id) for job in group.jobs] for group in groups]


async def _insert_one(runner: PostgresEngineRunner, queue: str, job: NewJob) -> list[Record]:
    wall, *_ = runner.connection.clock.arguments()
    return await runner.connection.fetch(
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
        json_text(job.tags) if job.tags else None,
    )


async def _insert_many(
    runner: PostgresEngineRunner, queues: list[str], groups: list[JobGroup], jobs: list[NewJob]
) -> list[Record]:
    return await runner.connection.fetch(
        SQL.insert,
        *runner.connection.clock.arguments(),
        queues,
        _SETTINGS,
        [job.id for job in jobs],
        collapse_equal([group.queue for group in groups for _ in group.jobs]),
        collapse_equal([job.task for job in jobs]),
        [job.payload.decode() for job in jobs],
        text_array(collapse_equal([job.priority for job in jobs])),
        text_array(omit_empty([job.delay or None for job in jobs])),
        text_array(omit_empty([job.at for job in jobs])),
        text_array(omit_empty([job.expires for job in jobs])),
        text_array(omit_empty([job.timeout for job in jobs])),
        omit_empty([job.trace for job in jobs]),
        omit_empty([json_text(job.tags) if job.tags else None for job in jobs]),
        time_limit=timeout_for(len(jobs)),
    )


async def _insert_by_engine(runner: PostgresEngineRunner, groups: list[JobGroup]) -> list[list[InsertResult]]:
    return await runner.run(read_sets.insert(groups), lambda records: engine.insert(records, groups))
