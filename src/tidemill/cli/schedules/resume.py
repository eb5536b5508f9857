"""`tidemill schedules resume`: end a pause."""

from __future__ import annotations

import click

from tidemill.cli import complete
from tidemill.cli.output import echo, moment, print_json
from tidemill.cli.target import Target, with_target


@click.command()
@click.argument("name", shell_complete=complete.schedules)
@with_target
def resume(target: Target, name: str) -> None:
    """End a pause."""
    view = target.run(lambda app: app.schedules.resume(name))
    if target.json:
        print_json(view)
    else:
        coming = f"next at {moment(view.next[0])}" if view.next else "no tick is left"
        echo(f"{name} is {view.state}, {coming}")
