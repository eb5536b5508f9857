"""One queue library behind the few calls the measurements need.

An adapter is opened on an empty folder in a process of its own. Handlers do nothing but
note that they started. Each adapter states the settings it runs with and the moment at
which it forgets a job, because speed without that says little.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

Started = Callable[[float], None]
"""Called at the start of every handler with the time its job carries."""


class Adapter(Protocol):
    settings: str
    acknowledges: str

    def open(self, folder: Path) -> None: ...
    def preload(self, jobs: int) -> None:
        """The fastest way in there is; not measured."""
        ...

    def enqueue_each(self, jobs: int) -> None:
        """One after the other, each accepted before the next is sent."""
        ...

    def enqueue_together(self, jobs: int, producers: int) -> None:
        """By that many producers at once, each waiting for its own jobs."""
        ...

    def drain(self, jobs: int) -> None:
        """Run that many waiting jobs in this process, and settle them."""
        ...

    def send(self, sent: float) -> None: ...
    def serve(self, started: Started) -> AbstractContextManager[None]:
        """Run whatever arrives, in the background."""
        ...

    def close(self) -> None: ...


ADAPTERS = {
    "tidemill": "benchmarks.adapters.tidemill:Sync",
    "tidemill-async": "benchmarks.adapters.tidemill:Async",
    "huey": "benchmarks.adapters.huey:Durable",
    "huey-nosync": "benchmarks.adapters.huey:NoSync",
    "litequeue": "benchmarks.adapters.litequeue:Litequeue",
    "persist-queue": "benchmarks.adapters.persistqueue:PersistQueue",
    "bare": "benchmarks.adapters.bare:Bare",
}


def load(name: str) -> Adapter:
    module, _, attribute = ADAPTERS[name].partition(":")
    adapter: Adapter = getattr(importlib.import_module(module), attribute)()
    return adapter
