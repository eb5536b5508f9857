"""The truth, as one object that keeps every contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

from tidemill.contract.checkpoints import Checkpoints
from tidemill.contract.coordinator import Coordinator
from tidemill.contract.copying import Copying
from tidemill.contract.courses import Courses
from tidemill.contract.jobs import Jobs
from tidemill.contract.pools import Pools
from tidemill.contract.queues import Queues
from tidemill.contract.reader import Reader
from tidemill.contract.upkeep import Upkeep
from tidemill.contract.wakeups import Wakeups
from tidemill.core.changes import Amended, Change
from tidemill.core.filters import Filter
from tidemill.core.job import Group, Job
from tidemill.core.queues import Inserted


class Blocking(Protocol):
    """The few verbs a program without an event loop needs, callable from any thread."""

    def insert(self, groups: Sequence[Group]) -> list[list[Inserted]]: ...
    def amend(self, wanted: Filter, change: Change, limit: int = 1000) -> Amended: ...
    def get(self, ids: Sequence[str]) -> list[Job | None]: ...


class Store(
    Jobs, Queues, Pools, Checkpoints, Courses, Reader, Coordinator, Wakeups, Upkeep, Copying, Protocol
):
    """S1 `open` checks that the store can be used and says what to do when it cannot.
    S2 `close` lets accepted work finish and is harmless when repeated.
    S3 `another` is a handle on the same truth for another thread with its own event loop.
    """

    @property
    def blocking(self) -> Blocking | None:
        """None when only an event loop can serve; the client then runs one of its own."""
        ...

    async def open(self) -> Self: ...
    async def close(self) -> None: ...
    def another(self) -> Store: ...
