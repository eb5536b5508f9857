"""What a worker counted since it started."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Stats:
    """`since` is a wall time, `loop_lag` how late the event loop last answered its heartbeat.

    `stuck` counts slots held by attempts that outlived their timeout and cannot be killed;
    `expired` counts attempts that were not started because their lease was over;
    `stale` and `gone` count outcomes the store refused, `lost` attempts stopped without one.
    """

    since: float = 0.0
    claimed: int = 0
    done: int = 0
    retried: int = 0
    failed: int = 0
    snoozed: int = 0
    crashed: int = 0
    released: int = 0
    lost: int = 0
    expired: int = 0
    stale: int = 0
    gone: int = 0
    stuck: int = 0
    trips: int = 0
    beats: int = 0
    outages: int = 0
    loop_lag: float = 0.0
