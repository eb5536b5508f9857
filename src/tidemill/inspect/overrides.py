"""Pauses, overrides and closures that an operator sets on queues and pools."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UnsetType

from tidemill.contract.store import Store
from tidemill.core.pools import LimitChanges
from tidemill.core.queues import QueueChanges, QueueSettings
from tidemill.core.validation import refuse_unknown_options
from tidemill.errors import ConfigurationError
from tidemill.inspect.pools import require_pool
from tidemill.times import NoEnd, parse_end


async def pause_queue(store: Store, queue: str, until: float | datetime | None, reason: str | None) -> None:
    await store.pause(queue, until=await _read_end(store, until), reason=reason)


async def override_queue(
    store: Store,
    queue: str,
    options: Mapping[str, Any],
    *,
    by: str,
    reason: str | None,
    until: float | datetime | UnsetType | None,
) -> None:
    changes = _read_queue_changes(queue, options)
    await store.override(queue, changes, by=by, reason=reason, until=await _read_end(store, until))


async def clear_queue_override(store: Store, queue: str, names: tuple[str, ...]) -> None:
    refuse_unknown_options(names, QueueChanges.__struct_fields__, f"queue {queue!r}")
    await store.clear_override(queue, names)


def _read_queue_changes(queue: str, options: Mapping[str, Any]) -> QueueChanges:
    refuse_unknown_options(options, QueueChanges.__struct_fields__, f"queue {queue!r}")
    if not options:
        raise ConfigurationError(
            f"queue {queue!r}: name at least one setting to override, such as concurrency=2"
        )
    try:
        changes = msgspec.convert(dict(options), QueueChanges)
        problem = changes.problem(QueueSettings())
    except msgspec.ValidationError as error:
        problem = f"{error}; numbers are whole, keep_… take a Retention"
    if problem:
        raise ConfigurationError(f"queue {queue!r}: {problem}")
    return changes


async def override_pool(
    store: Store,
    name: str,
    amounts: Mapping[str, float],
    *,
    key: str | None,
    by: str,
    reason: str | None,
    until: float | datetime | UnsetType | None,
) -> None:
    await require_pool(store, name)
    if not amounts:
        raise ConfigurationError(
            f"pool {name!r}: name at least one limit, such as {{'requests per minute': 5}}"
        )
    changes = LimitChanges(amounts=dict(amounts))
    end = await _read_end(store, until)
    await store.override_pool(name, changes, key=key, by=by, reason=reason, until=end)


async def clear_pool_override(store: Store, name: str, limits: tuple[str, ...], *, key: str | None) -> None:
    known = [limit.name for limit in (await require_pool(store, name)).declared.limits]
    for limit in limits:
        if limit not in known:
            raise ConfigurationError(
                f"{limit!r} is not a limit of pool {name!r}; there are: {', '.join(known)}"
            )
    await store.clear_pool_override(name, limits, key=key)


async def close_pool(
    store: Store, name: str, key: str | None, *, by: str, reason: str | None, until: float | datetime | None
) -> None:
    await require_pool(store, name)
    await store.close_pool(name, key=key, until=await _read_end(store, until), by=by, reason=reason)


async def _read_end(store: Store, until: float | datetime | NoEnd) -> float | NoEnd:
    return parse_end(until, (await store.read_clock()).wall, ConfigurationError)
