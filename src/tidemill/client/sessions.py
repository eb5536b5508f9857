"""One session with the store per event loop.

Futures and wake-ups belong to a loop, so two loops never share a handle on the store. The
first loop gets the store itself; every other gets `another` handle on the same truth.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tidemill.client.beginnings import Beginnings
from tidemill.client.enqueuer import Enqueuer
from tidemill.core.queues import QueueSettings, redeclared

if TYPE_CHECKING:
    from tidemill.contract.store import Store
    from tidemill.core.pools import PoolSettings

LISTENERS = 32
"""A listener may be an open socket, and a program may wait for thousands of jobs at once."""


class Session:
    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self.store = store
        self.enqueuer = Enqueuer(store, loop)
        self.beginnings = Beginnings(store, loop)
        self.listeners = asyncio.Semaphore(LISTENERS)

    async def close(self) -> None:
        await self.enqueuer.drain()
        await self.beginnings.drain()
        await self.store.close()


class Sessions:
    """Opens sessions as they are needed; `root` makes the store when it is first asked for one."""

    def __init__(
        self,
        root: Callable[[], Store],
        queues: Mapping[str, QueueSettings],
        pools: Mapping[str, PoolSettings],
    ) -> None:
        self._root = root
        self._queues, self._pools = queues, pools
        self._open: dict[asyncio.AbstractEventLoop, Session] = {}
        self._behind: dict[asyncio.AbstractEventLoop, Session] = {}  # must declare before the next use
        self._opening: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}
        self._lock = threading.Lock()
        self._root_loop: weakref.ref[asyncio.AbstractEventLoop] | None = None

    def anew(self) -> Sessions:
        """None of them open: for an application that works on another store meanwhile."""
        return Sessions(self._root, self._queues, self._pools)

    def here(self) -> Session | None:
        """The running loop's session, if it can be used at once."""
        return self._open.get(asyncio.get_running_loop())

    def store_here(self) -> Store | None:
        """The running loop's store, whether or not every queue and pool is declared in it."""
        session = self.here() or self._behind.get(asyncio.get_running_loop())
        return None if session is None else session.store

    async def look(self) -> Session:
        """For whoever only reads: looking must never change a setting. The next use declares what is new."""
        loop = asyncio.get_running_loop()
        async with self._opening.setdefault(loop, asyncio.Lock()):
            return self._open.get(loop) or self._behind.get(loop) or await self._begin(loop)

    async def open(self, *, declare: bool = True) -> Session:
        """Without `declare` nothing is declared later either: for a command that only looks."""
        loop = asyncio.get_running_loop()
        async with self._opening.setdefault(loop, asyncio.Lock()):
            if session := self._open.get(loop):
                return session
            session = self._behind.get(loop) or await self._begin(loop)
            if declare:
                await self._declare(session.store)
            self._open[loop] = self._behind.pop(loop)
            return session

    def settings_changed(self) -> None:
        """Every open session declares again before its next use."""
        for loop, session in list(self._open.items()):
            self._behind[loop] = session  # first: another thread's loop must find it in one of the two
            self._open.pop(loop, None)

    async def _begin(self, loop: asyncio.AbstractEventLoop) -> Session:
        await self._close_left_behind()
        store = self._store_for(loop)
        await store.open()
        session = self._behind[loop] = Session(store, loop)
        return session

    async def _declare(self, store: Store) -> None:
        """Only what is new: a program that starts often does not write each time."""
        seen = 0
        while seen != (seen := len(self._queues) + len(self._pools)):  # a module imported meanwhile adds some
            await self._declare_queues(store)
            if self._pools:
                await self._declare_pools(store)

    async def _declare_queues(self, store: Store) -> None:
        known = {info.name: info.declared for info in await store.queues()}
        news = {
            name: its
            for name, its in self._queues.items()
            if (kept := known.get(name)) is None or redeclared(kept, its) != kept
        }
        if news:
            await store.declare(news)

    async def _declare_pools(self, store: Store) -> None:
        known = {view.name: view.declared for view in await store.pools()}
        news = {name: its for name, its in self._pools.items() if known.get(name) != its}
        if news:
            await store.declare_pools(news)

    async def close(self) -> None:
        """Close the running loop's session. Whoever wants one meanwhile waits and opens it anew:
        the store would otherwise be opened for them and closed under their feet."""
        loop = asyncio.get_running_loop()
        async with self._opening.setdefault(loop, asyncio.Lock()):
            session = self._taken(loop)
            if session is not None:
                await session.close()

    async def _close_left_behind(self) -> None:
        """A program that runs a loop per request and closes nothing must not collect connections."""
        for loop in [loop for loop in list(self._opening) if loop.is_closed()]:
            self._opening.pop(loop, None)
            session = self._taken(loop)
            if session is not None:
                await session.store.close()

    def _taken(self, loop: asyncio.AbstractEventLoop) -> Session | None:
        return self._open.pop(loop, None) or self._behind.pop(loop, None)

    def forget(self) -> None:
        """After a fork the loops of the parent are not ours."""
        self._open.clear()
        self._behind.clear()
        self._opening.clear()
        self._lock = threading.Lock()

    def _store_for(self, loop: asyncio.AbstractEventLoop) -> Store:
        with self._lock:
            root = self._root()
            if self._root_loop is None:
                self._root_loop = weakref.ref(loop)
            return root if self._root_loop() is loop else root.another()
