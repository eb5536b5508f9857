"""`tidemill flows cancel`: end a flow that has not ended."""

from __future__ import annotations

import click

from tidemill.cli import complete
from tidemill.cli.flows.steering import steered
from tidemill.cli.target import Target, with_target


@click.command()
@click.argument("id", shell_complete=complete.flows)
@click.option("--reason", default="cancelled by hand", show_default=True, help="Kept with the flow.")
@with_target
def cancel(target: Target, id: str, reason: str) -> int:  # noqa: A002 - the word for it
    """Cancel a flow and its jobs; nothing new of it starts."""
    done = target.run(lambda app: app.inspect.cancel_flow(id, reason=reason))
    return steered(target, id, done, "cancelled", "had already ended")
