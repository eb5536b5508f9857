"""`tidemill pools open`: end whatever closes a pool."""

from __future__ import annotations

import click

from tidemill.cli import complete
from tidemill.cli.output import echo, print_json
from tidemill.cli.target import Target, with_target


@click.command("open")
@click.argument("name", shell_complete=complete.pools)
@click.option("--key", help="One key of a pool that has keys.")
@with_target
def open_(target: Target, name: str, *, key: str | None) -> None:
    """Open a pool, whoever closed it: a person, or a provider that refused calls."""
    target.run(lambda app: app.inspect.open_pool(name, key=key))
    if target.json:
        print_json({"pool": name, "key": key, "closed": False})
    else:
        echo(f"{name if key is None else f'{name}/{key}'} is open")
