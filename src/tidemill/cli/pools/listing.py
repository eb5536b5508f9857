"""`tidemill pools`: all of them at a glance."""

from __future__ import annotations

import click

from tidemill.cli.groups import Group
from tidemill.cli.output import print_json
from tidemill.cli.pools.words import free, gauge, named, state, used
from tidemill.cli.table import Column, print_table
from tidemill.cli.target import Target, with_target

COLUMNS = (
    Column("pool", cut="end", least=8),
    Column("limit"),
    Column("used", goes=2),
    Column("", right=True),
    Column("all free in", goes=4, right=True),
    Column("waiting", goes=3, right=True),
    Column("state", goes=1, cut="end", least=12),
)


@click.group(cls=Group, invoke_without_command=True)
@with_target
def pools(target: Target) -> None:
    """Show the pools and how full they are; or set, close or open one."""
    if click.get_current_context().invoked_subcommand is not None:
        return
    found = target.run(lambda app: app.inspect.pools())
    if target.json:
        print_json(found)
        return
    print_table(
        COLUMNS,
        [
            (named(pool), limit.name, gauge(limit), used(limit), free(limit), pool.waiting, state(pool))
            for pool in found
            for limit in pool.limits
        ],
    )
