"""How long a person waits for a search among many jobs.

    python benchmarks/searching.py [ready jobs] [failed jobs] [folder]

Fills a SQLite store (1 000 000 ready jobs in one queue, 10 000 failed ones in two others, by default in
/dev/shm) and prints the best of three runs of each question, first page of 50. Finding and counting
look at every matching place; what a line says about its way is what the store does, not what it could.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from tidemill.contract.reader import Page
from tidemill.core.changes import Archive
from tidemill.core.filters import Filter
from tidemill.core.job import Group, NewJob
from tidemill.core.states import State
from tidemill.stores.sqlite import SqliteStore

AT_ONCE = 10_000
LANES = 100
TITLES = ("海上升明月", "天涯共此时", "Feed of the day", "路漫漫其修远兮")


async def main() -> None:
    ready, failed = (int(text) for text in (sys.argv[1:3] or ("1000000", "10000")))
    root = sys.argv[3] if len(sys.argv) > 3 else "/dev/shm"  # noqa: S108 - a fresh folder in it
    with tempfile.TemporaryDirectory(dir=root) as folder:
        store = await SqliteStore(Path(folder) / "jobs.db").open()
        began = time.perf_counter()
        await fill(store, ready, failed)
        facts = await store.describe()
        print(
            f"{ready} ready, {failed} failed, {(facts.bytes or 0) / 1e6:.0f} MB, filled in "
            f"{time.perf_counter() - began:.0f} s\n"
        )
        for name, ask in questions(store, ready).items():
            await show(name, ask)
        await store.close()


async def fill(store: SqliteStore, ready: int, failed: int) -> None:
    for start in range(0, failed, 1000):
        queue = ("failing", "other")[start // 1000 % 2]
        await store.insert(
            [Group(queue, tuple(new(f"f{n}", n) for n in range(start, min(start + 1000, failed))))]
        )
        await store.amend(Filter(queue=queue, states=(State.READY,)), Archive())
    for start in range(0, ready, AT_ONCE):
        jobs = tuple(new(f"r{n}", n) for n in range(start, min(start + AT_ONCE, ready)))
        await store.insert([Group("busy", jobs)])


def new(name: str, number: int) -> NewJob:
    payload = {
        "feed": {"host": f"h{number % 5000}.example", "title": TITLES[number % 4]},
        "items": [{"id": number}, {"id": number + 1}],
        "text": "lorem ipsum dolor sit amet " * 3,
    }
    tags = ("nightly", "rare") if number % 100_000 == 7 else ("nightly",) if number % 2 else ()
    return NewJob(
        id=name, task="fetch", payload=msgspec.json.encode(payload), key=f"k{number % LANES}", tags=tags
    )


def questions(store: SqliteStore, ready: int) -> dict[str, Callable[[], Awaitable[Any]]]:
    now = time.time()
    wanted = {
        "50 failed of a queue": Filter(queue="failing", states=(State.FAILED,)),
        "failed since an hour": Filter(states=(State.FAILED,), since=now - 3600, time="finished"),
        "text, 3 Chinese characters, everywhere": Filter(text="升明月"),
        "text nobody has, 3 Chinese characters": Filter(text="不存在"),
        "text nobody has, Latin letters": Filter(text="No Such Thing"),
        "text nobody has, among the failed": Filter(text="No Such Thing", states=(State.FAILED,)),
        "a tag every second job has": Filter(tag="nightly"),
        "a tag ten jobs have": Filter(tag="rare"),
        "created in a range of the past": Filter(since=now - 1e6, until=now - 9e5),
        "a payload field, 200 jobs have it": Filter(fields=(("feed.host", "h77.example"),)),
        "a field in an array, one job": Filter(
            fields=(("items.id", str(ready // 2)), ("feed.title", TITLES[0]))
        ),
    }
    asked: dict[str, Callable[[], Awaitable[Any]]] = {
        name: lambda filter_=filter_: store.find(filter_, 50)  # type: ignore[misc]
        for name, filter_ in wanted.items()
    }
    asked["backlog of 1 queue, 100 lanes"] = lambda: store.backlog("busy")
    asked["jobs ahead of the last one"] = lambda: store.ahead(f"r{ready - 1}")
    return asked


async def show(name: str, ask: Callable[[], Awaitable[Any]]) -> None:
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        answer = await ask()
        best = min(best, time.perf_counter() - began)
    found = f"{len(answer.jobs)} jobs" if isinstance(answer, Page) else ""
    print(f"{name:<42} {best * 1000:9.1f} ms  {found}")


if __name__ == "__main__":
    asyncio.run(main())
