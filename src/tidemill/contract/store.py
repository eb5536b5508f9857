"""The whole contract of a store as one protocol, and the methods that check, back up and compact a store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, Self, runtime_checkable

import msgspec

from tidemill.contract.coordination import LeadershipStore, WakeupStore
from tidemill.contract.copy import CopyStore
from tidemill.contract.documents import DocumentStore
from tidemill.contract.jobs import CheckpointStore, JobStore
from tidemill.contract.pools import PoolStore
from tidemill.contract.queues import QueueStore
from tidemill.contract.reader import StoreReader
from tidemill.core.filters import Filter
from tidemill.core.jobs import Job, JobGroup
from tidemill.core.operator_changes import AmendResult, OperatorChange
from tidemill.core.queues import InsertResult

ProgressCallback = Callable[[float], None]
"""Called from time to time with the finished share, 0 to 1, from any thread."""


class StoreFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a store, for display.

    - `location`: the address without secrets.
    - `bytes`: the size of the store; None if unknown.
    - `free_bytes`: the part that `compact` can return; None if unknown.
    - `warnings`: what is wrong with the setup, one sentence each."""

    kind: str
    engine: str
    location: str
    schema: int | None = None
    bytes: int | None = None
    free_bytes: int | None = None
    warnings: tuple[str, ...] = ()


class MaintenanceStore(Protocol):
    """The methods that describe, check, back up and compact a store."""

    async def describe(self) -> StoreFacts:
        """Returns facts about the store and its condition.

        U1  Nothing is changed."""
        ...

    async def check(self) -> tuple[str, ...]:
        """Returns one sentence for each damage that was found; empty if the store is intact.

        U2  The check reads everything and changes nothing. Jobs continue meanwhile."""
        ...

    async def backup(self, target: Path, progress: ProgressCallback | None = None) -> None:
        """Writes a copy of the store to the file `target`. `progress` is called with the finished share, 0 to
        1.

        U3  The copy shows the store as of one instant and can be opened as a store. A target that exists is
            refused. A failed backup leaves no files behind. A store whose database has its own backup tools
            raises ConfigurationError, which names these tools."""
        ...

    async def compact(self) -> None:
        """Returns free space to the operating system.

        U4  Nothing can be written meanwhile, so callers may have to wait."""
        ...


@runtime_checkable
class PeriodicMaintenance(Protocol):
    """A store that needs its own periodic maintenance, such as a vacuum of its tables."""

    async def run_maintenance(self) -> bool:
        """Does a part of the store's maintenance. Returns True if more has to be done at once.

        U8  The worker that leads this duty calls the method every few seconds. Two workers may do so at
            once."""
        ...


@runtime_checkable
class CreatableStore(Protocol):
    """A store that `open` creates if it does not exist. Creating it needs time and database permissions."""

    async def is_created(self) -> bool:
        """True if the store exists.

        U9  Nothing is created. The method may be called before `open`."""
        ...


class BlockingVerbs(Protocol):
    """The store methods for programs without an event loop. They block, and any thread may call them."""

    def insert(self, groups: Sequence[JobGroup]) -> list[list[InsertResult]]: ...
    def amend(self, job_filter: Filter, change: OperatorChange, limit: int = 1000) -> AmendResult: ...
    def get(self, ids: Sequence[str]) -> list[Job | None]: ...


class Store(
    JobStore,
    QueueStore,
    PoolStore,
    CheckpointStore,
    DocumentStore,
    StoreReader,
    LeadershipStore,
    WakeupStore,
    MaintenanceStore,
    CopyStore,
    Protocol,
):
    """A store: one object that implements all protocols of the contract.

    S1  `open` checks that the store can be used. If it cannot, the error says what to do.
    S2  `close` lets accepted work finish. Calling `close` again does no harm.
    S3  `new_handle` returns a second handle on the same data, for another thread with its own event loop."""

    @property
    def blocking(self) -> BlockingVerbs | None:
        """The methods for programs without an event loop; None if the store needs an event loop."""
        ...

    async def open(self) -> Self: ...
    async def close(self) -> None: ...
    def new_handle(self) -> Store: ...
