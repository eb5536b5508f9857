"""Measures every query of the dashboard and the API on a store with a million jobs.

    python -m benchmarks.page_speed [--jobs 1000000] [--store sqlite] [--over 200]

Fills a store of each kind (`benchmarks.large_store`) and runs every query several times, in a new
process. Prints the median and the maximum duration in milliseconds, and the CPU time of one query in
this process and in the server. Queries over `--over` milliseconds are marked. If there is one, the
program exits with an error."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

from benchmarks.cpu_time import cpu_seconds
from benchmarks.empty_stores import EmptyStore, create_factory
from benchmarks.large_store import JOBS_PER_INSERT, OLD_QUEUE, fill_store
from benchmarks.plan import STORES
from tidemill import Tidemill
from tidemill.client.task import Task
from tidemill.contract.reader import JobPage
from tidemill.core.documents import DocumentKind
from tidemill.core.filters import Filter
from tidemill.core.queues import DAY_SECONDS
from tidemill.core.states import State
from tidemill.inspect.views import JobCount
from tidemill.schedules.settings import ScheduleUpsertOptions

REPETITIONS = 7
ASKED = 50
FLOWS, SCHEDULES = 300, 100

Query = Callable[[], Awaitable[Any]]


def application(url: str) -> tuple[Tidemill, Task[[int], int]]:
    app = Tidemill(url)

    @app.task(name="nothing", queue="dubbing")
    async def nothing(number: int) -> int:
        return number

    return app, nothing


async def create_documents(app: Tidemill, task: Task[[int], int]) -> None:
    for number in range(FLOWS):
        flow = app.flow("dub", key=f"film-{number}")
        flow.add(task, number=flow.add(task, number=number))
        await flow.enqueue()
    nightly = [
        (f"nightly-{n}", task.job(n), ScheduleUpsertOptions(cron="0 3 * * *")) for n in range(SCHEDULES)
    ]
    await app.schedules.upsert_many(nightly)


def searches(now: float) -> dict[str, Filter]:
    failed, done, ready = (State.FAILED,), (State.DONE,), (State.READY,)
    return {
        "all": Filter(),
        **{f"{state}": Filter(states=(state,)) for state in State},
        "failed of a queue": Filter(queue="feeds", states=failed),
        "ended": Filter(states=(State.DONE, State.FAILED, State.CANCELLED)),
        "a queue": Filter(queue="mail"),
        "a queue with old jobs only": Filter(queue=OLD_QUEUE),
        "failed of a queue with old jobs only": Filter(queue=OLD_QUEUE, states=failed),
        "a queue nobody knows": Filter(queue="nobody"),
        "a task": Filter(task="mail:fetch"),
        "a task of few jobs": Filter(task="embed:rare"),
        "a task nobody has": Filter(task="no:such"),
        "a key": Filter(key="k7"),
        "a key, its queue, ready": Filter(key="k7", queue="embed", states=ready),
        "a tag": Filter(tag="nightly"),
        "a tag of few jobs": Filter(tag="rare"),
        "text, Chinese": Filter(text="升明月"),
        "text nobody has": Filter(text="No Such Thing"),
        "text nobody has, Chinese": Filter(text="不存在"),
        "text nobody has, failed": Filter(text="No Such Thing", states=failed),
        "text of an error, failed": Filter(text="h77.example within", states=failed),
        "a field of some jobs": Filter(fields=(("feed.host", "h77.example"),)),
        "a field of no job": Filter(fields=(("feed.host", "nobody.example"),)),
        "a field in an array": Filter(fields=(("items.id", "4711"),)),
        "created last hour": Filter(since=now - 3600),
        "created three days ago": Filter(since=now - 3 * DAY_SECONDS, until=now - 3 * DAY_SECONDS + 60),
        "finished last day": Filter(since=now - DAY_SECONDS, time="finished"),
        "failed in a day of the past": Filter(
            states=failed, since=now - 5 * DAY_SECONDS, until=now - 4 * DAY_SECONDS, time="finished"
        ),
        "finished in a minute of the past": Filter(
            states=done, since=now - 5 * DAY_SECONDS, until=now - 5 * DAY_SECONDS + 60, time="finished"
        ),
        "due within ten minutes": Filter(states=(State.SCHEDULED,), until=now + 600, time="due"),
        "an id's beginning": Filter(id_prefix="0004d-1"),
        "a short beginning": Filter(id_prefix="0"),
        "a beginning no id has": Filter(id_prefix="zz"),
        "a flow": Filter(flow="flow-77"),
        "all at once": Filter(
            queue="feeds",
            states=failed,
            task="feeds:fetch",
            tag="nightly",
            text="timeout",
            since=now - 6 * DAY_SECONDS,
        ),
    }


def far(jobs: int) -> int:
    return jobs // 3


async def build_queries(app: Tidemill, jobs: int) -> dict[str, Query]:
    look, store = app.inspect, app.store
    now = (await store.read_clock()).wall
    asked: dict[str, Query] = {
        "overview": look.overview,
        "overview, sparing": lambda: look.overview(cached=True),
        "queues": look.queues,
        "queues, sparing": lambda: look.queues(cached=True),
        "queue": lambda: look.queue("feeds"),
        "queue, sparing": lambda: look.queue("feeds", cached=True),
        "history of a day": lambda: look.history("feeds", now - DAY_SECONDS),
        "pools": look.pools,
        "pools, sparing": lambda: look.pools(cached=True),
        "pool": lambda: look.pool("model"),
        "history of a pool's day": lambda: look.pool_history("model", now - DAY_SECONDS),
        "flows": look.flows,
        "flows that failed": lambda: look.flows(states=("failed",)),
        "schedules": app.schedules.list,
        "workers": look.workers,
        "records, newest": lambda: store.find_documents(DocumentKind.RECORD, name="audit", limit=ASKED),
        "records of a state": lambda: store.find_documents(
            DocumentKind.RECORD, name="audit", states=("retry",), limit=ASKED
        ),
        "store": store.describe,
    }
    for state in (State.READY, State.SCHEDULED, State.FAILED, State.DONE, State.RUNNING):
        [one] = (await look.find(Filter(states=(state,)), limit=1)).jobs
        asked[f"job, {state}"] = lambda name=one.id: look.job(name)  # type: ignore[misc]
        asked[f"explain, {state}"] = lambda name=one.id: look.explain(name)  # type: ignore[misc]
    for name, wanted in searches(now).items():
        asked[f"find {name}"] = lambda wanted=wanted: look.find(wanted, limit=ASKED)  # type: ignore[misc]
        asked[f"find {name}, far"] = lambda wanted=wanted: look.find(  # type: ignore[misc]
            wanted, limit=ASKED, cursor=far(jobs)
        )
        asked[f"count {name}"] = lambda wanted=wanted: look.count(wanted)  # type: ignore[misc]
    return asked


async def show(name: str, ask: Query, place: EmptyStore, over: float) -> bool:
    took = []
    await ask()
    began_busy = busy(place)
    for _ in range(REPETITIONS):
        began = time.perf_counter()
        answer = await ask()
        took.append((time.perf_counter() - began) * 1000)
    worked = (busy(place) - began_busy) * 1000 / REPETITIONS
    slow = median(took) > over
    figures = "".join(f"{figure:>9.1f}" for figure in (median(took), max(took), worked))
    print(f"{name:<44}{figures}  {describe_answer(answer)}{'  !' if slow else ''}", flush=True)
    return slow


def busy(place: EmptyStore) -> float:
    return time.process_time() + (0.0 if place.pid is None else cpu_seconds(place.pid))


def describe_answer(answer: object) -> str:
    if isinstance(answer, JobPage):
        return f"{len(answer.jobs)} jobs" + (
            ", partial" if answer.partial else ", more" if answer.cursor else ""
        )
    return str(answer) if isinstance(answer, JobCount) else ""


async def measure_all(place: EmptyStore, jobs: int, over: float) -> int:
    app, nothing = application(f"sqlite:///{place.url}/jobs.db" if place.store == "sqlite" else place.url)
    async with app:
        began = time.perf_counter()
        await fill_store(app.store, jobs)
        await create_documents(app, nothing)
        used = place.bytes_used() / 1e6
        print(f"\n{place.store}: {jobs:,} jobs in {time.perf_counter() - began:.0f} s, {used:,.0f} MB")
        print(f"{'':<44}{'median':>9}{'slowest':>9}{'busy':>9}  milliseconds")
        asked = await build_queries(app, jobs)
        return sum([await show(name, ask, place, over) for name, ask in asked.items()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000, help=f"a multiple of {JOBS_PER_INSERT}")
    parser.add_argument("--store", action="append", choices=STORES)
    parser.add_argument("--over", type=float, default=200.0, help="limit in milliseconds")
    parser.add_argument("--disk", help="the folder for the SQLite file")
    arguments = parser.parse_args()
    slow = 0
    for store in arguments.store or STORES:
        with create_factory(store, arguments.disk) as around, around.empty() as place:
            slow += asyncio.run(measure_all(place, arguments.jobs, arguments.over))
    sys.exit(f"{slow} questions took longer than {arguments.over:.0f} ms" if slow else None)


if __name__ == "__main__":
    main()
