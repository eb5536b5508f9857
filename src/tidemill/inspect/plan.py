"""What a plan answers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal
from zoneinfo import ZoneInfo

import msgspec

from tidemill.core.queues import Retention
from tidemill.core.units import Units
from tidemill.inspect.words import duration, plural, quantity


class LimitPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`seconds` is how long it would take if this limit were the only one, None for never. `pool` is None for
    what is not a provider's: the slots of workers, or a queue's own limit."""

    pool: str | None
    key: str | None
    name: str
    amount: float | None
    zone: str | None
    seconds: float | None

    def __str__(self) -> str:
        what = self.name if self.amount is None else quantity(self.amount, self.name)
        whose = "" if self.pool is None else f" of {self.pool}" + (f"/{self.key}" if self.key else "")
        return f"{what}{whose}"


class Waits(msgspec.Struct, frozen=True):
    """A queue that is paused, a queue no worker serves, or a pool that is closed: `what` is "queue",
    "workers" or "pool". `until` is a wall time, None: until a person acts. `reason` is None where nobody gave
    one."""

    what: Literal["queue", "workers", "pool"]
    name: str
    key: str | None = None
    until: float | None = None
    reason: str | None = None

    def told(self, zone: str | None, now: float) -> str:
        if self.what == "workers":
            return f"no worker serves queue {self.name}, and nothing starts until one does"
        is_, ends = ("paused", "it is resumed") if self.what == "queue" else ("closed", "a person opens it")
        name = f"{self.name}/{self.key}" if self.key else self.name
        until = ends if self.until is None else clock_time(self.until, zone, now)
        why = f" ({self.reason})" if self.reason else ""
        return f"{self.what} {name} is {is_} until {until}{why}"


class ShortRetention(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that drops results of the planned jobs before the last job is done."""

    queue: str
    jobs: int
    keeps: Retention

    def __str__(self) -> str:
        return (
            f"queue {self.queue} keeps done jobs {self.keeps.described()}: of {plural(self.jobs, 'result')} "
            "the first are dropped before the last job is done; raise keep_done"
        )


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """When so many jobs, sent now, would be done. Times are wall times, durations seconds.

    starts_at, done_at, seconds: None when it never comes to it as things are.
    bottleneck: the limit that alone would take longest; None when nothing holds them up.
    limits: every limit they meet, with how long it would take alone.
    calls, units: of these jobs; units are those their pools count.
    ahead: ready jobs as urgent or more so, in the same lane or of the same pools.
    takes: seconds a call is under way; None: nobody knows, and workers' slots are not counted with.
    waits: what is paused or closed for now, and queues without a worker.
    drops: queues that keep fewer done jobs, or for a shorter time, than these jobs need.
    """

    task: str | None
    count: int
    now: float
    starts_at: float | None
    done_at: float | None
    seconds: float | None
    bottleneck: LimitPlan | None
    limits: tuple[LimitPlan, ...]
    calls: int
    units: Units
    ahead: int
    takes: float | None
    waits: tuple[Waits, ...]
    drops: tuple[ShortRetention, ...] = ()

    def __str__(self) -> str:
        return "; ".join(self._told()) + "."

    def _told(self) -> list[str]:
        zone = None if self.bottleneck is None else self.bottleneck.zone
        told = [plural(self.count, "job") + (f" of {self.task}" if self.task else "")]
        if self.done_at is None or self.seconds is None:
            told.append("not done before a person acts")
        else:
            told.append(f"done {clock_time(self.done_at, zone, self.now)}, in {duration(self.seconds)}")
        told += [wait.told(zone, self.now) for wait in self.waits]
        if self.bottleneck is not None:
            told.append(f"bottleneck: {self.bottleneck}")
        return told + [str(drop) for drop in self.drops]


def clock_time(wall: float, zone: str | None, now: float) -> str:
    """`Thu 19 Nov 14:10 PST`: in a provider's zone where its days decide, else in the machine's own. With the
    year when it is another one than `now` is in."""
    place = ZoneInfo(zone) if zone else None
    local, today = (datetime.fromtimestamp(at, UTC).astimezone(place) for at in (wall, now))
    year = "" if local.year == today.year else f" {local.year}"
    return f"{local:%a} {local.day} {local:%b}{year} {local:%H:%M} {local.tzname()}"
