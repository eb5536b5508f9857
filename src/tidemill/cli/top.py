"""`tidemill top`: queues and workers, live."""

from __future__ import annotations

import asyncio
import sys

import click

from tidemill.app import Tidemill
from tidemill.cli.glance import Glance, glance, glance_again, screen
from tidemill.cli.keyboard import pressed
from tidemill.cli.output import print_json
from tidemill.cli.table import UNBOUNDED
from tidemill.cli.target import Target, with_target

EVERY = 1.0


@click.command()
@click.option("--once", is_flag=True, help="Print once and end. So it is too when this is no terminal.")
@with_target
def top(target: Target, *, once: bool) -> None:
    """Watch queues and workers, refreshed each second.

    q or Ctrl-C ends it."""
    if target.json:
        print_json(target.run(glance))
    elif once or not (sys.stdout.isatty() and sys.stdin.isatty()):
        _print(target.run(glance), target)
    else:
        target.run(lambda app: _watch(app, target))


def _print(seen: Glance, target: Target) -> None:
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else UNBOUNDED)
    console.print(screen(seen, target, console.width), no_wrap=True, overflow="ignore", crop=False)


async def _watch(app: Tidemill, target: Target) -> None:
    from rich.live import Live

    inspector = app.inspect
    with pressed("q") as ended, Live(screen=True, auto_refresh=False) as live:
        while not ended.is_set():
            seen = await glance_again(inspector)
            live.update(screen(seen, target, live.console.width, live=True), refresh=True)
            try:
                async with asyncio.timeout(EVERY):
                    await ended.wait()
            except TimeoutError:
                continue
