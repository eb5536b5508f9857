"""`tidemill schedules pause`: let its ticks pass."""

from __future__ import annotations

import click

from tidemill.app import Tidemill
from tidemill.cli import complete
from tidemill.cli.output import echo, moment, print_json
from tidemill.cli.queues.ending import Ending, with_ending
from tidemill.cli.secrets import Redaction
from tidemill.cli.target import Target, with_target
from tidemill.schedules.views import ScheduleView


@click.command()
@click.argument("name", shell_complete=complete.schedules)
@with_ending
@click.option("--reason", help="Shown to whoever wonders.")
@with_target
def pause(target: Target, name: str, *, ending: Ending, reason: str | None) -> None:
    """Let ticks pass without a job; they are not caught up."""

    async def close(app: Tidemill) -> ScheduleView:
        paused = await app.schedules.pause(name, until=await ending.at(app), reason=reason)
        return Redaction().schedule(app, paused)

    view = target.run(close)
    if target.json:
        print_json(view)
        return
    end = None if view.pause is None else view.pause.until
    echo(f"{name} is paused" + (f" until {moment(end)}" if end else " until it is resumed"))
