"""`tidemill db check`: is the store whole?"""

from __future__ import annotations

import click

from tidemill.cli.output import echo, print_json
from tidemill.cli.progress import shared
from tidemill.cli.target import Target, with_target


@click.command()
@with_target
def check(target: Target) -> int:
    """Read all of the store and say what is damaged. Exit code 1 when something is.

    Jobs go on meanwhile."""
    with shared("checking"):
        damage = target.run(lambda app: app.store.check())
    if target.json:
        print_json({"whole": not damage, "damage": damage})
    else:
        for sentence in damage:
            echo(sentence)
        echo("the store is damaged: keep a copy of it, and go back to a backup" if damage else "whole")
    return 1 if damage else 0
