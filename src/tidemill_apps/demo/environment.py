"""The demo's folder, its clock shortly before midnight, its simulated providers and its worker."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from tidemill import Tidemill
from tidemill.testing.simulator import (
    Clock,
    GeminiDialect,
    Quota,
    ReplyFunction,
    SimulatedProvider,
    SimulatorOptions,
)
from tidemill_apps.common.model_clients import ProviderAccount
from tidemill_apps.common.providers import use_simulator

DEMO_FOLDER = Path("tidemill-demo")
FOLDER_MARKER = "made-by-tidemill-demo"
REMOVED_VARIABLE_PREFIXES = ("TIDEMILL_", "MUSIC_", "ARTICLES_", "REDIS_URL", "DATABASE_URL")


def enter_demo_folder(environ: MutableMapping[str, str] = os.environ) -> None:
    """Creates the empty folder `tidemill-demo` and makes it the current directory. Raises FileExistsError if
    the folder exists and is not from a demo. Removes Tidemill's variables from `environ`."""
    if DEMO_FOLDER.exists() and not (DEMO_FOLDER / FOLDER_MARKER).exists():
        raise FileExistsError(f"{DEMO_FOLDER} is there, and is not what an earlier demo left: move it away")
    shutil.rmtree(DEMO_FOLDER, ignore_errors=True)
    DEMO_FOLDER.mkdir()
    (DEMO_FOLDER / FOLDER_MARKER).touch()
    os.chdir(DEMO_FOLDER)
    for name in [name for name in environ if name.startswith(REMOVED_VARIABLE_PREFIXES)]:
        del environ[name]


ZONE = "America/Los_Angeles"


class MidnightClock:
    """A clock that starts `seconds` before the last midnight in Los Angeles and then runs at normal speed. It
    has its own boot id: otherwise Tidemill would assume that the wall clock was set, and pause calls."""

    def __init__(self, seconds: float) -> None:
        self._real = Tidemill("memory://").clock
        self.boot_id = f"before midnight {self._real.boot_id}"
        self.midnight = _last_midnight(self._real.wall())
        self._behind = self._real.wall() - (self.midnight - seconds)

    def wall(self) -> float:
        return self._real.wall() - self._behind

    def boot(self) -> float:
        return self._real.boot()


def _last_midnight(wall: float) -> float:
    today = datetime.fromtimestamp(wall, ZoneInfo(ZONE)).date()
    return datetime(today.year, today.month, today.day, tzinfo=ZoneInfo(ZONE)).timestamp()


TIME_SCALE = 30.0
MINUTE_SECONDS = 60.0 / TIME_SCALE
REQUESTS_PER_MINUTE, REQUESTS_PER_DAY, EMBEDDINGS_PER_MINUTE = 5, 18, 10
DECLARED_REQUESTS_PER_DAY = 20
"""The daily limit that the application assumes. It is too high, so that a refusal teaches it the real one."""
LATENCY_SECONDS, LONG_LATENCY_SECONDS = (2.0, 4.0), (12.0, 15.0)
"""Simulated seconds. The long latency leaves time for an edit during a call."""
VECTOR_DIMENSIONS = 768
CLOCK_LEAD_SECONDS = 0.3
"""Real seconds by which the provider's day ends before the application's."""


def create_free_tier(clock: MidnightClock, replies: ReplyFunction) -> SimulatedProvider:
    """Returns a simulated provider with limits per minute and per day. Its time runs 30 times faster than
    real time. Its day ends 0.3 s before midnight on the demo's clock."""
    until = clock.midnight - clock.wall() - CLOCK_LEAD_SECONDS
    return SimulatedProvider(
        GeminiDialect(),
        [Quota.rolling("requests", REQUESTS_PER_MINUTE), Quota.day("requests", REQUESTS_PER_DAY, zone=ZONE)],
        SimulatorOptions(latency=LATENCY_SECONDS),
        clock=clock,
        scale=TIME_SCALE,
        start=clock.midnight - until * TIME_SCALE,
        replies=replies,
    )


def create_embeddings_tier(clock: Clock) -> SimulatedProvider:
    return SimulatedProvider(
        GeminiDialect(),
        [Quota.rolling("requests", EMBEDDINGS_PER_MINUTE)],
        SimulatorOptions(latency=LONG_LATENCY_SECONDS),
        clock=clock,
        scale=TIME_SCALE,
    )


def create_account(url: str) -> ProviderAccount:
    return use_simulator(ProviderAccount(dimensions=VECTOR_DIMENSIONS), url)


WORKER_SLOTS = 10


@asynccontextmanager
async def run_worker(app: Tidemill) -> AsyncIterator[None]:
    async with app:
        worker = app.worker(concurrency=WORKER_SLOTS)
        running = asyncio.create_task(worker.run())
        try:
            yield
        finally:
            worker.stop()
            await running
