"""Who does the chores, and whether there is anything to do. Every chore is harmless when two do it:
leadership only saves work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from tidemill.contract.jobs import Reading
from tidemill.core.courses import Kind


class Led(msgspec.Struct, frozen=True):
    """`leads` are those of the duties that are the worker's now; `free_in` is in how many seconds the first
    lease of another is over, None when no duty is another's. `arrivals`: some wait to be admitted. `dues` are
    in how many seconds a course of each kind that goes on by itself waits to be advanced, None when none
    will."""

    leads: tuple[str, ...]
    free_in: float | None
    clock: Reading
    arrivals: bool
    dues: Mapping[Kind, float | None]


class Coordinator(Protocol):
    async def lead(self, duties: Sequence[str], worker: str, lease: float) -> Led:
        """One request keeps all duties of a worker, stands for those of others, and tells what waits.

        C1 A duty is one worker's at a time until its lease is over; asking again renews it.
        C3 What waits is told as the verbs it is fetched by would find it: `arrivals`, and `agenda`, for which
           a course that is on it is due in 0 seconds.
        """
        ...

    async def resign(self, duties: Sequence[str], worker: str) -> None:
        """C2 Lets another lead at once; says nothing of those `worker` does not lead."""
        ...
