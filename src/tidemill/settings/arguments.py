"""A worker's options as keyword arguments, so that an editor knows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict


class WorkerArguments(TypedDict, total=False):
    """See `WorkerOptions`, which these become. `queues` are names, or names with their weights."""

    queues: Mapping[str, int] | Mapping[str, int | None] | Iterable[str] | None
    strict: bool
    concurrency: int
    lease: float
    heartbeat: float | None
    look_every: float
    reclaim_every: float
    prune_every: float
    grace: float
    poll: float
    threads: int | None
    isolated_processes: int | None
    id: str | None
    until_idle: bool
    heartbeat_thread: bool
    isolation: bool
