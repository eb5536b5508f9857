"""Wake-ups across processes, by NOTIFY to those who are parked.

A listener that waits has rows in `parked`, one per topic, and its process a connection that LISTENs. Whoever
has committed something rings: that takes the rows of those to be woken and notifies their connections. With
nobody parked nothing is notified, because every commit that notifies waits for every other that does.

Ringing comes after the commit, not with it: a listener that parked while a commit was under way would be in
nobody's view, and would not see the job either. It is done beside the caller, and by many callers together,
so that it adds nothing to the time of a verb.

Behind a pooler nothing can listen. There only this process's own listeners are rung, and workers look every
few seconds: `is_deaf` says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from typing import Any, Protocol
from weakref import WeakSet

import asyncpg

from tidemill.contract.wakeups import ARRIVALS, job_topic, queue_topic
from tidemill.errors import StoreError
from tidemill.stores.postgres.address import Address
from tidemill.stores.postgres.ear import Ear
from tidemill.stores.postgres.links import Links
from tidemill.stores.postgres.listener import PostgresListener
from tidemill.stores.postgres.statements import load

SQL = load("wakeups")

TOGETHER, IN_VAIN = 0.005, 0.04
"""Seconds between two rings of a handle: at full speed there are 200 a second, not one per commit. They are
fewer while nobody is there to be woken: a worker that parks meanwhile has looked for itself."""
PATIENT = 3
"""After how many rings in vain."""
_PATIENCE = 1.0
_QUEUES, _JOBS = queue_topic(""), job_topic("")

_of_process: dict[tuple[str, str], WeakSet[Wakeups]] = {}
_lock = threading.Lock()


class Fetch(Protocol):
    def __call__(self, sql: str, *values: Any) -> Coroutine[Any, Any, list[asyncpg.Record]]: ...


class Wakeups:
    def __init__(self, address: Address, links: Links, here: Callable[[str], str], fetch: Fetch) -> None:
        self._links, self._here, self._fetch = links, here, fetch
        self._arming = self._latest = 0
        self._armed: dict[int, PostgresListener] = {}
        self._ear: Ear | None = None
        self._topics: set[str] = set()
        self._ended: list[str] = []
        self._ringing: asyncio.Task[None] | None = None
        self._in_vain = 0
        with _lock:
            self._kin = _of_process.setdefault((address.dsn, address.schema), WeakSet())
            self._kin.add(self)

    @property
    def is_deaf(self) -> bool:
        return self._links.pooled

    @property
    def is_parking(self) -> bool:
        return self._ear is not None and self._ear.is_writing

    async def parked(self) -> None:
        """Whoever looks after arming sees what came before: the server has to know of it first."""
        if self._ear is not None:
            await self._ear.written(_PATIENCE)

    async def close(self) -> None:
        """Rings that were promised are rung."""
        if (ringing := self._ringing) is not None:
            await asyncio.wait([ringing], timeout=_PATIENCE)
            ringing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ringing
        if self._ear is not None:
            await self._ear.close()
            self._ear = None

    # -- listening

    def listen(self, topics: Iterable[str]) -> PostgresListener:
        return PostgresListener(self, tuple(topics))

    def arm(self, listener: PostgresListener) -> int:
        self._forget(listener)
        self._arming = arming = self._arming + 1
        self._armed[arming] = listener
        if not self.is_deaf:
            if self._ear is None:
                self._ear = Ear(self._links, self._here, self._heard, self._wake_everybody)
            self._ear.park(arming, listener.topics)
        return arming

    def disarm(self, listener: PostgresListener) -> None:
        self._forget(listener)

    def _forget(self, listener: PostgresListener) -> None:
        if self._armed.pop(listener.arming, None) is not None and self._ear is not None:
            self._ear.leave(listener.arming)

    def _heard(self, arming: int, topic: str) -> None:
        listener = self._armed.get(arming)
        if listener is not None and not listener.rung:
            listener.wake()
            if len(listener.topics) == 1 and topic != ARRIVALS:
                del self._armed[arming]  # the ring took its row
        elif topic.startswith(_QUEUES) or topic == ARRIVALS:
            self.announce([topic])  # it is not idle any more; the next one may be

    def _wake_everybody(self) -> None:
        for listener in self._armed.values():
            listener.wake()

    # -- ringing

    def announce(self, topics: Iterable[str], ended: Collection[str] = ()) -> None:
        """Ring what a committed step asks for."""
        wanted = {topic for topic in topics if not self._ring_here(topic)}
        for topic in self._waited_for_here() if ended else ():
            if topic.removeprefix(_JOBS) in ended:
                self._ring_here(topic)
        if self.is_deaf or not (wanted or ended):
            return
        self._latest = self._arming
        self._topics |= wanted
        self._ended.extend(ended)
        if self._ringing is None:
            self._ringing = asyncio.get_running_loop().create_task(self._ring())

    def _ring_here(self, topic: str) -> bool:
        """Listeners of this process that the server does not know (yet). True when that is all."""
        for listener in self._unknown_to_server():
            if topic in listener.topics and not listener.rung:
                listener.wake()
                if topic.startswith(_QUEUES):
                    return True
        return False

    def _waited_for_here(self) -> set[str]:
        """Topics of jobs."""
        topics = itertools.chain.from_iterable(listener.topics for listener in self._unknown_to_server())
        return {topic for topic in topics if topic.startswith(_JOBS)}

    def _unknown_to_server(self) -> Iterator[PostgresListener]:
        with _lock:
            kin = list(self._kin)
        for wakeups in kin:
            yield from wakeups.unparked()

    def unparked(self) -> list[PostgresListener]:
        """Who waits without a row in `parked`."""
        ear, armed = self._ear, list(self._armed.items())
        if self.is_deaf or ear is None:
            return [listener for _, listener in armed]
        return [listener for arming, listener in armed if ear.is_unwritten(arming)]

    async def _ring(self) -> None:
        try:
            while self._topics or self._ended:
                topics, self._topics = self._topics, set()
                ended, self._ended = self._ended, []
                with contextlib.suppress(StoreError):
                    await self._ring_now(list(topics), ended)
                await asyncio.sleep(min(TOGETHER * 2 ** max(0, self._in_vain - PATIENT), IN_VAIN))
        finally:
            self._ringing = None

    async def _ring_now(self, topics: list[str], ended: list[str]) -> None:
        """An answer may be so late that a listener of ours has been woken and waits anew: not for this."""
        latest = self._latest
        await self.parked()
        known = (self._ear.pid if self._ear else 0, latest)
        answer = (await self._fetch(SQL.ring, topics, *known))[0]
        woken = answer["woken"]
        if ended and answer["for_ends"]:
            woken += (await self._fetch(SQL.ring, [job_topic(job) for job in ended], *known))[0]["woken"]
        self._in_vain = 0 if woken else min(self._in_vain + 1, 2 * PATIENT)
