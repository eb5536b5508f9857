"""The part of the contract about queue settings. Code declares settings, and operators override them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec import UNSET, UnsetType

from tidemill.core.overrides import Override, apply_override, override_in_force
from tidemill.core.queues import Pause, QueueChanges, QueueSettings


class QueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A queue with its settings. `declared` comes from code; `settings` are in force, with the changes of
    `override`."""

    name: str
    declared: QueueSettings
    override: Override[QueueChanges] | None
    settings: QueueSettings
    pause: Pause | None


def make_queue_info(
    name: str,
    declared: QueueSettings,
    override: Override[QueueChanges] | None,
    pause: Pause | None,
    now: float,
) -> QueueInfo:
    return QueueInfo(
        name=name,
        declared=declared,
        override=override_in_force(override, now),
        settings=apply_override(declared, override, now),
        pause=pause,
    )


class QueueStore(Protocol):
    """The methods for settings, overrides and pauses of queues."""

    async def declare(self, queues: Mapping[str, QueueSettings]) -> None:
        """Stores the settings that code declares, by queue name.

        Q1  Overrides and pauses stay. An undeclared queue has default settings from its first job on. The
            default retention never replaces the longer one of a queue with paid tasks
            (`core.queues.redeclare_queue`)."""
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
        """Adds an operator's changes to the queue's override, in one transaction. `by` is the author.

        `until`: the wall time at which the whole override ends. Left out, the current end stays; None removes
        the end.

        Q2  Settings in `changes` replace those in the override; settings that `changes` does not name stay.
            Author and reason are those of the last call. The override takes effect with the next call of any
            store method, on every worker. After its end, jobs that its limit kept back may start with the
            next claim. A claim that finds an expired override removes it, so setting the clock back cannot
            restore it."""
        ...

    async def clear_override(self, queue: str, names: Sequence[str] = ()) -> None:
        """Removes the named settings, or all if `names` is empty, from the queue's override.

        Q6  The declared values apply again with the next call of any store method. Author, reason and end of
            the settings that stay are unchanged."""
        ...

    async def pause(self, queue: str, *, until: float | None = None, reason: str | None = None) -> None:
        """Pauses a queue until `until` (wall time), or until `resume` if `until` is None.

        Q3  Running jobs continue, and no new job starts. A time or reason that cannot be stored is
            refused."""
        ...

    async def resume(self, queue: str) -> None:
        """Ends the pause of a queue.

        Q4  Workers are woken."""
        ...

    async def queues(self) -> list[QueueInfo]:
        """Returns the queues, sorted by name.

        Q5  Every queue that was declared or has had a job is listed."""
        ...
