"""Measures the CPU cost of dashboard viewers for the process that serves them.

    python -m benchmarks.dashboard_load [--viewers 200] [--rate 1000] [--seconds 20] [--url redis://…]

One process enqueues no-op jobs at a rate and runs them. Another process, `tidemill web`, serves the
dashboard. Each viewer holds an event stream of the overview open, which changes every second. The
program prints the second process's share of a core without viewers, with one viewer, and with all of
them."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.cpu_time import cpu_seconds
from tidemill import Tidemill
from tidemill.http_routes.routes import Role

PAGE = "/live/overview"
QUEUE = "noop"
SETTLE = 3.0
"""Seconds before the measurement starts, so that every viewer has received the first update."""
TICK, PATIENCE = 0.05, 30.0

app = Tidemill(os.environ.get("TIDEMILL_URL"))
"""The application of both processes; the environment names its store."""


@app.task(name="noop", queue=QUEUE)
async def noop() -> None: ...


async def send(rate: float) -> None:
    """Enqueues jobs at `rate` and runs them in a worker, until the process is killed."""
    async with app:
        worker = asyncio.create_task(app.worker(concurrency=50).run())
        began, sent = time.perf_counter(), 0
        while not worker.done():
            due = int((time.perf_counter() - began) * rate) - sent
            await app.enqueue_many(noop.job() for _ in range(due))
            sent += due
            await asyncio.sleep(TICK)


class Viewers:
    def __init__(self, port: int, token: str) -> None:
        self._port, self._token = port, token
        self._tasks: list[asyncio.Task[None]] = []
        self.heard = 0

    async def come(self, count: int) -> None:
        """Connects `count` viewers and waits until all of them are connected."""
        doors = [asyncio.Event() for _ in range(count)]
        self._tasks += [asyncio.create_task(self._watch(door)) for door in doors]
        await asyncio.gather(*(door.wait() for door in doors))

    async def go(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch(self, door: asyncio.Event) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        host, token = f"127.0.0.1:{self._port}", self._token
        writer.write(f"GET {PAGE} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        status = await reader.readline()
        if b" 200 " not in status:
            sys.exit(f"{PAGE} is answered with {status.decode()!r}")
        door.set()
        try:
            while part := await reader.read(65536):
                self.heard += len(part)
        finally:
            writer.close()


@asynccontextmanager
async def running(*words: str, log: Path) -> AsyncIterator[int]:
    with log.open("wb") as written:
        process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=written, stderr=written)
    try:
        yield process.pid
    finally:
        process.terminate()
        await process.wait()


async def port_in(log: Path) -> int:
    for _ in range(int(PATIENCE / TICK)):
        if found := re.search(r"http://127\.0\.0\.1:(\d+)/", log.read_text()):  # noqa: ASYNC240 - no other task runs
            return int(found[1])
        await asyncio.sleep(TICK)
    sys.exit(f"the dashboard does not begin: {log.read_text()}")  # noqa: ASYNC240 - no other task runs


async def share_of(pid: int, seconds: float) -> float:
    await asyncio.sleep(SETTLE)
    began, used = time.perf_counter(), cpu_seconds(pid)
    await asyncio.sleep(seconds)
    return (cpu_seconds(pid) - used) / (time.perf_counter() - began)


async def measure(place: Tidemill, folder: Path, count: int, rate: float, seconds: float) -> None:
    log = folder / "web.log"
    sending = running("-m", "benchmarks.dashboard_load", "--send", str(rate), log=folder / "send.log")
    serving = running("-m", "tidemill", "web", "benchmarks.dashboard_load:app", "--port", "0", log=log)
    async with place, sending, serving as pid:
        token = await place.auth.tokens.create("somebody who looks", Role.VIEWER)
        viewers = Viewers(await port_in(log), token.secret)
        shares = {0: await share_of(pid, seconds)}
        for come in (1, count - 1):
            await viewers.come(come)
            heard, done, began = viewers.heard, await done_of(place), time.perf_counter()
            shares[1 if come == 1 else count] = await share_of(pid, seconds)
        heard, done, took = viewers.heard - heard, await done_of(place) - done, time.perf_counter() - began
        await viewers.go()
    print(
        f"{done / took:.0f} jobs a second; each viewer is sent {heard / took / count / 1024:.1f} KB a second"
    )
    for viewers_, share in shares.items():
        print(f"{viewers_:4} look: {share:6.1%} of a core")


async def done_of(place: Tidemill) -> int:
    """Returns the number of processed jobs, including pruned ones."""
    return (await place.inspect.queue(QUEUE)).processed


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--viewers", type=int, default=200)
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--url", help="a store that may be written to; default: a temporary SQLite file")
    parser.add_argument("--send", type=float, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.send is not None:
        asyncio.run(send(chosen.send))
        return
    with tempfile.TemporaryDirectory(prefix="tidemill-viewers-") as folder:
        url = os.environ["TIDEMILL_URL"] = chosen.url or f"sqlite:///{folder}/jobs.db"
        asyncio.run(measure(Tidemill(url), Path(folder), chosen.viewers, chosen.rate, chosen.seconds))


if __name__ == "__main__":
    main()
