"""insert: plain jobs by one script for all groups, any others by the engine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from struct import Struct

from tidemill.core.job import Group, NewJob, problem_with
from tidemill.core.queues import Inserted, Verdict
from tidemill.engine import insert as engine
from tidemill.engine import plans
from tidemill.stores.redis import scripts
from tidemill.stores.redis.bounds import (
    BYTES,
    INSERTED,
    INSERTED_BYTES,
    STEPPED,
    Weight,
    runs,
    weight_of,
)
from tidemill.stores.redis.records import EXPIRES, MORE, NO_MORE, SHORT, TIME, More, tail
from tidemill.stores.redis.slow import Slow
from tidemill.stores.redis.wire import Argument

INSERT, INSERT_ONE = scripts.load("insert"), scripts.load("insert_one")
DELAY, AT = 2048, 4096
BODY, PRIORITY = Struct(">Hh"), Struct(">h")
PLAIN, WITH_MORE = (b"r" + SHORT.pack(flags) for flags in (0, MORE))
NEVER_RUN = bytes(12)
"""No attempts, no crashes, the first generation."""


async def insert(slow: Slow, groups: Sequence[Group]) -> list[list[Inserted]]:
    """Groups are taken in order, so that places in line are given in the order jobs were sent."""
    if len(groups) == 1 and len(groups[0].jobs) == 1 and await _alone(slow, groups[0]):
        return [[Inserted(Verdict.ACCEPTED, groups[0].jobs[0].id)]]
    answers: list[list[Inserted]] = []
    while left := groups[len(answers) :]:
        plain = next(runs(takewhile(_is_plain, left), _weight, (INSERTED, INSERTED_BYTES)), [])
        done = int(await slow.shard.run(INSERT, *_words(plain), repeatable=True)) if plain else 0
        answers += [[Inserted(Verdict.ACCEPTED, job.id) for job in group.jobs] for group in plain[:done]]
        if done < len(plain):
            answers += await _by_the_engine(slow, plain[done : done + 1])
        else:
            special = takewhile(lambda group: not _is_plain(group), left[done:])
            for some in runs(special, _weight, (STEPPED, BYTES)):
                answers += await _by_the_engine(slow, some)
    return answers


async def _alone(slow: Slow, group: Group) -> bool:
    """Whether that was all there was to do."""
    (job,) = group.jobs
    if not _is_plain_job(job) or job.delay or job.at is not None or job.expires is not None:
        return False
    if problem_with(group) is not None:
        return False
    more = More("", job.timeout, job.trace, job.tags) if _has_more(job) else NO_MORE
    begin = WITH_MORE if more is not NO_MORE else PLAIN
    queue = group.queue.encode()
    end = NEVER_RUN + SHORT.pack(len(queue)) + queue + tail(job.task, more, job.payload)
    words = (queue, job.id, job.priority, begin, PRIORITY.pack(job.priority), end)
    return bool(await slow.shard.run(INSERT_ONE, *words, repeatable=True))


async def _by_the_engine(slow: Slow, groups: Sequence[Group]) -> list[list[Inserted]]:
    return await slow.run(plans.insert(groups), lambda records: engine.insert(records, groups))


def _weight(group: Group) -> Weight:
    return weight_of(group.jobs)


def _is_plain(group: Group) -> bool:
    return (
        all(_is_plain_job(job) for job in group.jobs)
        and len({job.id for job in group.jobs}) == len(group.jobs)
        and problem_with(group) is None
    )


def _is_plain_job(job: NewJob) -> bool:
    return (
        job.key is None and job.unique is None and job.flow is None and not job.needs and job.batching is None
    )


def _words(groups: Sequence[Group]) -> list[Argument]:
    words: list[Argument] = [len(groups)]
    for group in groups:
        words += (group.queue, len(group.jobs))
        for job in group.jobs:
            words += (job.id, _body(job))
    return words


def _body(job: NewJob) -> bytes:
    """All of its record but what only the store knows."""
    if not job.delay and job.at is None and job.expires is None and not _has_more(job):
        return BODY.pack(0, job.priority) + tail(job.task, NO_MORE, job.payload)
    more = More("", job.timeout, job.trace, job.tags)
    times = ((DELAY, job.delay if job.at is None else 0.0), (AT, job.at), (EXPIRES, job.expires))
    given = [(flag, time) for flag, time in times if time is not None and (time or flag != DELAY)]
    flags = sum(flag for flag, _ in given) | MORE * (more != NO_MORE)
    return b"".join(
        (
            BODY.pack(flags, job.priority),
            *(TIME.pack(time) for _, time in given),
            tail(job.task, more, job.payload),
        )
    )


def _has_more(job: NewJob) -> bool:
    return job.timeout is not None or job.trace is not None or bool(job.tags)
