"""`tidemill top`: a live screen of queues, pools and workers."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import TYPE_CHECKING

import click
import msgspec

from tidemill.app import Tidemill
from tidemill.cli.formatting import (
    format_gauge,
    format_minute,
    format_pause,
    format_pool_name,
    format_pool_state,
    format_used,
    format_wait,
)
from tidemill.cli.output import format_size, format_time, print_json, printable
from tidemill.cli.store_options import CommandTarget, with_target
from tidemill.cli.terminal import UNBOUNDED_WIDTH, Column, FittedTable, fit_table
from tidemill.contract.reader import QueueMinute, WorkerInfo
from tidemill.contract.store import StoreFacts
from tidemill.core.states import State
from tidemill.inspect.forecast import Forecast
from tidemill.inspect.formatting import format_duration, pluralize
from tidemill.inspect.inspector import Inspector
from tidemill.inspect.pools import PoolStatus
from tidemill.inspect.views import QueueView

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text


@contextmanager
def watch_key(key: str) -> Iterator[asyncio.Event]:
    """Context manager that yields an asyncio.Event. The event is set when the user presses `key` or closes
    the terminal."""
    loop, event, terminal = asyncio.get_running_loop(), asyncio.Event(), sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def read() -> None:
        typed = os.read(terminal, 64)
        if not typed or key.encode() in typed.lower():
            event.set()

    tty.setcbreak(terminal)
    loop.add_reader(terminal, read)
    try:
        yield event
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


MINUTE_SECONDS = 60.0
SHOWN_STATES = (State.READY, State.RUNNING, State.SCHEDULED, State.WAITING, State.FAILED)


class JobRate(msgspec.Struct, frozen=True):
    """The numbers of done and failed jobs per minute, measured over the last 60 seconds."""

    done: float
    failed: float


class TopSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The data of one screen of `tidemill top`. `now` is a wall time; `rates` maps queue names to job
    rates."""

    now: float
    store: StoreFacts
    queues: tuple[QueueView, ...]
    rates: dict[str, JobRate]
    pools: tuple[PoolStatus, ...]
    workers: tuple[WorkerInfo, ...]


async def load_top(app: Tidemill) -> TopSnapshot:
    return await refresh_top(app.inspect)


async def refresh_top(inspector: Inspector) -> TopSnapshot:
    """Returns the data of one screen. Pass the same inspector every time, because it caches forecasts."""
    overview = await inspector.overview(cached=True)
    rates: dict[str, JobRate] = {}
    for view in overview.queues:
        minutes = await inspector.history(view.name, overview.now - 2 * MINUTE_SECONDS)
        rates[view.name] = compute_rate(minutes, overview.now)
    return TopSnapshot(
        now=overview.now,
        store=overview.store,
        queues=overview.queues,
        rates=rates,
        pools=overview.pools,
        workers=overview.workers,
    )


def compute_rate(minutes: list[QueueMinute], now: float) -> JobRate:
    """Returns the job rates of the last 60 seconds, computed from counters per minute. Of the previous minute
    only the share within these 60 seconds counts."""
    begun = now // MINUTE_SECONDS * MINUTE_SECONDS
    missing = 1 - (now - begun) / MINUTE_SECONDS
    share = {begun: 1.0, begun - MINUTE_SECONDS: missing}
    return JobRate(
        done=round(sum(minute.done * share.get(minute.at, 0.0) for minute in minutes), 1),
        failed=round(sum(minute.failed * share.get(minute.at, 0.0) for minute in minutes), 1),
    )


_DROP_ORDER = {State.SCHEDULED: 4, State.WAITING: 6, State.FAILED: 1}

QUEUE_COLUMNS = (
    Column("queue"),
    *(Column(state, drop_order=_DROP_ORDER.get(state, 0), right=True) for state in SHOWN_STATES),
    Column("done/min", drop_order=3, right=True),
    Column("failed/min", drop_order=5, right=True),
    Column("oldest", drop_order=2, right=True),
    Column("drained in", drop_order=2, right=True),
    Column("paused", drop_order=1, truncate="end"),
)

POOL_COLUMNS = (
    Column("pool", truncate="end", min_width=8),
    Column("limit"),
    Column("used", drop_order=1),
    Column("", right=True),
    Column("waiting", drop_order=3, right=True),
    Column("drained in", drop_order=2, right=True),
    Column("state", drop_order=1, truncate="end", min_width=14),
)
MAX_POOL_ROWS = 12
"""Maximum rows of limits, so that the workers fit on the screen."""

WORKER_COLUMNS = (
    Column("worker"),
    Column("slots", right=True),
    Column("seen", drop_order=1, right=True),
    Column("where", drop_order=3, truncate="end"),
    Column("serves", drop_order=2, truncate="end"),
)


def render_screen(snapshot: TopSnapshot, target: CommandTarget, width: int, *, live: bool = False) -> Group:
    from rich.console import Group
    from rich.text import Text

    slots = sum(worker.concurrency for worker in snapshot.workers)
    held = sum(worker.holds for worker in snapshot.workers)
    size = f", {format_size(snapshot.store.bytes)}" if snapshot.store.bytes is not None else ""
    workers = f"{pluralize(len(snapshot.workers), 'worker')}, {held} of {slots} slots taken"
    return Group(
        Text(printable(f"{snapshot.store.location}{size}")),
        Text(f"{workers}   {format_time(snapshot.now)}{'   q ends' if live else ''}"),
        Text(),
        *_table_lines(
            fit_table(
                QUEUE_COLUMNS,
                (_queue_row(view, snapshot.rates[view.name], snapshot.now) for view in snapshot.queues),
                width,
            ),
            map(_queue_style, snapshot.queues),
        ),
        Text(),
        *_pool_lines(snapshot, width),
        *(
            _table_lines(
                fit_table(
                    WORKER_COLUMNS, (_worker_row(worker, snapshot.now) for worker in snapshot.workers), width
                )
            )
            if snapshot.workers
            else [Text(f"no worker is running: {target.worker_command()} starts one")]
        ),
    )


def _pool_lines(snapshot: TopSnapshot, width: int) -> Iterator[Text]:
    """Yields the lines of the pool table: closed pools first, then the limits with the highest usage."""
    from rich.text import Text

    rows = [(pool, limit) for pool in snapshot.pools for limit in pool.limits]
    rows.sort(key=lambda row: (row[0].is_open, -row[1].used / row[1].amount))
    visible = rows[:MAX_POOL_ROWS]
    if not visible:
        return
    cells = (
        (
            format_pool_name(pool),
            limit.name,
            format_gauge(limit),
            format_used(limit),
            pool.waiting or "",
            _time_left(pool.forecast, snapshot.now),
            format_pool_state(pool, format_minute),
        )
        for pool, limit in visible
    )
    yield from _table_lines(
        fit_table(POOL_COLUMNS, cells, width), ("" if pool.is_open else "yellow" for pool, _ in visible)
    )
    if len(rows) > len(visible):
        yield Text(f"and {len(rows) - len(visible)} more: tidemill pools shows all")
    yield Text()


def _time_left(forecast: Forecast | None, now: float) -> str:
    if forecast is None:
        return ""
    return "never" if forecast.done_at is None else format_duration(max(0.0, forecast.done_at - now))


def _queue_row(view: QueueView, per_minute: JobRate, now: float) -> Sequence[object]:
    return (
        view.name,
        *(view.counts[state] for state in SHOWN_STATES),
        f"{per_minute.done:g}",
        f"{per_minute.failed:g}",
        format_wait(view.latency),
        _time_left(view.forecast, now),
        format_pause(view.pause),
    )


def _queue_style(view: QueueView) -> str:
    """Returns the colour of a queue's line: yellow if it is paused, red if it has ready jobs and no worker,
    else empty."""
    if view.pause:
        return "yellow"
    return "red" if view.counts[State.READY] and not view.workers else ""


def _worker_row(worker: WorkerInfo, now: float) -> Sequence[object]:
    return (
        worker.id,
        f"{worker.holds}/{worker.concurrency}",
        f"{format_wait(max(0.0, now - worker.seen))} ago",
        f"{worker.host}:{worker.pid}",
        ", ".join(worker.queues),
    )


def _table_lines(table: FittedTable, styles: Iterable[str] = ()) -> Iterator[Text]:
    from rich.text import Text

    yield Text(table.heading, "bold")
    for line, style in zip_longest(table.lines, styles, fillvalue=""):
        yield Text(line, style)


REFRESH_SECONDS = 1.0


@click.command()
@click.option("--once", is_flag=True, help="Print once and exit; the default without a terminal.")
@with_target
def top(target: CommandTarget, *, once: bool) -> None:
    """Watch queues and workers, refreshed every second.

    Press q or Ctrl-C to exit."""
    if target.json:
        print_json(target.run(load_top))
    elif once or not (sys.stdout.isatty() and sys.stdin.isatty()):
        _print_once(target.run(load_top), target)
    else:
        target.run(lambda app: _watch(app, target))


def _print_once(snapshot: TopSnapshot, target: CommandTarget) -> None:
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else UNBOUNDED_WIDTH)
    console.print(render_screen(snapshot, target, console.width), no_wrap=True, overflow="ignore", crop=False)


async def _watch(app: Tidemill, target: CommandTarget) -> None:
    from rich.live import Live

    inspector = app.inspect
    with watch_key("q") as ended, Live(screen=True, auto_refresh=False) as live:
        while not ended.is_set():
            snapshot = await refresh_top(inspector)
            live.update(render_screen(snapshot, target, live.console.width, live=True), refresh=True)
            try:
                async with asyncio.timeout(REFRESH_SECONDS):
                    await ended.wait()
            except TimeoutError:
                continue
