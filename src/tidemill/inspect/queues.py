"""Builds queue views from counts, backlog and the cached history of the last day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from tidemill.contract.queues import QueueInfo
from tidemill.contract.reader import Backlog, QueueMinute, WorkerInfo
from tidemill.contract.store import Store
from tidemill.core.queues import DAY_SECONDS
from tidemill.core.states import LIVE, State
from tidemill.errors import QueueNotFound
from tidemill.inspect.forecast import Forecasts
from tidemill.inspect.views import QueueView

RECENT_SECONDS = 120.0
"""The newest minutes may still change, so they are read each time."""
RELOAD_SECONDS = 600.0
"""All minutes are read again after this time: a clock set back or a long transaction can change past
minutes."""


class CachedMinutes(msgspec.Struct, frozen=True):
    """The cached counters per minute of one queue. `read` is the wall time at which all minutes were last
    read."""

    read: float
    minutes: Sequence[QueueMinute]


class DailyHistoryCache:
    """Caches the counters per minute of the last 24 hours for each queue. Past minutes are read once and then
    again every ten minutes."""

    def __init__(self) -> None:
        self._cache: dict[str, CachedMinutes] = {}

    async def minutes_of(self, store: Store, queue: str, now: float) -> Sequence[QueueMinute]:
        known = self._cache.get(queue)
        if known is None or not 0 <= now - known.read < RELOAD_SECONDS:
            known = CachedMinutes(now, await store.history(queue, now - DAY_SECONDS))
        else:
            known = CachedMinutes(known.read, await _add_recent(store, queue, known.minutes, now))
        self._cache[queue] = known
        return known.minutes


async def _add_recent(
    store: Store, queue: str, minutes: Sequence[QueueMinute], now: float
) -> list[QueueMinute]:
    fresh = await store.history(queue, now - RECENT_SECONDS)
    first, since = (now - DAY_SECONDS) // 60 * 60, (now - RECENT_SECONDS) // 60 * 60
    return [minute for minute in minutes if first <= minute.at < since] + fresh


async def load_queue_views(
    store: Store, forecasts: Forecasts, history_cache: DailyHistoryCache
) -> list[QueueView]:
    """Returns the views of all queues. `forecasts` has their forecasts, and `history_cache` the history of
    the last 24 hours."""
    return await _load_views(store, await store.queues(), forecasts, history_cache)


async def load_queue_view(
    store: Store, name: str, forecasts: Forecasts, history_cache: DailyHistoryCache
) -> QueueView:
    [view] = await _load_views(store, [await require_queue(store, name)], forecasts, history_cache)
    return view


async def require_queue(store: Store, name: str) -> QueueInfo:
    """Returns the queue. Raises QueueNotFound for an unknown name. Otherwise a mistyped name would look like
    an empty queue, or create one."""
    known = {info.name: info for info in await store.queues()}
    if name not in known:
        raise QueueNotFound(f"there is no queue {name!r}; there are: {', '.join(known) or 'none yet'}")
    return known[name]


async def _load_views(
    store: Store, infos: Sequence[QueueInfo], forecasts: Forecasts, history_cache: DailyHistoryCache
) -> list[QueueView]:
    counts, workers = await store.counts(), await store.workers()
    views = []
    for info in infos:
        now = (await store.read_clock()).wall
        backlog = await store.backlog(info.name)
        day = await history_cache.minutes_of(store, info.name, now)
        view = _make_view(info, counts.get(info.name, {}), backlog, day, workers=workers, now=now)
        views.append(replace(view, forecast=forecasts.queues.get(info.name)))
    return views


def _make_view(
    info: QueueInfo,
    counts: Mapping[State, int],
    backlog: Backlog,
    day: Sequence[QueueMinute],
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
