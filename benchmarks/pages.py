"""How long everything takes that a page or the API asks of a store with a million jobs in it.

    python -m benchmarks.pages [--jobs 1000000] [--store sqlite] [--over 200]

Fills a store of each kind (`benchmarks.million`) and asks every question several times, as one process that
has just been started does. Printed are, in milliseconds, the median and the slowest of what passed, and how
long processors were busy with one, in this process and in the server; and a mark at what takes longer than
`--over` milliseconds. If there was any, the program ends with an error.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

from benchmarks.million import AT_ONCE, OLD_QUEUE, fill
from benchmarks.places import Place, places
from benchmarks.plan import STORES
from benchmarks.processes import cpu_seconds
from tidemill import Tidemill
from tidemill.client.task import Task
from tidemill.contract.reader import Page
from tidemill.core.courses import Kind
from tidemill.core.filters import Filter
from tidemill.core.queues import DAY
from tidemill.core.states import State
from tidemill.inspect.views import Count
from tidemill.schedules.settings import ScheduleOptions

TIMES = 7
ASKED = 50
FLOWS, SCHEDULES = 300, 100

Ask = Callable[[], Awaitable[Any]]


def application(url: str) -> tuple[Tidemill, Task[[int], int]]:
    app = Tidemill(url)

    @app.task(name="nothing", queue="dubbing")
    async def nothing(number: int) -> int:
        return number

    return app, nothing


async def begin_courses(app: Tidemill, task: Task[[int], int]) -> None:
    for number in range(FLOWS):
        flow = app.flow("dub", key=f"film-{number}")
        flow.add(task, number=flow.add(task, number=number))
        await flow.enqueue()
    nightly = [(f"nightly-{n}", task.job(n), ScheduleOptions(cron="0 3 * * *")) for n in range(SCHEDULES)]
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
        "created three days ago": Filter(since=now - 3 * DAY, until=now - 3 * DAY + 60),
        "finished last day": Filter(since=now - DAY, time="finished"),
        "failed in a day of the past": Filter(
            states=failed, since=now - 5 * DAY, until=now - 4 * DAY, time="finished"
        ),
        "finished in a minute of the past": Filter(
            states=done, since=now - 5 * DAY, until=now - 5 * DAY + 60, time="finished"
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
            since=now - 6 * DAY,
        ),
    }


def far(jobs: int) -> int:
    return jobs // 3


async def questions(app: Tidemill, jobs: int) -> dict[str, Ask]:
    look, store = app.inspect, app.store
    now = (await store.read_clock()).wall
    asked: dict[str, Ask] = {
        "overview": look.overview,
        "overview, sparing": lambda: look.overview(sparing=True),
        "queues": look.queues,
        "queues, sparing": lambda: look.queues(sparing=True),
        "queue": lambda: look.queue("feeds"),
        "queue, sparing": lambda: look.queue("feeds", sparing=True),
        "history of a day": lambda: look.history("feeds", now - DAY),
        "pools": look.pools,
        "pools, sparing": lambda: look.pools(sparing=True),
        "pool": lambda: look.pool("model"),
        "history of a pool's day": lambda: look.pool_history("model", now - DAY),
        "flows": look.flows,
        "flows that failed": lambda: look.flows(states=("failed",)),
        "schedules": app.schedules.list,
        "workers": look.workers,
        "records, newest": lambda: store.find_courses(Kind.RECORD, name="audit", limit=ASKED),
        "records of a state": lambda: store.find_courses(
            Kind.RECORD, name="audit", states=("retry",), limit=ASKED
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


async def show(name: str, ask: Ask, place: Place, over: float) -> bool:
    took = []
    await ask()
    began_busy = busy(place)
    for _ in range(TIMES):
        began = time.perf_counter()
        answer = await ask()
        took.append((time.perf_counter() - began) * 1000)
    worked = (busy(place) - began_busy) * 1000 / TIMES
    slow = median(took) > over
    figures = "".join(f"{figure:>9.1f}" for figure in (median(took), max(took), worked))
    print(f"{name:<44}{figures}  {told(answer)}{'  !' if slow else ''}", flush=True)
    return slow


def busy(place: Place) -> float:
    return time.process_time() + (0.0 if place.pid is None else cpu_seconds(place.pid))


def told(answer: object) -> str:
    if isinstance(answer, Page):
        return f"{len(answer.jobs)} jobs" + (
            ", partial" if answer.partial else ", more" if answer.cursor else ""
        )
    return str(answer) if isinstance(answer, Count) else ""


async def ask_all(place: Place, jobs: int, over: float) -> int:
    app, nothing = application(f"sqlite:///{place.url}/jobs.db" if place.store == "sqlite" else place.url)
    async with app:
        began = time.perf_counter()
        await fill(app.store, jobs)
        await begin_courses(app, nothing)
        used = place.bytes_used() / 1e6
        print(f"\n{place.store}: {jobs:,} jobs in {time.perf_counter() - began:.0f} s, {used:,.0f} MB")
        print(f"{'':<44}{'median':>9}{'slowest':>9}{'busy':>9}  milliseconds")
        asked = await questions(app, jobs)
        return sum([await show(name, ask, place, over) for name, ask in asked.items()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000, help=f"a multiple of {AT_ONCE}")
    parser.add_argument("--store", action="append", choices=STORES)
    parser.add_argument("--over", type=float, default=200.0, help="milliseconds that are too many")
    parser.add_argument("--disk", help="the folder that the SQLite file is put into")
    arguments = parser.parse_args()
    slow = 0
    for store in arguments.store or STORES:
        with places(store, arguments.disk) as around, around.empty() as place:
            slow += asyncio.run(ask_all(place, arguments.jobs, arguments.over))
    sys.exit(f"{slow} questions took longer than {arguments.over:.0f} ms" if slow else None)


if __name__ == "__main__":
    main()
