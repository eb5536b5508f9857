"""`tidemill bench`: how many jobs a second this machine does."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from tidemill.app import Tidemill
from tidemill.cli.measuring import Bench, Measured
from tidemill.cli.numbers import Whole
from tidemill.cli.output import print_json
from tidemill.cli.progress import counted
from tidemill.cli.table import Column, print_table
from tidemill.errors import StoreUnavailable
from tidemill.logs import configure
from tidemill.urls import StoreUrl


@click.command()
@click.option("--jobs", default=10_000, show_default=True, type=Whole(10, 10_000_000), help="How many.")
@click.option("--url", help="Measure the disk of this SQLite store, on a new file beside it. Or memory://.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def bench(jobs: int, url: str | None, *, as_json: bool) -> None:
    """Measure how many jobs a second this machine does.

    Jobs that do nothing are sent one by one, 64 at once and in bulk, and then run by one worker with
    ten slots. What your handlers do comes on top. No store of yours is touched: the file that is
    written is thrown away."""
    configure(level="error")  # the screen belongs to the bar and the table
    with _thrown_away(url) as measured_at:
        app = Tidemill(measured_at)
        with counted("measuring", 2 * jobs) as done:
            measured = asyncio.run(_measure(app, Bench(app, jobs, done)))
    if as_json:
        print_json(measured)
    else:
        print_table(
            (Column(""), *(Column(name, right=True) for name in ("jobs", "seconds", "jobs/s"))),
            [(m.what, m.jobs, f"{m.seconds:.2f}", round(m.per_second)) for m in measured],
        )


@contextmanager
def _thrown_away(url: str | None) -> Iterator[str]:
    beside = None if url is None else StoreUrl.parse(url)
    if beside is not None and beside.server:
        raise click.UsageError(
            f"url: bench measures the embedded store and cannot measure {beside}; name a sqlite:/// file, "
            "or memory://"
        )
    if beside is not None and beside.scheme == "memory":
        yield str(beside)
        return
    parent = None if beside is None else Path(beside.path).absolute().parent
    try:
        folder = tempfile.TemporaryDirectory(prefix="tidemill-bench-", dir=parent)
    except OSError as error:
        raise StoreUnavailable(f"no file can be made beside {url}: {error.strerror}; name another") from None
    with folder as made:
        yield f"sqlite:///{Path(made) / 'bench.db'}"


async def _measure(app: Tidemill, bench: Bench) -> list[Measured]:
    async with app:
        return await bench.run()
