"""Synchronous forms of the store methods insert, amend and get, for programs without an event loop."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.contract.coordination import queue_topic
from tidemill.core.filters import Filter
from tidemill.core.jobs import Job, JobGroup
from tidemill.core.operator_changes import AmendResult, OperatorChange
from tidemill.core.queues import InsertResult
from tidemill.stores.sqlite import reader
from tidemill.stores.sqlite.connection import ReadConnection
from tidemill.stores.sqlite.find import amend
from tidemill.stores.sqlite.insert import insert
from tidemill.stores.sqlite.wakeups import SqliteWakeups
from tidemill.stores.sqlite.writer import SqliteWriter


class SqliteBlocking:
    """The store methods insert, amend and get for programs without an event loop. Each call runs in the
    caller's thread."""

    def __init__(self, writer: SqliteWriter, reads: ReadConnection, wakeups: SqliteWakeups) -> None:
        self._writer, self._reads, self._wakeups = writer, reads, wakeups

    def insert(self, groups: Sequence[JobGroup]) -> list[list[InsertResult]]:
        appended = self._writer.append(groups)
        if appended is None:
            return self._writer.run(lambda transaction: insert(transaction, groups), durable=True)
        self._wakeups.wake((queue_topic(groups[0].queue),))
        return appended

    def amend(self, job_filter: Filter, change: OperatorChange, limit: int = 1000) -> AmendResult:
        return self._writer.run(
            lambda transaction: amend(transaction, job_filter, change, limit), durable=True
        )

    def get(self, ids: Sequence[str]) -> list[Job | None]:
        return self._reads.run_here(lambda transaction: reader.get(transaction, ids))
