"""What a queue is doing, put together from what a store knows of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from tidemill.contract.queues import QueueInfo
from tidemill.contract.reader import Backlog, Minute, WorkerInfo
from tidemill.contract.store import Store
from tidemill.core.states import LIVE, State
from tidemill.errors import QueueNotFound
from tidemill.inspect.days import Days
from tidemill.inspect.draining import Drains
from tidemill.inspect.views import QueueView


async def view_all(store: Store, found: Drains, days: Days) -> list[QueueView]:
    """`found` is the forecast; `days` may know minutes from before."""
    return await _views(store, await store.queues(), found, days)


async def view_one(store: Store, name: str, found: Drains, days: Days) -> QueueView:
    [view] = await _views(store, [await require(store, name)], found, days)
    return view


async def require(store: Store, name: str) -> QueueInfo:
    """A mistyped name is told: it must neither look like an empty queue nor make one."""
    known = {info.name: info for info in await store.queues()}
    if name not in known:
        raise QueueNotFound(f"there is no queue {name!r}; there are: {', '.join(known) or 'none yet'}")
    return known[name]


async def _views(store: Store, infos: Sequence[QueueInfo], found: Drains, days: Days) -> list[QueueView]:
    counts, workers = await store.counts(), await store.workers()
    views = []
    for info in infos:
        now = (await store.read_clock()).wall
        backlog = await store.backlog(info.name)
        day = await days.of(store, info.name, now)
        view = _view(info, counts.get(info.name, {}), backlog, day, workers=workers, now=now)
        views.append(replace(view, forecast=found.queues.get(info.name)))
    return views


def _view(
    info: QueueInfo,
    counts: Mapping[State, int],
    backlog: Backlog,
    day: Sequence[Minute],
    *,
    workers: Sequence[WorkerInfo],
    now: float,
) -> QueueView:
    done, failed = sum(minute.done for minute in day), sum(minute.failed for minute in day)
    return QueueView(
        name=info.name,
        counts={state: counts.get(state, 0) for state in State},
        size=sum(counts.get(state, 0) for state in LIVE),
        retrying=backlog.retrying,
        latency=None if backlog.oldest_ready is None else max(0.0, now - backlog.oldest_ready),
        next_due=backlog.next_due,
        last_ended=backlog.last_ended,
        processed=done + failed,
        failed=failed,
        cancelled=sum(minute.cancelled for minute in day),
        retried=sum(minute.retried for minute in day),
        reclaimed=sum(minute.reclaimed for minute in day),
        dropped_early=sum(minute.dropped_early for minute in day),
        pause=info.pause if info.pause is not None and info.pause.closed(now) else None,
        settings=info.settings,
        declared=info.declared,
        override=info.override,
        workers=tuple(worker.id for worker in workers if info.name in worker.queues),
        forecast=None,
    )
