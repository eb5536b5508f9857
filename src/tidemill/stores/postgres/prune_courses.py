"""prune: flows and schedules that have been kept long enough go, a flow behind its jobs."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence

from asyncpg import Record

from tidemill.contract import jobs
from tidemill.contract.wakeups import agenda_topic, course_topic
from tidemill.core.courses import REMEMBERED, Kind, memory_id
from tidemill.stores.postgres.statements import load
from tidemill.stores.postgres.step import Step

SQL = load("prune")
_PAGE = 25

Drop = Callable[[Step, list[str]], Awaitable[None]]


async def prune_courses(step: Step, limit: int, drop: Drop) -> int:
    """J83, F4. A job that is live holds its flow. In pages: those that are held are passed, the others go,
    however many there are."""
    now = (await step.time()).wall
    dropped, last = 0, (-math.inf, "", "")
    while dropped < limit:
        page = await step.fetch(SQL.outlived, now, *last, _PAGE, limit - dropped)
        dropped += await _prune_page(step, page, limit - dropped, drop)
        if len(page) < _PAGE:
            break
        last = (page[-1]["until"], page[-1]["kind"], page[-1]["id"])
    return dropped


async def _prune_page(step: Step, page: Sequence[Record], limit: int, drop: Drop) -> int:
    doomed: list[str] = []
    forgotten: list[tuple[Kind, str]] = []
    left: list[tuple[str, str]] = []
    for _, kind, id_, all_ended, held in page:
        ended = all_ended[: limit - len(doomed) - len(forgotten)]
        doomed += ended
        if not held and len(ended) == len(all_ended) and len(doomed) + len(forgotten) < limit:
            forgotten.append((Kind(kind), id_))
        else:
            left += [(id_, job) for job in ended]
    await drop(step, doomed)
    await _forget(step, forgotten)
    if left:
        await step.fetch(SQL.stir, *map(list, zip(*left, strict=True)))
        step.topics.add(agenda_topic(Kind.FLOW))
    return len(doomed) + len(forgotten)


async def _forget(step: Step, courses: Sequence[tuple[Kind, str]]) -> None:
    """With whatever has stirred them. No job of theirs is left that could end meanwhile."""
    if not courses:
        return
    await step.fetch(SQL.forget_courses, *map(list, zip(*courses, strict=True)))
    step.topics.update(course_topic(*course) for course in courses)
    if remembered := [(memory_id(kind, id_), id_) for kind, id_ in courses if kind in REMEMBERED]:
        time = await step.time()
        until = time.wall + jobs.MEMORY_OF_IDS, time.boot + jobs.MEMORY_OF_IDS
        await step.fetch(
            SQL.remember_courses, *map(list, zip(*remembered, strict=True)), *until, step.clock.boot_id
        )
