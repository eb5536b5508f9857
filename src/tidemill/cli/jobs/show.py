"""`tidemill jobs show`: one job."""

from __future__ import annotations

import click

from tidemill.app import Tidemill
from tidemill.cli import complete
from tidemill.cli.jobs import checkpoints
from tidemill.cli.jobs.record import as_data, lines_about
from tidemill.cli.naming import full_id
from tidemill.cli.output import echo, print_json
from tidemill.cli.secrets import Redaction, with_secrets
from tidemill.cli.target import Target, with_target
from tidemill.inspect.views import JobView


@click.command()
@click.argument("id", shell_complete=complete.jobs)
@with_target
@with_secrets
def show(target: Target, id: str, *, redaction: Redaction) -> None:  # noqa: A002 - the word for it
    """Show everything known about one job."""

    async def look(app: Tidemill) -> JobView:
        return redaction.view(app, await app.inspect.job(await full_id(app, id)))

    view = target.run(look)
    record = as_data(view.job)
    if target.json:
        steps = checkpoints.as_data(view.checkpoints)
        print_json(record | {"failed_attempts": view.attempts, "log": view.log, "checkpoints": steps})
        return
    for line in lines_about(record, view.attempts, view.log):
        echo(line)
    for line in checkpoints.lines_about(view.checkpoints):
        echo(line)
