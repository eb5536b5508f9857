"""`tidemill pools unset`: let limits follow the code again."""

from __future__ import annotations

import click

from tidemill.app import Tidemill
from tidemill.cli import complete
from tidemill.cli.output import note, print_json
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
    if target.json:
        print_json(after)
    held = before.override.changes.amounts if before.override else {}
    if not held or (limits and not set(limits) & set(held)):
        note(f"nothing was changed: of pool {name!r} {', '.join(held) or 'nothing'} is overridden")
        return 1
    if not target.json:
        click.echo(f"{name}: {overridden(after.override) if after.override else 'follows the code again'}")
    return 0
