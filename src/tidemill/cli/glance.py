"""Everything at a glance: what `top` reads, and how it draws it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

import msgspec

from tidemill.app import Tidemill
from tidemill.cli.output import moment, printable, size
from tidemill.cli.pools.words import brief, gauge, named, state, used
from tidemill.cli.queues.words import paused, waited
from tidemill.cli.table import Column, Fitted, fitted
from tidemill.cli.target import Target
from tidemill.contract.reader import Minute, WorkerInfo
from tidemill.contract.upkeep import StoreFacts
from tidemill.core.states import State
from tidemill.inspect.draining import Forecast
from tidemill.inspect.inspector import Inspector
from tidemill.inspect.pools import PoolStatus
from tidemill.inspect.views import QueueView
from tidemill.inspect.words import duration, plural

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

MINUTE = 60.0
SHOWN = (State.READY, State.RUNNING, State.SCHEDULED, State.WAITING, State.FAILED)


class Rate(msgspec.Struct, frozen=True):
    """Jobs a minute, over the minute that ends now."""

    done: float
    failed: float


class Glance(msgspec.Struct, frozen=True, kw_only=True):
    now: float
    store: StoreFacts
    queues: tuple[QueueView, ...]
    rates: dict[str, Rate]
    pools: tuple[PoolStatus, ...]
    workers: tuple[WorkerInfo, ...]


async def glance(app: Tidemill) -> Glance:
    return await glance_again(app.inspect)


async def glance_again(inspector: Inspector) -> Glance:
    """By one that has looked before, if it has."""
    overview = await inspector.overview(sparing=True)
    rates: dict[str, Rate] = {}
    for view in overview.queues:
        minutes = await inspector.history(view.name, overview.now - 2 * MINUTE)
        rates[view.name] = rate(minutes, overview.now)
    return Glance(
        now=overview.now,
        store=overview.store,
        queues=overview.queues,
        rates=rates,
        pools=overview.pools,
        workers=overview.workers,
    )


def rate(minutes: list[Minute], now: float) -> Rate:
    """The minute that runs, and as much of the one before as is missing in it."""
    begun = now // MINUTE * MINUTE
    missing = 1 - (now - begun) / MINUTE
    share = {begun: 1.0, begun - MINUTE: missing}
    return Rate(
        done=round(sum(minute.done * share.get(minute.at, 0.0) for minute in minutes), 1),
        failed=round(sum(minute.failed * share.get(minute.at, 0.0) for minute in minutes), 1),
    )


_GOES = {State.SCHEDULED: 4, State.WAITING: 6, State.FAILED: 1}

QUEUES = (
    Column("queue"),
    *(Column(state, goes=_GOES.get(state, 0), right=True) for state in SHOWN),
    Column("done/min", goes=3, right=True),
    Column("failed/min", goes=5, right=True),
    Column("oldest", goes=2, right=True),
    Column("drained in", goes=2, right=True),
    Column("paused", goes=1, cut="end"),
)

POOLS = (
    Column("pool", cut="end", least=8),
    Column("limit"),
    Column("used", goes=1),
    Column("", right=True),
    Column("waiting", goes=3, right=True),
    Column("drained in", goes=2, right=True),
    Column("state", goes=1, cut="end", least=14),
)
MOST_POOLS = 12
"""Rows of limits: the rest of the screen is for workers."""

WORKERS = (
    Column("worker"),
    Column("slots", right=True),
    Column("seen", goes=1, right=True),
    Column("where", goes=3, cut="end"),
    Column("serves", goes=2, cut="end"),
)


def screen(seen: Glance, target: Target, width: int, *, live: bool = False) -> Group:
    from rich.console import Group
    from rich.text import Text

    slots = sum(worker.concurrency for worker in seen.workers)
    held = sum(worker.holds for worker in seen.workers)
    large = f", {size(seen.store.bytes)}" if seen.store.bytes is not None else ""
    staff = f"{plural(len(seen.workers), 'worker')}, {held} of {slots} slots taken"
    return Group(
        Text(printable(f"{seen.store.location}{large}")),
        Text(f"{staff}   {moment(seen.now)}{'   q ends' if live else ''}"),
        Text(),
        *_lines(
            fitted(QUEUES, (_queue(view, seen.rates[view.name], seen.now) for view in seen.queues), width),
            map(_style, seen.queues),
        ),
        Text(),
        *_pools(seen, width),
        *(
            _lines(fitted(WORKERS, (_worker(worker, seen.now) for worker in seen.workers), width))
            if seen.workers
            else [Text(f"no worker is running: {target.worker_command()} starts one")]
        ),
    )


def _pools(seen: Glance, width: int) -> Iterator[Text]:
    """The fullest first; closed ones before all."""
    from rich.text import Text

    rows = [(pool, limit) for pool in seen.pools for limit in pool.limits]
    rows.sort(key=lambda row: (row[0].is_open, -row[1].used / row[1].amount))
    shown = rows[:MOST_POOLS]
    if not shown:
        return
    cells = (
        (
            named(pool),
            limit.name,
            gauge(limit),
            used(limit),
            pool.waiting or "",
            _left(pool.forecast, seen.now),
            state(pool, brief),
        )
        for pool, limit in shown
    )
    yield from _lines(fitted(POOLS, cells, width), ("" if pool.is_open else "yellow" for pool, _ in shown))
    if len(rows) > len(shown):
        yield Text(f"and {len(rows) - len(shown)} more: tidemill pools shows all")
    yield Text()


def _left(forecast: Forecast | None, now: float) -> str:
    if forecast is None:
        return ""
    return "never" if forecast.done_at is None else duration(max(0.0, forecast.done_at - now))


def _queue(view: QueueView, per_minute: Rate, now: float) -> Sequence[object]:
    return (
        view.name,
        *(view.counts[state] for state in SHOWN),
        f"{per_minute.done:g}",
        f"{per_minute.failed:g}",
        waited(view.latency),
        _left(view.forecast, now),
        paused(view.pause),
    )


def _style(view: QueueView) -> str:
    """What waits on purpose, and what waits for nobody."""
    if view.pause:
        return "yellow"
    return "red" if view.counts[State.READY] and not view.workers else ""


def _worker(worker: WorkerInfo, now: float) -> Sequence[object]:
    return (
        worker.id,
        f"{worker.holds}/{worker.concurrency}",
        f"{waited(max(0.0, now - worker.seen))} ago",
        f"{worker.host}:{worker.pid}",
        ", ".join(worker.queues),
    )


def _lines(table: Fitted, styles: Iterable[str] = ()) -> Iterator[Text]:
    from rich.text import Text

    yield Text(table.heading, "bold")
    for line, style in zip_longest(table.lines, styles, fillvalue=""):
        yield Text(line, style)
