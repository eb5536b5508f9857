"""`tidemill schedules remove`: forget one."""

from __future__ import annotations

import click

from tidemill.cli import complete
from tidemill.cli.output import echo, print_json
from tidemill.cli.target import Target, with_target
from tidemill.schedules.changes import not_found


@click.command()
@click.argument("name", shell_complete=complete.schedules)
@with_target
def remove(target: Target, name: str) -> None:
    """Forget a schedule; jobs it made stay. What code declares is back when a worker starts."""
    if not target.run(lambda app: app.schedules.remove(name)):
        raise not_found(name)
    if target.json:
        print_json({"schedule": name, "removed": True})
    else:
        echo(f"{name} is removed")
