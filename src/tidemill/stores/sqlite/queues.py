"""Declares, overrides, pauses and lists queues."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidemill.contract.coordination import queue_topic
from tidemill.contract.queues import QueueInfo
from tidemill.core.overrides import OverrideEdit
from tidemill.core.queues import Pause, QueueChanges, QueueSettings, redeclare_queue
from tidemill.core.validation import problem_with_name
from tidemill.errors import ConfigurationError
from tidemill.stores.sqlite.rows import text_of
from tidemill.stores.sqlite.settings_cache import SQL, queue_row
from tidemill.stores.sqlite.transaction import SqliteTransaction

_DEFAULT = msgspec.json.encode(QueueSettings()).decode()


def add_queue(transaction: SqliteTransaction, queue: str) -> None:
    if not transaction.queue(queue).known:
        transaction.execute(SQL.add_if_missing, (queue, _DEFAULT))


def declare_queues(transaction: SqliteTransaction, queues: Mapping[str, QueueSettings]) -> None:
    for name, settings in queues.items():
        _check(name, settings)
        declared = redeclare_queue(transaction.queue(name).declared, settings)
        transaction.execute(SQL.declare, (name, text_of(declared)))
        _limits_changed(transaction, name)


def override_queue(transaction: SqliteTransaction, queue: str, edit: OverrideEdit[QueueChanges]) -> None:
    """Replaces the override of a queue with the result of `edit` (Q2). `edit` gets the current override
    and the wall time. Raises ConfigurationError if the new override is invalid."""
    check_name(queue)
    row = transaction.queue(queue)
    override = edit(row.override, transaction.now)
    if override is not None and (problem := override.problem(row.declared)):
        raise ConfigurationError(f"queue {queue!r}: {problem}")
    add_queue(transaction, queue)
    transaction.execute(SQL.override, (None if override is None else text_of(override), queue))
    _limits_changed(transaction, queue)


def end_override(transaction: SqliteTransaction, queue: str) -> None:
    """Deletes the override of a queue if the override has expired. Also opens the lanes that its limits have
    blocked (Q2)."""
    override = transaction.queue(queue).override
    if override is not None and not override.holds(transaction.now):
        # If it stayed, it would return when the wall clock is set back.
        transaction.execute(SQL.override, (None, queue))
        transaction.queue_changed(queue)


def pause_queue(transaction: SqliteTransaction, queue: str, until: float | None, reason: str | None) -> None:
    check_name(queue)
    mark = Pause(since=transaction.now, until=until, reason=reason)
    if problem := mark.problem():
        raise ConfigurationError(f"queue {queue!r}: {problem}")
    add_queue(transaction, queue)
    transaction.execute(SQL.pause, (text_of(mark), queue))
    transaction.topics.add(queue_topic(queue))  # an idle worker learns when to claim again


def resume_queue(transaction: SqliteTransaction, queue: str) -> None:
    check_name(queue)
    add_queue(transaction, queue)
    transaction.execute(SQL.pause, (None, queue))
    transaction.topics.add(queue_topic(queue))


def list_queues(transaction: SqliteTransaction) -> list[QueueInfo]:
    rows = transaction.execute(SQL.all)
    return [queue_row(*texts).info(name, transaction.now) for name, *texts in rows]


def _check(queue: str, settings: QueueSettings) -> None:
    check_name(queue)
    if problem := settings.problem():
        raise ConfigurationError(f"queue {queue!r}: {problem}")


def check_name(queue: str) -> None:
    if problem := problem_with_name("queue", queue):
        raise ConfigurationError(problem)


def _limits_changed(transaction: SqliteTransaction, queue: str) -> None:
    transaction.queue_changed(queue)
    transaction.topics.add(queue_topic(queue))
