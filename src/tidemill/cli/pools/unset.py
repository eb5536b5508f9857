"""`tidemill pools unset`: let limits follow the code again."""

from __future__ import annotations

import click

from tidemill.app import Tidemill
from tidemill.cli import complete
from tidemill.cli.output import echo
from tidemill.cli.overriding import tell_unset
from tidemill.cli.pools.words import overridden
from tidemill.cli.target import Target, with_target
from tidemill.inspect.pools import PoolStatus


@click.command()
@click.argument("name", shell_complete=complete.pools)
@click.argument("limits", nargs=-1, metavar="[LIMIT]...")
@with_target
def unset(target: Target, name: str, limits: tuple[str, ...]) -> int:
    """Let limits of a pool follow the code again: those named, or all."""

    async def clear(app: Tidemill) -> tuple[PoolStatus, PoolStatus]:
        before = await app.inspect.pool(name)
        return before, await app.inspect.clear_pool_override(name, *limits)

    before, after = target.run(clear)
    held = before.override.changes.amounts if before.override else {}
    if not tell_unset(target, f"pool {name!r}", after, names=limits, held=held):
        return 1
    if not target.json:
        echo(f"{name}: {overridden(after.override) if after.override else 'follows the code again'}")
    return 0
