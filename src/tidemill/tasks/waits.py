"""How `result()` tells the running attempt that it waits for another job or flow.

The worker puts its `AttemptWaits` into the context that every attempt starts with, so a job that waits for
nothing pays nothing. Outside of an attempt there is none, and nothing is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

from tidemill.core.waits import WaitTarget

if TYPE_CHECKING:
    from tidemill.contract.store import Store


class OpenWait(Protocol):
    """One wait of one attempt."""

    async def check(self, store: Store) -> None:
        """Called before every pause of the wait. Raises WaitRefused when the wait can never end."""
        ...

    def end(self) -> None: ...


class AttemptWaits(Protocol):
    async def begin(self, target: WaitTarget) -> OpenWait | None:
        """The attempt of the running code waits from here on. None when that attempt has ended or was told
        to stop. Raises WaitRefused when it must not wait here."""
        ...


ATTEMPT_WAITS: ContextVar[AttemptWaits | None] = ContextVar("tidemill_waits", default=None)


@asynccontextmanager
async def waiting(target: WaitTarget, patience: float | None) -> AsyncIterator[OpenWait | None]:
    """Around the wait for a result. With a patience of 0 nothing is waited for, so nothing is told."""
    waits = ATTEMPT_WAITS.get()
    wait = None if waits is None or patience == 0 else await waits.begin(target)
    try:
        yield wait
    finally:
        if wait is not None:
            wait.end()
