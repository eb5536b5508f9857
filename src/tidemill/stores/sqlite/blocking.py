"""The verbs a program without an event loop needs."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.contract.wakeups import queue_topic
from tidemill.core.changes import Amended, Change
from tidemill.core.filters import Filter
from tidemill.core.job import Group, Job
from tidemill.core.queues import Inserted
from tidemill.stores.sqlite import reader
from tidemill.stores.sqlite.amend import amend
from tidemill.stores.sqlite.insert import insert
from tidemill.stores.sqlite.reading import ReadConnection
from tidemill.stores.sqlite.wakeups import Wakeups
from tidemill.stores.sqlite.writer import Writer


class BlockingStore:
    """The caller's thread does the work itself."""

    def __init__(self, writer: Writer, reads: ReadConnection, wakeups: Wakeups) -> None:
        self._writer, self._reads, self._wakeups = writer, reads, wakeups

    def insert(self, groups: Sequence[Group]) -> list[list[Inserted]]:
        appended = self._writer.append(groups)
        if appended is None:
            return self._writer.run(lambda transaction: insert(transaction, groups), durable=True)
        self._wakeups.ring((queue_topic(groups[0].queue),))
        return appended

    def amend(self, wanted: Filter, change: Change, limit: int = 1000) -> Amended:
        return self._writer.run(lambda transaction: amend(transaction, wanted, change, limit), durable=True)

    def get(self, ids: Sequence[str]) -> list[Job | None]:
        return self._reads.run_here(lambda transaction: reader.get(transaction, ids))
