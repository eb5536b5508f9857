"""`tidemill pools info`: everything about one pool."""

from __future__ import annotations

import click

from tidemill.cli import complete
from tidemill.cli.output import echo, print_fields, print_json
from tidemill.cli.pools.words import (
    amount,
    free,
    gauge,
    named,
    overridden,
    state,
    used,
    waiting,
)
from tidemill.cli.table import Column, print_table
from tidemill.cli.target import Target, with_target
from tidemill.inspect.pools import PoolStatus

LIMITS = (
    Column("limit"),
    Column("used", goes=2),
    Column("", right=True),
    Column("all free in", right=True),
    Column("code says", goes=3, right=True),
    Column("others used", goes=1, right=True),
)


@click.command()
@click.argument("name", shell_complete=complete.pools)
@click.option("--key", help="One key of a pool that has keys.")
@with_target
def info(target: Target, name: str, *, key: str | None) -> None:
    """Show what is used of a pool, who waits for it, and what closes or overrides it."""
    pool = target.run(lambda app: app.inspect.pool(name, key=key))
    if target.json:
        print_json(pool)
        return
    print_fields(_fields(pool))
    echo()
    print_table(
        LIMITS,
        [
            (
                limit.name,
                gauge(limit),
                used(limit),
                free(limit),
                amount(limit.declared),
                amount(pool.foreign.get(limit.name, 0.0)),
            )
            for limit in pool.limits
        ],
    )


def _fields(pool: PoolStatus) -> dict[str, object]:
    declared = pool.declared
    said = next((closure.text for closure in pool.closures if closure.text), None)
    return {
        "pool": named(pool)
        + (", each key with limits of its own" if pool.keyed and pool.key is None else ""),
        "state": state(pool),
        "it said": said,
        "under way": pool.reservations,
        "waiting": waiting(pool),
        "override": overridden(pool.override) if pool.override else None,
        "held back": f"{declared.held_back:.0%} for priorities up to {declared.urgent}"
        if declared.held_back
        else None,
    }
