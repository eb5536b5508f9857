"""`tidemill jobs show`: one job."""

from __future__ import annotations

import click

from tidemill.cli.jobs.record import as_data, lines_about
from tidemill.cli.output import print_json
from tidemill.cli.target import Target, with_target


@click.command()
@click.argument("id")
@with_target
def show(target: Target, id: str) -> None:  # noqa: A002 - the word for it
    """Show everything known about one job."""
    view = target.run(lambda app: app.inspect.job(id))
    record = as_data(view.job)
    if target.json:
        print_json(record | {"failed_attempts": view.attempts, "log": view.log})
        return
    for line in lines_about(record, view.attempts, view.log):
        click.echo(line)
