"""`tidemill bench`: how many jobs a second this machine does."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import click

from tidemill.app import Tidemill
from tidemill.cli.measuring import Bench, Measured
from tidemill.cli.output import print_json
from tidemill.cli.progress import counted
from tidemill.cli.table import Column, print_table
from tidemill.logs import configure


@click.command()
@click.option(
    "--jobs", default=10_000, show_default=True, type=click.IntRange(10, 10_000_000), help="How many."
)
@click.option("--url", help="An empty store to measure on. Default: a SQLite file that is thrown away.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def bench(jobs: int, url: str | None, *, as_json: bool) -> None:
    """Measure how many jobs a second this machine does.

    Jobs that do nothing are sent one by one, 64 at once and in bulk, and then run by one worker with
    ten slots. What your handlers do comes on top."""
    configure(level="error")  # the screen belongs to the bar and the table
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as folder:
        app = Tidemill(url or f"sqlite:///{Path(folder) / 'bench.db'}")
        with counted("measuring", 2 * jobs) as done:
            measured = asyncio.run(_measure(app, Bench(app, jobs, done)))
    if as_json:
        print_json(measured)
    else:
        print_table(
            (Column(""), *(Column(name, right=True) for name in ("jobs", "seconds", "jobs/s"))),
            [(m.what, m.jobs, f"{m.seconds:.2f}", round(m.per_second)) for m in measured],
        )


async def _measure(app: Tidemill, bench: Bench) -> list[Measured]:
    try:
        store = await app.client.store(declare=False)
        counts = await store.counts()
        if held := sum(sum(of_queue.values()) for of_queue in counts.values()):
            raise click.UsageError(
                f"--url: {app.url} has {held} jobs, and measuring would be in their way; name an empty store"
            )
        await app.client.store()
        try:
            return await bench.run()
        finally:
            await bench.clear_up()
    finally:
        await app.close()
