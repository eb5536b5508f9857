"""Adapters: each wraps one queue library behind the few calls that the measurements need.

An adapter is opened on an empty store in a separate process. Its handlers only record that they started.
Each adapter states its settings and when the library forgets a job, because a speed is meaningless
without them."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Protocol, cast

from benchmarks.start_log import StartLogRow


class OpenAdapter(Protocol):
    settings: str
    acknowledges: str

    def open(self, url: str) -> None: ...

    def work(self, row: StartLogRow) -> None:
        """Runs all jobs and records every start in `row`, until the process is killed."""
        ...

    def close(self) -> None: ...


class Adapter(OpenAdapter, Protocol):
    def preload(self, jobs: int, text: str = "") -> None:
        """Enqueues jobs the fastest way; not measured. `text` is an argument of every job."""
        ...

    def enqueue_each(self, jobs: int) -> None:
        """Enqueues jobs one by one; each is accepted before the next is sent."""
        ...

    def enqueue_together(self, jobs: int, producers: int) -> None:
        """Enqueues jobs from `producers` concurrent producers; each waits for its jobs to be accepted."""
        ...

    def enqueue_bulk(self, jobs: int) -> None:
        """Enqueues jobs in bulk calls, of the size that the library prefers."""
        ...

    def send_paced(self, gaps: Sequence[float]) -> None:
        """Sends one job after each gap in seconds. A job carries the time at which it was sent."""
        ...


class FlowAdapter(OpenAdapter, Protocol):
    """An adapter for flows. Every step records its start; the next step gets its result."""

    def send_chains(self, chains: int, steps: int) -> None:
        """Enqueues chains the fastest way; not measured."""
        ...

    def run_chain(self, steps: int) -> int:
        """Runs one chain and returns its result: the number of steps, because each step adds one."""
        ...

    def run_fan_out(self, width: int) -> int:
        """Runs a job, then `width` jobs, then one job with all results. Returns the number of results."""
        ...


ADAPTERS = {
    "sqlite": {
        "tidemill": "tidemill:TidemillSync",
        "tidemill-async": "tidemill:TidemillAsync",
        "tidemill-flows": "tidemill_flows:TidemillFlows",
        "huey": "sqlite.huey:DurableHuey",
        "huey-nosync": "sqlite.huey:HueyWithoutSync",
        "litequeue": "sqlite.litequeue:Litequeue",
        "persist-queue": "sqlite.persistqueue:PersistQueue",
        "bare": "sqlite.raw_insert:RawSqliteInsert",
    },
    "redis": {
        "tidemill": "tidemill:TidemillSync",
        "tidemill-async": "tidemill:TidemillAsync",
        "tidemill-flows": "tidemill_flows:TidemillFlows",
        "arq": "redis.arq:Arq",
        "bullmq-flows": "redis.bullmq_flows:BullMQFlows",
        "bullmq-node": "redis.bullmq_node:BullMQNode",
        "bullmq-python": "redis.bullmq:BullMQPython",
        "celery": "redis.celery:CeleryOnRedis",
        "celery-canvas": "redis.celery_canvas:CeleryCanvas",
        "dramatiq": "redis.dramatiq:Dramatiq",
        "huey": "redis.huey:HueyOnRedis",
        "rq": "redis.rq:RQ",
        "saq": "redis.saq:SaqOnRedis",
        "streaq": "redis.streaq:Streaq",
        "taskiq": "redis.taskiq:TaskiqList",
        "taskiq-stream": "redis.taskiq:TaskiqStream",
        "bare": "redis.raw_commands:RawRedisBlocking",
        "bare-async": "redis.raw_commands:RawRedisAsync",
    },
    "postgres": {
        "tidemill": "tidemill:TidemillSync",
        "tidemill-async": "tidemill:TidemillAsync",
        "tidemill-flows": "tidemill_flows:TidemillFlows",
        "chancy": "postgres.chancy:ChancyQueue",
        "pgqueuer": "postgres.pgqueuer:PgQueuerQueue",
        "procrastinate": "postgres.procrastinate:Procrastinate",
        "saq": "postgres.saq:SaqOnPostgres",
        "bare-async": "postgres.raw_insert:RawPostgresAsync",
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
    """Returns the versions of all measured packages, for the report."""
    found = [f"{name} {number}" for name in PACKAGES[store] if (number := _installed_version(name))]
    if store == "redis":
        pinned = json.loads((Path(__file__).parents[1] / "node" / "package.json").read_text())
        found += [f"{name} {number} (Node)" for name, number in pinned["dependencies"].items()]
    return {"versions": ", ".join(found)}


def _installed_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def describe_queue(store: str, queue: str) -> tuple[str, str]:
    """Returns the settings of a queue, and when it forgets a job."""
    if queue in ADAPTERS[store]:
        adapter = load_adapter(store, queue)
        return adapter.settings, adapter.acknowledges
    from benchmarks.measurements.upper_bounds import SETTINGS

    return SETTINGS[queue], "not a queue"


def load_adapter(store: str, name: str) -> Adapter:
    return cast("Adapter", _create_adapter(store, name))


def load_flow_adapter(store: str, name: str) -> FlowAdapter:
    return cast("FlowAdapter", _create_adapter(store, name))


def _create_adapter(store: str, name: str) -> object:
    module, _, attribute = ADAPTERS[store][name].partition(":")
    made: object = getattr(importlib.import_module(f"benchmarks.adapters.{module}"), attribute)()
    return made
