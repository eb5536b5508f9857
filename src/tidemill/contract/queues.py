"""What is set on queues. Code declares, people override; no deploy erases an override."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from tidemill.core.queues import Override, Pause, QueueChanges, QueueSettings


class QueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """`settings` is what holds now: what code declared with the override's changes over it."""

    name: str
    declared: QueueSettings
    override: Override | None
    settings: QueueSettings
    pause: Pause | None


class Queues(Protocol):
    async def declare(self, queues: Mapping[str, QueueSettings]) -> None:
        """Q1 Writes what code says, and leaves overrides and pauses alone. A queue nobody declared
        has default settings from its first job on."""
        ...

    async def override(
        self,
        queue: str,
        changes: QueueChanges | None,
        *,
        by: str,
        reason: str | None = None,
        until: float | None = None,
    ) -> None:
        """Q2 Takes effect with the next verb, on every worker, in the place of the override before it.
        It ends by itself at `until` (wall time), and None ends it now: from then on it is not there,
        and what a limit of it kept back may start with the next claim. A claim that meets one past its
        time removes it, so that no step of the clock brings it back."""
        ...

    async def pause(self, queue: str, *, until: float | None = None, reason: str | None = None) -> None:
        """Q3 Running jobs go on; nothing new starts until `until` (wall time) or `resume`."""
        ...

    async def resume(self, queue: str) -> None:
        """Q4 Ends a pause and wakes workers."""
        ...

    async def queues(self) -> list[QueueInfo]:
        """Q5 Every queue that was declared or has had a job, by name."""
        ...
