"""Everything at a glance: what `top` reads, and how it draws it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tidemill.app import Tidemill
from tidemill.cli.output import moment, printable, size
from tidemill.cli.queues.words import paused, waited
from tidemill.contract.reader import Minute, WorkerInfo
from tidemill.contract.upkeep import StoreFacts
from tidemill.core.states import State
from tidemill.inspect.views import QueueView
from tidemill.inspect.words import plural

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
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
    workers: tuple[WorkerInfo, ...]


async def glance(app: Tidemill) -> Glance:
    overview = await app.inspect.overview()
    rates: dict[str, Rate] = {}
    for view in overview.queues:
        minutes = await app.inspect.history(view.name, overview.now - 2 * MINUTE)
        rates[view.name] = rate(minutes, overview.now)
    return Glance(
        now=overview.now,
        store=overview.store,
        queues=overview.queues,
        rates=rates,
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


def screen(seen: Glance, *, live: bool = False) -> Group:
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
        _queues(seen),
        Text(),
        _workers(seen)
        if seen.workers
        else Text("no worker is running: tidemill worker module:app starts one"),
    )


def _queues(seen: Glance) -> Table:
    table = _table("queue", *SHOWN, "done/min", "failed/min", "oldest", right=len(SHOWN) + 3)
    table.add_column("paused")
    for view in seen.queues:
        per_minute = seen.rates[view.name]
        table.add_row(
            _cell(view.name),
            *(_cell(view.counts[state]) for state in SHOWN),
            _cell(f"{per_minute.done:g}"),
            _cell(f"{per_minute.failed:g}"),
            _cell(waited(view.latency)),
            _cell(paused(view.pause)),
            style="yellow"
            if view.pause
            else "red"
            if view.counts[State.READY] and not view.workers
            else None,
        )
    return table


def _workers(seen: Glance) -> Table:
    table = _table("worker", "slots", "seen", right=2)
    table.add_column("where")
    table.add_column("serves")
    for worker in seen.workers:
        table.add_row(
            _cell(worker.id),
            _cell(f"{worker.holds}/{worker.concurrency}"),
            _cell(f"{waited(max(0.0, seen.now - worker.seen))} ago"),
            _cell(f"{worker.host}:{worker.pid}"),
            _cell(", ".join(worker.queues)),
        )
    return table


def _table(first: str, *others: str, right: int) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first)
    for name in others[:right]:
        table.add_column(str(name), justify="right")
    return table


def _cell(value: object) -> Text:
    from rich.text import Text

    return Text(printable(value))
