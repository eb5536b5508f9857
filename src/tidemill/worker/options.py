"""The options of a worker. They are checked when the options are created."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemill.errors import ConfigurationError


class UniqueWorkerId(str):
    """A worker id that no worker has used before, so no random part is added to it. A supervisor creates one
    for each process."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The options of a worker. All durations are seconds.

    queues: queue names and their weights; a queue with a larger weight gets more slots.
    strict: serve the queues strictly in the order given, instead of by weight.
    concurrency: how many jobs run at once (the number of slots).
    lease: how long a claim lasts without a heartbeat.
    heartbeat: how often leases are renewed; a third of `lease` by default.
    lead_every: how often the worker asks which maintenance services it leads, and what is due. A leader that
        died is replaced within 2.25 times this duration.
    reclaim_every, prune_every: how often expired leases are reclaimed and finished jobs are pruned. Only the
        leader, one worker of all, does this.
    grace: how long running jobs may continue after the worker was asked to stop.
    poll: how long a ready job may wait at most if its wake-up is lost.
    threads: how many sync handlers run at once; as many as `concurrency` by default.
    isolated_processes: how many jobs run in child processes at once; one per core by default, and not more
        than `concurrency`.
    id: the prefix of the worker's name. A random part follows, because a store remembers the claims of a
        worker by its name. So a restarted worker needs a new name.
    until_idle: stop when no job is ready or running. Jobs that are scheduled for later stay in the store.
    heartbeat_thread: renew leases from a separate thread, even while the event loop is blocked. Only tests
        under virtual time set it to False.
    isolation: run `isolate=True` tasks, and jobs that were running when their process died, in child
        processes. Only tests under virtual time set it to False."""

    queues: Mapping[str, int] = field(default_factory=lambda: {"default": 1})
    strict: bool = False
    concurrency: int = 10
    lease: float = 30.0
    heartbeat: float | None = None
    lead_every: float = 2.0
    reclaim_every: float = 10.0
    prune_every: float = 30.0
    grace: float = 30.0
    poll: float = 2.0
    threads: int | None = None
    isolated_processes: int | None = None
    id: str | None = None
    until_idle: bool = False
    heartbeat_thread: bool = True
    isolation: bool = True

    def __post_init__(self) -> None:
        _require(bool(self.queues), "queues: name at least one queue")
        for queue, weight in self.queues.items():
            _require(weight >= 1, f"queues: the weight of {queue!r} must be 1 or more, is {weight}")
        for name in ("concurrency", "threads", "isolated_processes"):
            value = getattr(self, name)
            _require(value is None or value >= 1, f"{name}: must be 1 or more, is {value}")
        for name in ("lease", "heartbeat", "lead_every", "reclaim_every", "prune_every", "poll"):
            value = getattr(self, name)
            _require(value is None or _is_positive(value), f"{name}: must be above 0 seconds, is {value}")
        _require(
            math.isfinite(self.grace) and self.grace >= 0,
            f"grace: must be 0 or more seconds, is {self.grace}",
        )
        _require(
            self.beat_every < self.lease,
            f"heartbeat: must be shorter than the lease of {self.lease} seconds, is {self.beat_every}",
        )

    @property
    def beat_every(self) -> float:
        return self.lease / 3 if self.heartbeat is None else self.heartbeat


def _is_positive(value: float) -> bool:
    return math.isfinite(value) and value > 0


def _require(fine: bool, problem: str) -> None:
    if not fine:
        raise ConfigurationError(problem)


REARM_SECONDS = 30.0
"""A listener without a wake-up is armed again after this: a wake-up may have been lost, and other processes
may no longer know the listener."""
