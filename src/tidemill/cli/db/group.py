"""The commands about the store itself."""

from __future__ import annotations

import click

from tidemill.cli.groups import Group
from tidemill.cli.target import Target, with_target


@click.group(cls=Group)
@with_target
def db(target: Target) -> None:
    """Look after the store itself: facts, check, backup, copy, compact."""
