"""What there is to do."""

from __future__ import annotations

import msgspec

from tidemill.core.needs import Need

Units = dict["Which", float]
"""What one call takes, by meter."""

Which = tuple[str, str | None, str]
"""A meter's name: pool, key and limit."""

SLOTS: Which = ("", None, "slots of the workers")
QUEUE: Which = ("", None, "jobs of the queue at once")


class Work(msgspec.Struct, frozen=True):
    """So many calls, each of the same needs."""

    calls: float
    needs: tuple[Need, ...] = ()


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that start one after the other, as those of a lane do. Of several lines the more urgent one
    starts first, and those of the same priority in turn, by the weight of their queues. None of it
    starts before `opens`, in seconds; infinite is never."""

    work: tuple[Work, ...]
    priority: int
    weight: float = 1.0
    queue: str = ""
    opens: float = 0.0
