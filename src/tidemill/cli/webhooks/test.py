"""`tidemill webhooks test`: see whether it arrives."""

from __future__ import annotations

import click

from tidemill.cli import complete
from tidemill.cli.output import echo, note, print_json
from tidemill.cli.target import Target, with_target


@click.command()
@click.argument("name", shell_complete=complete.webhooks)
@with_target
def test(target: Target, name: str) -> None:
    """Send a delivery whose event is "test"; a worker makes it. Prints the id of its job."""
    job = target.run(lambda app: app.webhooks.test(name))
    if target.json:
        print_json({"webhook": name, "job": job})
    else:
        echo(job)
        note(f"what became of it: {target.command('jobs', 'show', job)}")
