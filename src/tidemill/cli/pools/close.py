"""`tidemill pools close`: start no job that needs a pool."""

from __future__ import annotations

import click

from tidemill.app import Tidemill
from tidemill.cli import complete
from tidemill.cli.output import echo, moment, print_json
from tidemill.cli.queues.ending import Ending, with_ending
from tidemill.cli.queues.words import who
from tidemill.cli.target import Target, with_target


@click.command()
@click.argument("name", shell_complete=complete.pools)
@click.option(
    "--key",
    help="Of a pool whose keys have limits of their own: which one to close. They are closed one by one.",
)
@with_ending
@click.option("--reason", help="Shown to whoever wonders.")
@with_target
def close(target: Target, name: str, *, key: str | None, ending: Ending, reason: str | None) -> None:
    """Start no job that needs a pool; calls under way go on.

    Only a person opens it again, or the end that is given here: no worker does."""

    async def shut(app: Tidemill) -> float | None:
        end = await ending.at(app)
        await app.inspect.close_pool(name, key=key, until=end, reason=reason, by=who())
        return end

    end = target.run(shut)
    if target.json:
        print_json({"pool": name, "key": key, "closed": True, "until": end, "reason": reason})
    else:
        whole = name if key is None else f"{name}/{key}"
        echo(f"{whole} is closed" + (f" until {moment(end)}" if end else " until it is opened"))
