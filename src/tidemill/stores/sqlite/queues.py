"""Declaring, overriding, pausing and listing queues."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidemill.contract.queues import QueueInfo
from tidemill.contract.wakeups import queue_topic
from tidemill.core.names import problem_with_name
from tidemill.core.queues import Pause, QueueSettings
from tidemill.errors import ConfigurationError
from tidemill.stores.sqlite.rows import text_of
from tidemill.stores.sqlite.settings import SQL, queue_info
from tidemill.stores.sqlite.transaction import Transaction

_DEFAULT = msgspec.json.encode(QueueSettings()).decode()


def appear(transaction: Transaction, queue: str) -> None:
    if not transaction.queue(queue).known:
        transaction.execute(SQL.appear, (queue, _DEFAULT))


def declare(transaction: Transaction, queues: Mapping[str, QueueSettings]) -> None:
    for name, settings in queues.items():
        _check(name, settings)
        transaction.execute(SQL.declare, (name, text_of(settings)))
        _limits_changed(transaction, name)


def override(transaction: Transaction, queue: str, settings: QueueSettings | None) -> None:
    check_name(queue)
    if settings is not None:
        _check(queue, settings)
    appear(transaction, queue)
    transaction.execute(SQL.override, (None if settings is None else text_of(settings), queue))
    _limits_changed(transaction, queue)


def pause(transaction: Transaction, queue: str, until: float | None, reason: str | None) -> None:
    check_name(queue)
    appear(transaction, queue)
    mark = Pause(since=transaction.now, until=until, reason=reason)
    transaction.execute(SQL.pause, (text_of(mark), queue))
    transaction.topics.add(queue_topic(queue))  # a parked worker learns when to look again


def resume(transaction: Transaction, queue: str) -> None:
    check_name(queue)
    appear(transaction, queue)
    transaction.execute(SQL.pause, (None, queue))
    transaction.topics.add(queue_topic(queue))


def every(transaction: Transaction) -> list[QueueInfo]:
    return [queue_info(*row) for row in transaction.execute(SQL.all)]


def _check(queue: str, settings: QueueSettings) -> None:
    check_name(queue)
    if problem := settings.problem():
        raise ConfigurationError(f"queue {queue!r}: {problem}")


def check_name(queue: str) -> None:
    if problem := problem_with_name("queue", queue):
        raise ConfigurationError(problem)


def _limits_changed(transaction: Transaction, queue: str) -> None:
    transaction.execute(SQL.reopen_lanes, (queue,))
    transaction.topics.add(queue_topic(queue))
