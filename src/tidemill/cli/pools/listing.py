"""`tidemill pools`: all of them at a glance."""

from __future__ import annotations

import click

from tidemill.cli.groups import Group
from tidemill.cli.output import print_json
from tidemill.cli.pools.words import amount, brief, free, gauge, named, state, used
from tidemill.cli.table import Column, print_table
from tidemill.cli.target import Target, with_target
from tidemill.contract.pools import LimitView
from tidemill.inspect.pools import PoolStatus

COLUMNS = (
    Column("pool", cut="end", least=8),
    Column("limit"),
    Column("used", goes=2),
    Column("", right=True),
    Column("all free in", goes=4, right=True),
    Column("waiting", goes=3, right=True),
    Column("state", goes=1, cut="end", least=38),
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
    print_table(COLUMNS, [_row(pool, limit) for pool in found for limit in pool.limits])


def _row(pool: PoolStatus, limit: LimitView) -> tuple[object, ...]:
    """Of a pool with keys each key is used by itself, and it as a whole never."""
    use: tuple[str, str, str] = (gauge(limit), used(limit), free(limit))
    if pool.keyed and pool.key is None:
        use = ("each key", amount(limit.amount), "")
    return (named(pool), limit.name, *use, pool.waiting, state(pool, brief))
