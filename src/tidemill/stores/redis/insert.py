"""The store method `insert`: one script adds jobs without key, pool, batch, unique key or flow (the fast
path). The engine adds all other jobs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from struct import Struct

from tidemill.core.jobs import JobGroup, NewJob, problem_with_group
from tidemill.core.queues import InsertResult, InsertVerdict
from tidemill.engine import insert as engine
from tidemill.engine import read_sets
from tidemill.stores.redis import scripts
from tidemill.stores.redis.engine_runner import RedisEngineRunner
from tidemill.stores.redis.job_codec import (
    EXPIRES,
    NO_OPTIONAL_FIELDS,
    OPTIONAL,
    SHORT,
    TIME,
    OptionalFields,
    encode_tail,
)
from tidemill.stores.redis.protocol import CommandArgument
from tidemill.stores.redis.shard import (
    MAX_BYTES_PER_SCRIPT,
    MAX_INSERTED_BYTES,
    MAX_INSERTED_JOBS,
    MAX_JOBS_PER_TRANSACTION,
    BatchWeight,
    split_by_weight,
    weigh_jobs,
)

INSERT, INSERT_ONE = scripts.load_script("insert"), scripts.load_script("insert_one")
DELAY, AT = 2048, 4096
BODY, PRIORITY = Struct(">Hh"), Struct(">h")
PLAIN, WITH_OPTIONAL_FIELDS = (b"r" + SHORT.pack(flags) for flags in (0, OPTIONAL))
NEVER_RUN = bytes(12)
"""Attempts, crashes and generation of a new job: all zero."""


async def insert(runner: RedisEngineRunner, groups: Sequence[JobGroup]) -> list[list[InsertResult]]:
    """Inserts the groups in order and returns one result per job. The order matters, because sequence numbers
    follow it."""
    if len(groups) == 1 and len(groups[0].jobs) == 1 and await _insert_one(runner, groups[0]):
        return [[InsertResult(InsertVerdict.ACCEPTED, groups[0].jobs[0].id)]]
    answers: list[list[InsertResult]] = []
    while left := groups[len(answers) :]:
        plain = next(
            split_by_weight(takewhile(_is_plain, left), _weight, (MAX_INSERTED_JOBS, MAX_INSERTED_BYTES)), []
        )
        done = int(await runner.shard.run(INSERT, *_arguments(plain), repeatable=True)) if plain else 0
        answers += [
            [InsertResult(InsertVerdict.ACCEPTED, job.id) for job in group.jobs] for group in plain[:done]
        ]
        if done < len(plain):
            answers += await _insert_by_engine(runner, plain[done : done + 1])
        else:
            special = takewhile(lambda group: not _is_plain(group), left[done:])
            for some in split_by_weight(special, _weight, (MAX_JOBS_PER_TRANSACTION, MAX_BYTES_PER_SCRIPT)):
                answers += await _insert_by_engine(runner, some)
    return answers


async def _insert_one(runner: RedisEngineRunner, group: JobGroup) -> bool:
    """Inserts one job with the smallest script. True if done; False, with nothing changed, if it cannot."""
    (job,) = group.jobs
    if not _is_plain_job(job) or job.delay or job.at is not None or job.expires is not None:
        return False
    if problem_with_group(group) is not None:
        return False
    optional = NO_OPTIONAL_FIELDS
    if _has_optional_fields(job):
        optional = OptionalFields("", job.timeout, job.trace, job.tags)
    begin = WITH_OPTIONAL_FIELDS if optional is not NO_OPTIONAL_FIELDS else PLAIN
    queue = group.queue.encode()
    end = NEVER_RUN + SHORT.pack(len(queue)) + queue + encode_tail(job.task, optional, job.payload)
    words = (queue, job.id, job.priority, begin, PRIORITY.pack(job.priority), end)
    return bool(await runner.shard.run(INSERT_ONE, *words, repeatable=True))


async def _insert_by_engine(
    runner: RedisEngineRunner, groups: Sequence[JobGroup]
) -> list[list[InsertResult]]:
    return await runner.run(read_sets.insert(groups), lambda records: engine.insert(records, groups))


def _weight(group: JobGroup) -> BatchWeight:
    return weigh_jobs(group.jobs)


def _is_plain(group: JobGroup) -> bool:
    return (
        all(_is_plain_job(job) for job in group.jobs)
        and len({job.id for job in group.jobs}) == len(group.jobs)
        and problem_with_group(group) is None
    )


def _is_plain_job(job: NewJob) -> bool:
    return (
        job.key is None and job.unique is None and job.flow is None and not job.needs and job.batching is None
    )


def _arguments(groups: Sequence[JobGroup]) -> list[CommandArgument]:
    words: list[CommandArgument] = [len(groups)]
    for group in groups:
        words += (group.queue, len(group.jobs))
        for job in group.jobs:
            words += (job.id, _encode_body(job))
    return words


def _encode_body(job: NewJob) -> bytes:
    """Returns the part of a job's record that the sender knows. The script adds the other fields."""
    if not job.delay and job.at is None and job.expires is None and not _has_optional_fields(job):
        return BODY.pack(0, job.priority) + encode_tail(job.task, NO_OPTIONAL_FIELDS, job.payload)
    optional = OptionalFields("", job.timeout, job.trace, job.tags)
    times = ((DELAY, job.delay if job.at is None else 0.0), (AT, job.at), (EXPIRES, job.expires))
    set_times = [(flag, time) for flag, time in times if time is not None and (time or flag != DELAY)]
    flags = sum(flag for flag, _ in set_times) | OPTIONAL * (optional != NO_OPTIONAL_FIELDS)
    return b"".join(
        (
            BODY.pack(flags, job.priority),
            *(TIME.pack(time) for _, time in set_times),
            encode_tail(job.task, optional, job.payload),
        )
    )


def _has_optional_fields(job: NewJob) -> bool:
    return job.timeout is not None or job.trace is not None or bool(job.tags)
