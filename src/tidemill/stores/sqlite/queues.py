"""Declaring, overriding, pausing and listing queues."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from tidemill.contract.queues import QueueInfo
from tidemill.contract.wakeups import queue_topic
from tidemill.core.names import problem_with_name
from tidemill.core.queues import Override, Pause, QueueSettings, redeclared, without
from tidemill.errors import ConfigurationError
from tidemill.stores.sqlite.rows import text_of
from tidemill.stores.sqlite.settings import SQL, queue_row
from tidemill.stores.sqlite.transaction import Transaction

_DEFAULT = msgspec.json.encode(QueueSettings()).decode()


def appear(transaction: Transaction, queue: str) -> None:
    if not transaction.queue(queue).known:
        transaction.execute(SQL.appear, (queue, _DEFAULT))


def declare(transaction: Transaction, queues: Mapping[str, QueueSettings]) -> None:
    for name, settings in queues.items():
        _check(name, settings)
        kept = redeclared(transaction.queue(name).declared, settings)
        transaction.execute(SQL.declare, (name, text_of(kept)))
        _limits_changed(transaction, name)


def override(
    transaction: Transaction, queue: str, change: Callable[[Override | None, float], Override]
) -> None:
    """Q2."""
    check_name(queue)
    new = change(transaction.queue(queue).override, transaction.now)
    if problem := new.problem():
        raise ConfigurationError(f"queue {queue!r}: {problem}")
    _set_override(transaction, queue, new)


def clear_override(transaction: Transaction, queue: str, names: Sequence[str]) -> None:
    """Q6."""
    check_name(queue)
    _set_override(transaction, queue, without(transaction.queue(queue).override, names))


def _set_override(transaction: Transaction, queue: str, new: Override | None) -> None:
    appear(transaction, queue)
    transaction.execute(SQL.override, (None if new is None else text_of(new), queue))
    _limits_changed(transaction, queue)


def end_override(transaction: Transaction, queue: str) -> None:
    """Q2. Its time is over: it does not come back when the wall clock is set back, and lanes that were
    at its limit are open."""
    override = transaction.queue(queue).override
    if override is not None and not override.holds(transaction.now):
        transaction.execute(SQL.override, (None, queue))
        transaction.queue_changed(queue)


def pause(transaction: Transaction, queue: str, until: float | None, reason: str | None) -> None:
    check_name(queue)
    mark = Pause(since=transaction.now, until=until, reason=reason)
    if problem := mark.problem():
        raise ConfigurationError(f"queue {queue!r}: {problem}")
    appear(transaction, queue)
    transaction.execute(SQL.pause, (text_of(mark), queue))
    transaction.topics.add(queue_topic(queue))  # a parked worker learns when to look again


def resume(transaction: Transaction, queue: str) -> None:
    check_name(queue)
    appear(transaction, queue)
    transaction.execute(SQL.pause, (None, queue))
    transaction.topics.add(queue_topic(queue))


def every(transaction: Transaction) -> list[QueueInfo]:
    rows = transaction.execute(SQL.all)
    return [queue_row(*texts).info(name, transaction.now) for name, *texts in rows]


def _check(queue: str, settings: QueueSettings) -> None:
    check_name(queue)
    if problem := settings.problem():
        raise ConfigurationError(f"queue {queue!r}: {problem}")


def check_name(queue: str) -> None:
    if problem := problem_with_name("queue", queue):
        raise ConfigurationError(problem)


def _limits_changed(transaction: Transaction, queue: str) -> None:
    transaction.queue_changed(queue)
    transaction.topics.add(queue_topic(queue))
