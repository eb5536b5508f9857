"""Pauses and overrides: what a person sets on a queue over what code declared."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UnsetType

from tidemill.contract.store import Store
from tidemill.core.names import refuse_unknown
from tidemill.core.queues import QueueChanges, QueueSettings
from tidemill.errors import ConfigurationError
from tidemill.times import read_time

End = float | datetime | None


async def pause(store: Store, queue: str, until: End, reason: str | None) -> None:
    end = await future(store, until)
    await store.pause(queue, until=end, reason=reason)


async def override(
    store: Store,
    queue: str,
    options: Mapping[str, Any],
    *,
    by: str,
    reason: str | None,
    until: End | UnsetType,
) -> None:
    changes = _as_changes(queue, options)
    end = until if isinstance(until, UnsetType) else await future(store, until)
    await store.override(queue, changes, by=by, reason=reason, until=end)


async def clear_override(store: Store, queue: str, names: tuple[str, ...]) -> None:
    refuse_unknown(names, QueueChanges.__struct_fields__, f"queue {queue!r}")
    await store.clear_override(queue, names)


async def future(store: Store, until: End) -> float | None:
    """When it ends, which must be ahead; None is open."""
    if until is None:
        return None
    end, now = read_time("until", until, ConfigurationError), (await store.read_clock()).wall
    if not end > now:
        raise ConfigurationError(f"until: must be in the future, is {now - end:.0f} s ago; give a later time")
    return end


def _as_changes(queue: str, options: Mapping[str, Any]) -> QueueChanges:
    refuse_unknown(options, QueueChanges.__struct_fields__, f"queue {queue!r}")
    if not options:
        raise ConfigurationError(
            f"queue {queue!r}: name at least one setting to override, such as concurrency=2"
        )
    try:
        changes = msgspec.convert(dict(options), QueueChanges)
        problem = changes.over(QueueSettings()).problem()
    except msgspec.ValidationError as error:
        problem = f"{error}; numbers are whole, keep_… take a Retention"
    if problem:
        raise ConfigurationError(f"queue {queue!r}: {problem}")
    return changes
