"""`tidemill alerts test`: see whether people would hear of it."""

from __future__ import annotations

import click

from tidemill.cli.output import echo, note, print_json
from tidemill.cli.target import Target, with_target


@click.command()
@with_target
def test(target: Target) -> None:
    """Send a message by every channel that is set here, now and directly."""
    found = target.run(lambda app: app.alerts.test())
    if target.json:
        print_json(found)
    elif not found:
        note("no channel is set here; see the settings of alerts")
    for name, problem in {} if target.json else found.items():
        echo(f"{name}: sent" if problem is None else f"{name}: {problem}")
    if not found or any(found.values()):
        raise click.exceptions.Exit(1)
