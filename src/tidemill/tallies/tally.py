"""What a process counted, as the store keeps it."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from tidemill.core.courses import Course
from tidemill.errors import StoreError
from tidemill.tallies.families import Counts, added, since
from tidemill.tallies.instruments import Instruments
from tidemill.tallies.records import OPEN, SEALED, TALLY, counted_in, write

if TYPE_CHECKING:
    from tidemill.contract.store import Store

TELL_EVERY = 15.0
"""As often as metrics are asked for, as a rule; and so many seconds of counting are lost with a process that
is killed."""

LAST_WITHIN = 2.0
"""A process that ends waits no longer for a store that hangs."""

TRIES = 5
"""A reply that was lost and a record that was folded take one more each."""


class Tally:
    """`told` is what the store is known to have of this process, in this record and those that were folded;
    `_base` the part of it that is in other records. A process that does not count writes nothing."""

    def __init__(self, instruments: Instruments, new_id: Callable[[], str]) -> None:
        self.instruments, self._new_id = instruments, new_id
        self._id: str | None = None
        self._revision = 0
        self._base: Counts = {}
        self._told: Counts = {}
        self._sent: Counts | None = None
        self._busy = False
        _TALLIES.add(self)

    async def tell(self, store: Store) -> bool:
        """Answers that there is no more to do, as a chore does."""
        now = self.instruments.counted()
        if self._busy or (now == self._told and self._sent is None):
            return False
        self._busy, self._sent = True, now
        try:
            for _ in range(TRIES):
                if await self._write(store, now):
                    self._told, self._sent = now, None
                    break
        finally:
            self._busy = False
        return False

    async def keep_telling(self, store: Store) -> None:
        """Also for a process that is no worker; ends by being cancelled, and tells the rest."""
        try:
            while True:
                await asyncio.sleep(TELL_EVERY)
                with suppress(StoreError):  # told with the next
                    await self.tell(store)
        finally:
            with suppress(StoreError, TimeoutError):
                async with asyncio.timeout(LAST_WITHIN):
                    await self.tell(store)

    async def _write(self, store: Store, now: Counts) -> bool:
        if self._id is None:
            self._id = f"{TALLY}-{self._new_id()}"
        record = msgspec.json.encode(tuple(since(now, self._base).values()))
        advanced = await write(store, self._id, self._revision, name=TALLY, state=OPEN, record=record)
        if advanced.done:
            self._revision += 1
        else:
            self._catch_up(advanced.course)
        return advanced.done

    def _catch_up(self, course: Course | None) -> None:
        """A reply was lost, and the store is further than was known; or somebody took this process for gone
        and folded its record. Then the next begins from what is in that."""
        if course is not None and course.state != SEALED:
            self._revision = course.revision
            return
        self._base = self._told if course is None else added(self._base.values(), counted_in(course))
        self._id, self._revision = None, 0

    def after_fork(self) -> None:
        """What was counted until here is the parent's to tell."""
        for instrument in self.instruments:
            instrument.lock = threading.Lock()  # a thread that is not here may have held it
            instrument.series.clear()
        self._id, self._revision, self._base, self._told, self._sent = None, 0, {}, {}, None
        self._busy = False


_TALLIES: weakref.WeakSet[Tally] = weakref.WeakSet()


def _after_fork() -> None:
    for tally in list(_TALLIES):
        tally.after_fork()


os.register_at_fork(after_in_child=_after_fork)
