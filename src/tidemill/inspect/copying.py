"""Everything of one store into another, while nobody works on either.

Jobs come oldest first and get their places in that order, so whatever is in the target is the beginning of
it: a copy that was interrupted goes on by being repeated, and skips what is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from tidemill.contract.copying import Copies, JobCopy, PoolCopy, QueueCopy
from tidemill.contract.jobs import Arrival
from tidemill.contract.pools import PoolView
from tidemill.contract.queues import QueueInfo
from tidemill.contract.store import Store
from tidemill.core.courses import Kind
from tidemill.core.states import State
from tidemill.errors import ConfigurationError
from tidemill.inspect.words import plural

JOBS_AT_ONCE = 100
BYTES_AT_ONCE = 4 * 1024 * 1024
"""No step is a long one, whatever the payloads."""
COURSES_AT_ONCE = 100
ARRIVALS_AT_ONCE = 500

T = TypeVar("T")

Told = Callable[[int], None]
"""Called now and then with how many jobs are over."""


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """How much there is in the source, all of which is now in the target. `differences` are sentences, empty
    when both stores hold the same."""

    jobs: int
    flows: int
    schedules: int
    records: int
    ids: int
    queues: int
    pools: int
    arrivals: int
    reclaimed: int
    differences: tuple[str, ...]


async def copy(source: Store, target: Store, *, resume: bool = False, tell: Told = lambda _: None) -> Copied:
    """`resume`: what is in the target is from a copy that was interrupted."""
    await _require_no_workers(source, "the source")
    await _require_no_workers(target, "the target")
    if not resume:
        await _require_empty(target)
    reclaimed = await _reclaim(source)
    queues, pools = await _copy_settings(source, target)
    ids, fence = await _copy_ids(source, target)
    jobs, fence = await _copy_jobs(source, target, tell, fence)
    flows, schedules, records = [await _copy_courses(source, target, kind) for kind in Kind]
    arrivals = await _copy_arrivals(source, target)
    await target.copy_in(Copies(fence=fence))
    return Copied(
        jobs=jobs,
        flows=flows,
        schedules=schedules,
        records=records,
        ids=ids,
        queues=queues,
        pools=pools,
        arrivals=arrivals,
        reclaimed=reclaimed,
        differences=tuple(await _differences(source, target)),
    )


async def _require_no_workers(store: Store, which: str) -> None:
    alive = await store.workers()
    if alive:
        names = ", ".join(worker.id for worker in alive[:3])
        raise ConfigurationError(
            f"{which} has {plural(len(alive), 'live worker')} ({names}): end them, and wait for the leases "
            "of those that were killed; jobs that change meanwhile would be lost or run twice"
        )


async def _require_empty(target: Store) -> None:
    found = {
        "jobs": await target.counts(),
        "flows": await target.course_counts(Kind.FLOW),
        "schedules": await target.course_counts(Kind.SCHEDULE),
        "records": await target.course_counts(Kind.RECORD),
        "queues": await target.queues(),
        "pools": await target.pools(),
        "arrivals": await target.arrivals(1),
        "remembered ids": (await target.copy_ids()).ids,
    }
    there = [what for what, rows in found.items() if rows]
    if there:
        raise ConfigurationError(
            f"the target is not empty, it has {' and '.join(there)}: name an empty store, or go on with "
            "--resume where this is the rest of a copy that was interrupted"
        )


async def _reclaim(source: Store) -> int:
    """What workers that died left running comes back first, as it would with any other worker."""
    taken = await source.reclaim()
    running = sum(states.get(State.RUNNING, 0) for states in (await source.counts()).values())
    if running:
        raise ConfigurationError(
            f"{running} jobs of the source still run, by leases of dead workers: wait for their end (30 s if "
            "nothing else was set), then copy again"
        )
    return len(taken.ready) + len(taken.poison)


async def _copy_settings(source: Store, target: Store) -> tuple[int, int]:
    queues, pools = await source.queues(), await source.pools()
    for queue in queues:
        await target.copy_in(Copies(queues={queue.name: await _queue(source, target, queue)}))
    views: dict[str, list[PoolView]] = {}
    for view in pools:
        views.setdefault(view.name, []).append(view)
    for name, of_pool in views.items():
        await target.copy_in(Copies(pools={name: await _pool(source, target, of_pool)}))
    return len(queues), len(views)


async def _queue(source: Store, target: Store, queue: QueueInfo) -> QueueCopy:
    """Minutes are added to those that are there: one that was copied before is left out."""
    there = {minute.at for minute in await target.history(queue.name, 0.0)}
    minutes = await source.history(queue.name, 0.0)
    return QueueCopy(
        declared=queue.declared,
        override=queue.override,
        pause=queue.pause,
        history=tuple(minute for minute in minutes if minute.at not in there),
    )


async def _pool(source: Store, target: Store, views: Sequence[PoolView]) -> PoolCopy:
    pool = views[0]
    there = {minute.at for minute in await target.pool_history(pool.name, 0.0)}
    minutes = await source.pool_history(pool.name, 0.0)
    return PoolCopy(
        declared=pool.declared,
        override=pool.override,
        accounts={view.key: view.account for view in views if (view.key is not None) == pool.declared.keyed},
        history=tuple(minute for minute in minutes if minute.at not in there),
    )


async def _copy_ids(source: Store, target: Store) -> tuple[int, int]:
    """How many, and the highest fence among them."""
    cursor: str | None = ""
    count = fence = 0
    while cursor is not None:
        page = await source.copy_ids(cursor)
        if page.ids:
            await target.copy_in(Copies(ids=page.ids))
        fence = max([fence, *(known.fence for known in page.ids)])
        count, cursor = count + len(page.ids), page.cursor
    return count, fence


async def _copy_jobs(source: Store, target: Store, tell: Told, fence: int) -> tuple[int, int]:
    after = done = 0
    while jobs := await source.copy_jobs(after, JOBS_AT_ONCE):
        for some in _in_steps(jobs, _bytes_of):
            fence = max([fence, *(copied.job.fence for copied in some)])
            await target.copy_in(Copies(jobs=some, fence=fence))
            done += len(some)
            tell(done)
        after = jobs[-1].job.seq
    return done, fence


def _bytes_of(copied: JobCopy) -> int:
    kept = sum(len(checkpoint.result or b"") for checkpoint in copied.checkpoints)
    return len(copied.job.payload) + len(copied.job.result or b"") + kept


async def _copy_courses(source: Store, target: Store, kind: Kind) -> int:
    """Behind the jobs: where a flow is, there are all that have come of it."""
    cursor: str | None = None
    count = 0
    while True:
        page = await source.find_courses(kind, limit=COURSES_AT_ONCE, cursor=cursor)
        for some in _in_steps(page.courses, lambda course: len(course.record)):
            await target.copy_in(Copies(courses=some))
        count, cursor = count + len(page.courses), page.cursor
        if cursor is None:
            return count


def _in_steps(items: Sequence[T], bytes_of: Callable[[T], int]) -> Iterator[list[T]]:
    some: list[T] = []
    size = 0
    for item in items:
        mine = bytes_of(item)
        if some and size + mine > BYTES_AT_ONCE:
            yield some
            some, size = [], 0
        some.append(item)
        size += mine
    if some:
        yield some


async def _copy_arrivals(source: Store, target: Store) -> int:
    there = {arrival.id async for arrival in _arrivals(target)}
    count = 0
    some: list[Arrival] = []
    async for arrival in _arrivals(source):
        count += 1
        if arrival.id not in there:
            some.append(arrival)
        if len(some) == ARRIVALS_AT_ONCE:
            await target.copy_in(Copies(arrivals=some))
            some = []
    if some:
        await target.copy_in(Copies(arrivals=some))
    return count


async def _arrivals(store: Store) -> AsyncIterator[Arrival]:
    after = 0
    while found := await store.arrivals(ARRIVALS_AT_ONCE, after):
        for arrival in found:
            yield arrival
        after = found[-1].seq


async def _differences(source: Store, target: Store) -> list[str]:
    """Whatever came into the source meanwhile shows here too."""
    ours, theirs = await _counts(source), await _counts(target)
    return [
        f"{where} {ours[where, what]} {what} in the source and {theirs[where, what]} in the target"
        for where, what in sorted(ours.keys() | theirs.keys())
        if ours[where, what] != theirs[where, what]
    ]


async def _counts(store: Store) -> Counter[tuple[str, str]]:
    """By where, and what of it."""
    found: Counter[tuple[str, str]] = Counter()
    for queue, states in (await store.counts()).items():
        for state, jobs in states.items():
            found[f"queue {queue!r} has", f"{state} jobs"] = jobs
    for kind in Kind:
        for word, courses in (await store.course_counts(kind)).items():
            found["there are", f"{word} {kind}s"] = courses
    return found
