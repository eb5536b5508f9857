"""`tidemill bench`: measures how many jobs per second this machine enqueues and runs."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from tidemill.app import Tidemill
from tidemill.cli.options import WholeNumber
from tidemill.cli.output import print_json
from tidemill.cli.terminal import Column, count_progress, print_table
from tidemill.client.task import Task
from tidemill.core.queues import Retention
from tidemill.errors import StoreUnavailable
from tidemill.logs import configure
from tidemill.store_url import StoreUrl

TASK_NAME, QUEUE_NAME = "tidemill.bench", "tidemill-bench"
CONCURRENT_ENQUEUES = 64
SINGLE_ENQUEUE_DIVISOR = 10
"""A single enqueue waits for the disk, so a tenth of the jobs gives the same rate in less time."""

JOBS_PER_INSERT = 1000
POLL_SECONDS = 0.1

OnBenchProgress = Callable[[int], None]


class BenchResult(msgspec.Struct, frozen=True):
    """One line of the result: what was measured, the number of jobs, the seconds, and the jobs per second."""

    what: str
    jobs: int
    seconds: float
    per_second: float


class Bench:
    """Measures how fast `jobs` jobs are enqueued and run. `on_progress` receives a count that grows by one
    for each enqueued job and by one for each finished job."""

    def __init__(self, app: Tidemill, jobs: int, on_progress: OnBenchProgress) -> None:
        self._app, self._jobs, self._on_progress = app, jobs, on_progress
        self._finished = 0
        app.queue(QUEUE_NAME, keep_done=Retention())
        self._task: Task[[], None] = app.task(name=TASK_NAME, queue=QUEUE_NAME)(_do_nothing)

    async def run(self) -> list[BenchResult]:
        single = max(1, self._jobs // SINGLE_ENQUEUE_DIVISOR)
        concurrent = (self._jobs - single) // 2
        bulk = self._jobs - single - concurrent
        return [
            await self._timed("enqueue one by one", single, self._one_by_one),
            await self._timed(f"enqueue {CONCURRENT_ENQUEUES} at once", concurrent, self._concurrently),
            await self._timed("enqueue in bulk", bulk, self._in_bulk),
            await self._timed("run by one worker", self._jobs, self._drain),
        ]

    async def _timed(
        self, what: str, jobs: int, work: Callable[[int], Coroutine[Any, Any, None]]
    ) -> BenchResult:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await work(jobs)
        seconds = loop.time() - began
        return BenchResult(what, jobs, round(seconds, 4), round(jobs / seconds, 1))

    def _count(self, jobs: int) -> None:
        self._finished += jobs
        self._on_progress(self._finished)

    async def _one_by_one(self, jobs: int) -> None:
        for _ in range(jobs):
            await self._task.enqueue()
            self._count(1)

    async def _concurrently(self, jobs: int) -> None:
        for begin in range(0, jobs, CONCURRENT_ENQUEUES):
            count = min(CONCURRENT_ENQUEUES, jobs - begin)
            await asyncio.gather(*(self._task.enqueue() for _ in range(count)))
            self._count(count)

    async def _in_bulk(self, jobs: int) -> None:
        for begin in range(0, jobs, JOBS_PER_INSERT):
            count = min(JOBS_PER_INSERT, jobs - begin)
            await self._app.enqueue_many(self._task.job() for _ in range(count))
            self._count(count)

    async def _drain(self, _jobs: int) -> None:
        worker = self._app.worker(queues={QUEUE_NAME: 1}, concurrency=10, until_idle=True)
        running = asyncio.create_task(worker.run())
        before = self._finished
        while not running.done():
            self._on_progress(before + worker.stats.done)
            await asyncio.wait([running], timeout=POLL_SECONDS)
        await running


async def _do_nothing() -> None: ...


@click.command()
@click.option(
    "--jobs", default=10_000, show_default=True, type=WholeNumber(10, 10_000_000), help="Number of jobs."
)
@click.option(
    "--url", help="Measure on a new file beside this SQLite store, so on the same disk. Or memory://."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def bench(jobs: int, url: str | None, *, as_json: bool) -> None:
    """Measure how many jobs per second this machine runs.

    Jobs that do nothing are enqueued one by one, 64 at once and in bulk, and then run by one worker with
    ten slots. Your handlers take additional time. Your stores are not touched: the measurement uses a
    temporary file."""
    configure(level="error")  # log lines would disturb the progress bar
    with _temporary_store(url) as measured_at:
        app = Tidemill(measured_at)
        with count_progress("measuring", 2 * jobs) as on_progress:
            measured = asyncio.run(_measure(app, Bench(app, jobs, on_progress)))
    if as_json:
        print_json(measured)
    else:
        print_table(
            (Column(""), *(Column(name, right=True) for name in ("jobs", "seconds", "jobs/s"))),
            [(m.what, m.jobs, f"{m.seconds:.2f}", round(m.per_second)) for m in measured],
        )


@contextmanager
def _temporary_store(url: str | None) -> Iterator[str]:
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


async def _measure(app: Tidemill, bench: Bench) -> list[BenchResult]:
    async with app:
        return await bench.run()
