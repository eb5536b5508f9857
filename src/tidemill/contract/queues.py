"""What is set on queues. Code declares, people override; no deploy erases an override."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec import UNSET, UnsetType

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
        has default settings from its first job on. A default retention never replaces the longer default of
        a queue with paid tasks (`core.queues.redeclared`)."""
        ...

    async def override(
        self,
        queue: str,
        changes: QueueChanges,
        *,
        by: str,
        reason: str | None = None,
        until: float | UnsetType | None = UNSET,
    ) -> None:
        """Q2 Joins the override that holds, in one step: settings given here replace, the others stay, so
        that two people who each set something keep both. It is signed anew. Takes effect with the next
        verb, on every worker. All of it ends by itself at `until` (wall time); left out, the end it has
        stays, and None takes the end away. From its end on it is not there, and what a limit of it kept
        back may start with the next claim. A claim that meets one past its time removes it, so that no
        step of the clock brings it back."""
        ...

    async def clear_override(self, queue: str, names: Sequence[str] = ()) -> None:
        """Q6 The named settings follow the code again, without names all of them. Who set the others, why
        and until when stays. Takes effect as an override does."""
        ...

    async def pause(self, queue: str, *, until: float | None = None, reason: str | None = None) -> None:
        """Q3 Running jobs go on; nothing new starts until `until` (wall time) or `resume`. A time or a
        reason that cannot be kept is refused."""
        ...

    async def resume(self, queue: str) -> None:
        """Q4 Ends a pause and wakes workers."""
        ...

    async def queues(self) -> list[QueueInfo]:
        """Q5 Every queue that was declared or has had a job, by name."""
        ...
