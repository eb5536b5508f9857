"""`tidemill flows retry`: take up a flow that failed or was cancelled."""

from __future__ import annotations

import click

from tidemill.cli import complete
from tidemill.cli.flows.steering import steered
from tidemill.cli.target import Target, with_target


@click.command()
@click.argument("id", shell_complete=complete.flows)
@with_target
def retry(target: Target, id: str) -> int:  # noqa: A002 - the word for it
    """Run what failed of a flow again; steps that are done are not repeated."""
    done = target.run(lambda app: app.inspect.retry_flow(id))
    return steered(target, id, done, "runs again", "has not failed")
