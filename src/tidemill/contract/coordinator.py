"""Who does the chores. Every chore is harmless when two do it: leadership only saves work."""

from __future__ import annotations

from typing import Protocol


class Coordinator(Protocol):
    async def lead(self, duty: str, worker: str, lease: float) -> bool:
        """C1 True for one worker at a time until its lease is over; asking again renews it."""
        ...

    async def resign(self, duty: str, worker: str) -> None:
        """C2 Lets another lead at once; says nothing when `worker` does not lead."""
        ...
