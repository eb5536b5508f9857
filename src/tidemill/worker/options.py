"""What can be set on a worker, checked once when it is built."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemill.errors import ConfigurationError


class FreshId(str):
    """A worker's id that nobody had before, as a supervisor makes one for each process."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Durations are seconds. `queues` maps a name to its weight: larger gets more.

    strict: serve the queues strictly in the order given instead of by weight.
    lease, heartbeat: how long a claim lasts, and how often it is renewed (a third of it by default).
    look_every: how often it asks which chores of the fleet are its own, and what there is to do. One that
        died with them is replaced within 2.25 times that.
    reclaim_every, prune_every: how often these chores are done, by one worker of the fleet.
    grace: how long running jobs may go on after the worker was told to stop.
    poll: how long a job may wait when every wake-up is lost.
    threads: how many sync handlers run at once; as many as `concurrency` by default.
    isolated_processes: how many jobs run in processes of their own at once; one per core by default.
    id: what the worker's name begins with. The rest is random: a store remembers the claims of a
        worker by its name, so one that was restarted must not go by the name it had.
    until_idle: stop when nothing is ready or running; what is scheduled for later stays.
    heartbeat_thread: renew leases from a thread of its own, whatever the event loop does. Only a
        test under virtual time turns it off.
    isolation: run suspects and `isolate=True` tasks in processes of their own. Only a test under
        virtual time turns it off.
    """

    queues: Mapping[str, int] = field(default_factory=lambda: {"default": 1})
    strict: bool = False
    concurrency: int = 10
    lease: float = 30.0
    heartbeat: float | None = None
    look_every: float = 2.0
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
        for name in ("lease", "heartbeat", "look_every", "reclaim_every", "prune_every", "poll"):
            value = getattr(self, name)
            _require(value is None or _positive(value), f"{name}: must be above 0 seconds, is {value}")
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


def _positive(value: float) -> bool:
    return math.isfinite(value) and value > 0


def _require(fine: bool, problem: str) -> None:
    if not fine:
        raise ConfigurationError(problem)
