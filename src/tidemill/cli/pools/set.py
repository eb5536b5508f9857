"""`tidemill pools set`: put other amounts over what code declared."""

from __future__ import annotations

import click
from msgspec import UNSET

from tidemill.app import Tidemill
from tidemill.cli import complete
from tidemill.cli.output import echo, print_json
from tidemill.cli.pools.words import overridden
from tidemill.cli.queues.ending import Ending, with_ending
from tidemill.cli.queues.words import who
from tidemill.cli.target import Target, with_target
from tidemill.inspect.pools import PoolStatus


@click.command("set")
@click.argument("name", shell_complete=complete.pools)
@click.argument("words", metavar="LIMIT=AMOUNT...", nargs=-1, required=True)
@with_ending
@click.option("--reason", help="Kept with the override.")
@with_target
def set_(target: Target, name: str, *, words: tuple[str, ...], ending: Ending, reason: str | None) -> None:
    """Put other amounts of a pool's limits over what code declared, until they are unset.

    They hold with the next call, on every worker, and no deploy erases them: "requests per minute=5".
    """
    amounts = _amounts(words)

    async def put(app: Tidemill) -> PoolStatus:
        end = await ending.at(app)
        return await app.inspect.override_pool(
            name, amounts, by=who(), reason=reason, until=UNSET if end is None else end
        )

    pool = target.run(put)
    if target.json:
        print_json(pool)
    elif pool.override is not None:
        echo(f"{name}: {overridden(pool.override)}")


def _amounts(words: tuple[str, ...]) -> dict[str, float]:
    found: dict[str, float] = {}
    for word in words:
        name, equals, text = word.rpartition("=")
        if not equals:
            raise click.UsageError(f'{word!r} is not LIMIT=AMOUNT, such as "requests per minute=5"')
        if name in found:
            raise click.UsageError(f"{name} is given twice")
        try:
            found[name] = float(text)
        except ValueError:
            raise click.UsageError(f"{name}: must be a number above 0, is {text!r}") from None
    return found
