"""`tidemill webhooks remove`: tell somebody nothing more."""

from __future__ import annotations

import click

from tidemill.cli import complete
from tidemill.cli.output import echo, print_json
from tidemill.cli.target import Target, with_target
from tidemill.telling.webhooks import not_found


@click.command()
@click.argument("name", shell_complete=complete.webhooks)
@with_target
def remove(target: Target, name: str) -> None:
    """Forget a webhook; what waits is not delivered. What code declares is back when a worker starts."""
    if not target.run(lambda app: app.webhooks.remove(name)):
        raise not_found(name)
    if target.json:
        print_json({"webhook": name, "removed": True})
    else:
        echo(f"{name} is removed")
