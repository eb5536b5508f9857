"""Transactions that a store shares with its callers: only one in a database they use too can."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, runtime_checkable

import msgspec

from tidemill.core.claims import Settlement


class Ending(msgspec.Struct):
    """A transaction in which a job is to end. `connection` is the database library's own."""

    connection: Any
    settlement: Settlement | None = None


@runtime_checkable
class Transactional(Protocol):
    """X1 A request written inside a caller's transaction becomes an arrival when that commits, and was
       never there when it is rolled back. It shares no lock with other jobs.
    X2 An arrival rings `wakeups.ARRIVALS`, as a hint like any other.
    X3 A connection the store cannot write through is refused (ConfigurationError), with what to give instead.
    """

    async def send_inside(
        self, connection: object, job: str, task: str, payload: bytes, options: bytes
    ) -> None:
        """Through an async connection or session."""
        ...

    def send_inside_sync(
        self, connection: object, job: str, task: str, payload: bytes, options: bytes
    ) -> None:
        """Through a sync one, in the caller's thread."""
        ...

    def transaction(self, job: str, fence: int, claim: int) -> AbstractAsyncContextManager[Ending]:
        """X4 A transaction of the store's own for whoever runs the job. A claim that is not current gets none
        (ClaimLost), and keeps nobody waiting. When the block ends well, the settlement it was given is
        recorded, and commits with whatever else was written on the connection; when the claim was lost
        meanwhile, nothing is written (ClaimLost). A settlement of the same claim later is answered AGAIN, as
        after a lost reply (J40)."""
        ...
