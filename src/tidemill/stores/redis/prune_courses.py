"""prune: flows and schedules that have been kept long enough go, and jobs of a flow with it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tidemill.core.courses import Course, Kind, memory_id
from tidemill.core.states import FINAL
from tidemill.engine import plans, wants
from tidemill.engine.courses import forget
from tidemill.engine.plans import Plan
from tidemill.engine.records import Records
from tidemill.stores.redis import keys
from tidemill.stores.redis.bounds import fitting
from tidemill.stores.redis.records import seq_and_id
from tidemill.stores.redis.slow import Slow

AT_ONCE = 100
"""So many leave in one step."""


async def prune_courses(slow: Slow, limit: int, wall: float) -> int:
    """J83, F4. The longest outlived first. Those that a live job holds are passed, and those that stay
    for any other reason: somebody brought one back, or there is nothing of that name."""
    shard, dropped, held = slow.shard, 0, 0
    while dropped < limit:
        order = (shard.key(keys.OUTLIVED), "-inf", wall, "LIMIT", held, AT_ONCE)
        over = await shard.ask("ZRANGEBYSCORE", *order)
        for name in over:
            if dropped < limit:
                gone, is_held = await _prune(slow, *keys.course_of(name.decode()), limit - dropped)
                dropped, held = dropped + gone, held + (is_held or not gone)
        if len(over) < AT_ONCE:
            break
    return dropped


async def _prune(slow: Slow, kind: Kind, id_: str, limit: int) -> tuple[int, bool]:
    """How many left, and whether a live job holds the course."""
    dropped, live = await _drop_parts(slow, id_, limit) if kind is Kind.FLOW else (0, 0)
    if live or dropped == limit:
        return dropped, bool(live)
    plan = Plan((wants.CourseOf(kind, id_), wants.Recalled(memory_id(kind, id_))))
    return dropped + await slow.run(plan, lambda records: _forget(records, kind, id_)), False


async def _drop_parts(slow: Slow, flow: str, limit: int) -> tuple[int, int]:
    """How many left, and how many were live."""
    shard, dropped, live = slow.shard, 0, 0
    while dropped < limit:
        some = await shard.ask("ZRANGE", shard.key(keys.parts(flow)), live, live + AT_ONCE - 1)
        ids = [seq_and_id(member)[1] for member in some]
        ends = await shard.ask("HMGET", shard.key(keys.part_ends(flow)), *ids) if ids else []
        ended = [id_ for id_, letter in zip(ids, ends, strict=True) if letter]
        live += len(ids) - len(ended)
        if ended:
            gone = await _drop(slow, flow, ended[: limit - dropped])
            dropped, live = dropped + gone, live + (not gone)
        if len(ids) < AT_ONCE:
            break
    return dropped, live


async def _drop(slow: Slow, flow: str, ids: Sequence[str]) -> int:
    gone = 0
    while ids:
        count = await fitting(slow.shard, ids)
        some, ids = ids[:count], ids[count:]
        jobs = plans.change(some)
        plan = Plan((wants.CourseOf(Kind.FLOW, flow), *jobs.first), jobs.follow)
        gone += await slow.run(plan, partial(_dropped, flow=flow, ids=some))
    return gone


def _dropped(records: Records, flow: str, ids: Sequence[str]) -> int:
    if _outlived(records, Kind.FLOW, flow) is None:
        return 0
    ended = [job for job in map(records.jobs.get, ids) if job is not None and job.state in FINAL]
    for job in ended:
        records.drop(job)
    return len(ended)


def _forget(records: Records, kind: Kind, id_: str) -> int:
    course = _outlived(records, kind, id_)
    if course is None:
        return 0
    forget(records, course)
    return 1


def _outlived(records: Records, kind: Kind, id_: str) -> Course | None:
    """Somebody may have brought it back since."""
    course = records.courses.get((kind, id_))
    is_over = course is not None and course.until is not None and course.until <= records.clock.wall()
    return course if is_over else None
