"""`tidemill db compact`: give free space back."""

from __future__ import annotations

import click

from tidemill.app import Tidemill
from tidemill.cli.output import echo, print_json, size
from tidemill.cli.progress import shared
from tidemill.cli.target import Target, with_target


@click.command()
@with_target
def compact(target: Target) -> None:
    """Give space that pruned jobs left behind back to the machine. Workers and callers wait meanwhile."""

    async def work(app: Tidemill) -> tuple[int | None, int | None]:
        before = (await app.store.describe()).bytes
        await app.store.compact()
        return before, (await app.store.describe()).bytes

    with shared("compacting"):
        before, after = target.run(work)
    if target.json:
        print_json({"bytes_before": before, "bytes": after})
    else:
        echo(f"{size(before) or 'unknown'} before, {size(after) or 'unknown'} now")
