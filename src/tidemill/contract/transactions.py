"""A caller's own transaction: what only a store in a database can offer that its callers use too."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


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
