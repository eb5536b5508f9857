"""`tidemill db backup`: a copy while jobs go on."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import click

from tidemill.cli.output import echo, note, print_json, size
from tidemill.cli.progress import shared
from tidemill.cli.target import Target, with_target


@click.command()
@click.argument("copy", metavar="TARGET", type=click.Path(path_type=Path))
@with_target
def backup(target: Target, copy: Path) -> None:
    """Copy the store, as of one instant, to a new file; jobs go on meanwhile."""
    if not copy.absolute().parent.is_dir():
        raise click.UsageError(f"target: there is no folder {copy.absolute().parent}; make it first")
    if copy.exists():
        raise click.UsageError(f"target: {copy} is there already; name a new file, or move that one away")
    try:
        with shared("copying") as progress:
            target.run(lambda app: app.store.backup(copy, progress))
    except KeyboardInterrupt:
        # A copy gets its name when it is whole.
        left = f"{copy} is whole all the same" if copy.exists() else "nothing was copied"
        note(f"interrupted: {left}")
        raise
    if target.json:
        print_json({"target": str(copy.absolute()), "bytes": copy.stat().st_size})
    else:
        echo(f"copied to {copy} ({size(copy.stat().st_size)}); use it as sqlite:///{quote(str(copy))}")
