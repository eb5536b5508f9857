"""`tidemill queues resume`: end a pause."""

from __future__ import annotations

import click

from tidemill.cli import complete
from tidemill.cli.output import echo, print_json
from tidemill.cli.target import Target, with_target


@click.command()
@click.argument("name", shell_complete=complete.queues)
@with_target
def resume(target: Target, name: str) -> None:
    """End a pause."""
    target.run(lambda app: app.inspect.resume(name))
    if target.json:
        print_json({"queue": name, "paused": False})
    else:
        echo(f"{name} is open")
