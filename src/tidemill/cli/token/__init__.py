"""`tidemill token`: who may look at the dashboard and call the API, and what they may do. One file per
command."""

from __future__ import annotations

import click

from tidemill.cli.groups import Group
from tidemill.cli.target import Target, with_target
from tidemill.cli.token.create import create
from tidemill.cli.token.listing import listing
from tidemill.cli.token.revoke import revoke


@click.group(cls=Group)
@with_target
def token(_target: Target) -> None:
    """Make tokens for the dashboard and the HTTP API; list or revoke them."""


for _command in (create, listing, revoke):
    token.add_command(_command)

__all__ = ["token"]
