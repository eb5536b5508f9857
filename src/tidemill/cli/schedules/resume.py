"""`tidemill schedules resume`: end a pause."""

from __future__ import annotations

import click

from tidemill.app import Tidemill
from tidemill.cli import complete
from tidemill.cli.output import echo, moment, print_json
from tidemill.cli.secrets import Redaction
from tidemill.cli.target import Target, with_target
from tidemill.schedules.views import ScheduleView


@click.command()
@click.argument("name", shell_complete=complete.schedules)
@with_target
def resume(target: Target, name: str) -> None:
    """End a pause."""

    async def open_again(app: Tidemill) -> ScheduleView:
        return Redaction().schedule(app, await app.schedules.resume(name))

    view = target.run(open_again)
    if target.json:
        print_json(view)
    else:
        coming = f"next at {moment(view.next[0])}" if view.next else "no tick is left"
        echo(f"{name} is {view.state}, {coming}")
