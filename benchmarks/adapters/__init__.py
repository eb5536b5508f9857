"""One queue library behind the few calls the measurements need.

An adapter is opened on an empty place in a process of its own. Handlers do nothing but note that they
started. Each adapter states the settings it runs with and the moment at which it forgets a job, because
speed without that says little.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Protocol, cast

from benchmarks.tally import Row


class Opened(Protocol):
    settings: str
    acknowledges: str

    def open(self, url: str) -> None: ...

    def work(self, row: Row) -> None:
        """Run whatever arrives and note every start in `row`, until the process is killed."""
        ...

    def close(self) -> None: ...


class Adapter(Opened, Protocol):
    def preload(self, jobs: int, text: str = "") -> None:
        """The fastest way in there is; not measured. `text` is an argument of every job."""
        ...

    def enqueue_each(self, jobs: int) -> None:
        """One after the other, each accepted before the next is sent."""
        ...

    def enqueue_together(self, jobs: int, producers: int) -> None:
        """By that many producers at once, each waiting for its own jobs."""
        ...

    def enqueue_bulk(self, jobs: int) -> None:
        """In as few calls as the library likes."""
        ...

    def send_paced(self, gaps: Sequence[float]) -> None:
        """One job after each gap in seconds; a job carries the time at which it was sent."""
        ...


class FlowAdapter(Opened, Protocol):
    """Every step notes that it started; what one returns is given to the next."""

    def send_chains(self, chains: int, steps: int) -> None:
        """The fastest way in there is; not measured."""
        ...

    def run_chain(self, steps: int) -> int:
        """Send one and wait for its result: the number of its steps, each of which adds one."""
        ...

    def run_fan_out(self, width: int) -> int:
        """A job, then `width` jobs, then one that gets all their results: how many there were."""
        ...


ADAPTERS = {
    "sqlite": {
        "tidemill": "tidemill:Sync",
        "tidemill-async": "tidemill:Async",
        "tidemill-flows": "tidemill_flows:Flows",
        "huey": "sqlite.huey:Durable",
        "huey-nosync": "sqlite.huey:NoSync",
        "litequeue": "sqlite.litequeue:Litequeue",
        "persist-queue": "sqlite.persistqueue:PersistQueue",
        "bare": "sqlite.bare:Bare",
    },
    "redis": {
        "tidemill": "tidemill:Sync",
        "tidemill-async": "tidemill:Async",
        "tidemill-flows": "tidemill_flows:Flows",
        "arq": "redis.arq:Arq",
        "bullmq-flows": "redis.bullmq_flows:BullFlows",
        "bullmq-node": "redis.bullmq_node:BullNode",
        "bullmq-python": "redis.bullmq:Bull",
        "celery": "redis.celery:CeleryOnRedis",
        "celery-canvas": "redis.celery_canvas:Canvas",
        "dramatiq": "redis.dramatiq:Dramatiq",
        "huey": "redis.huey:HueyOnRedis",
        "rq": "redis.rq:RQ",
        "saq": "redis.saq:SaqOnRedis",
        "streaq": "redis.streaq:Streaq",
        "taskiq": "redis.taskiq:TaskiqList",
        "taskiq-stream": "redis.taskiq:TaskiqStream",
        "bare": "redis.bare:Blocked",
        "bare-async": "redis.bare:Awaited",
    },
    "postgres": {
        "tidemill": "tidemill:Sync",
        "tidemill-async": "tidemill:Async",
        "tidemill-flows": "tidemill_flows:Flows",
        "chancy": "postgres.chancy:ChancyQueue",
        "pgqueuer": "postgres.pgqueuer:PgQueuerQueue",
        "procrastinate": "postgres.procrastinate:Procrastinate",
        "saq": "postgres.saq:SaqOnPostgres",
        "bare-async": "postgres.bare:Awaited",
    },
}


PACKAGES = {
    "sqlite": ("huey", "litequeue", "persist-queue"),
    "redis": (
        *("redis", "hiredis", "arq", "bullmq", "celery", "dramatiq", "huey", "rq", "saq", "streaq"),
        *("taskiq", "taskiq-redis"),
    ),
    "postgres": ("asyncpg", "chancy", "pgqueuer", "procrastinate", "psycopg", "saq"),
}


def versions(store: str) -> dict[str, str]:
    """Of everything that can be measured here, for the report."""
    found = [f"{name} {number}" for name in PACKAGES[store] if (number := _installed(name))]
    if store == "redis":
        pinned = json.loads((Path(__file__).parents[1] / "node" / "package.json").read_text())
        found += [f"{name} {number} (Node)" for name, number in pinned["dependencies"].items()]
    return {"versions": ", ".join(found)}


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def how(store: str, queue: str) -> tuple[str, str]:
    """Its settings, and when it forgets a job."""
    if queue in ADAPTERS[store]:
        adapter = load(store, queue)
        return adapter.settings, adapter.acknowledges
    from benchmarks.measure.ceilings import SETTINGS

    return SETTINGS[queue], "not a queue"


def load(store: str, name: str) -> Adapter:
    return cast("Adapter", _made(store, name))


def load_flows(store: str, name: str) -> FlowAdapter:
    return cast("FlowAdapter", _made(store, name))


def _made(store: str, name: str) -> object:
    module, _, attribute = ADAPTERS[store][name].partition(":")
    made: object = getattr(importlib.import_module(f"benchmarks.adapters.{module}"), attribute)()
    return made
