"""For programs without an event loop: the caller's own thread talks to the server.

No loop in a second thread stands between them, which would cost more than the round trip. A thread
takes a connection that lies ready, or makes one; a few are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidemill.stores.redis.address import Address
from tidemill.stores.redis.clocks import GivenClock, ServerClock
from tidemill.stores.redis.lines import ThreadLine, finished
from tidemill.stores.redis.shard import Shard

KEPT = 8


class Threads:
    """Appending to and popping from a list is atomic: threads need no lock for it."""

    def __init__(self, address: Address, clock: GivenClock | ServerClock) -> None:
        self._address, self._clock = address, clock
        self._idle: list[Shard] = []
        self._closed = False

    def open(self) -> None:
        self._closed = False

    @contextmanager
    def shard(self) -> Iterator[Shard]:
        """A shard whose verbs run to their end at the first step (`finished`)."""
        try:
            shard = self._idle.pop()
        except IndexError:
            shard = Shard(self._address, ThreadLine(), self._clock)
        try:
            yield shard
        except BaseException:
            # A reply may still be on its way, and would be taken for the next call's.
            finished(shard.close())
            raise
        if len(self._idle) < KEPT and not self._closed:
            self._idle.append(shard)
        else:
            finished(shard.close())

    def close(self) -> None:
        """Calls under way end first; one that comes later closes what it opened."""
        self._closed = True
        while self._idle:
            finished(self._idle.pop().close())
