"""One session with the store per event loop.

Two loops never share a store object. The first loop uses the application's store; each later loop uses
`store.new_handle()`, with the same data."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tidemill.client.enqueuer import FlowEnqueuer, JobEnqueuer
from tidemill.core.queues import QueueSettings, redeclare_queue

if TYPE_CHECKING:
    from tidemill.contract.store import Store
    from tidemill.core.pools import PoolSettings


MAX_LISTENERS = 32
"""A listener may be an open socket, and a program may wait for thousands of jobs at once."""


class StoreSession:
    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self.store = store
        self.enqueuer = JobEnqueuer(store, loop)
        self.flow_enqueuer = FlowEnqueuer(store, loop)
        self.listeners = asyncio.Semaphore(MAX_LISTENERS)

    async def close(self) -> None:
        await self.enqueuer.drain()
        await self.flow_enqueuer.drain()
        await self.store.close()


class StoreSessions:
    """Opens one session per event loop, at the first use. `root` returns the application's store and creates
    it if necessary."""

    def __init__(
        self,
        root: Callable[[], Store],
        queues: Mapping[str, QueueSettings],
        pools: Mapping[str, PoolSettings],
    ) -> None:
        self._root = root
        self._queues, self._pools = queues, pools
        self._open: dict[asyncio.AbstractEventLoop, StoreSession] = {}
        self._undeclared: dict[
            asyncio.AbstractEventLoop, StoreSession
        ] = {}  # must declare before the next use
        self._opening: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}
        self._lock = threading.Lock()
        self._root_loop: weakref.ref[asyncio.AbstractEventLoop] | None = None

    def reopened(self) -> StoreSessions:
        """Returns a new StoreSessions for the same queues and pools, without open sessions. Tests use it
        while the application works on another store."""
        return StoreSessions(self._root, self._queues, self._pools)

    def current(self) -> StoreSession | None:
        """Returns the session of the running loop. None if it is not open, or if queues and pools must be
        declared first."""
        return self._open.get(asyncio.get_running_loop())

    def current_store(self) -> Store | None:
        """Returns the open store of the running loop, even if queues and pools are not declared in it yet.
        None if it is not open."""
        session = self.current() or self._undeclared.get(asyncio.get_running_loop())
        return None if session is None else session.store

    async def open_for_reading(self) -> StoreSession:
        """Returns a session of the running loop for reading, without writing declared queues and pools. The
        next `open` writes them."""
        loop = asyncio.get_running_loop()
        async with self._opening.setdefault(loop, asyncio.Lock()):
            return self._open.get(loop) or self._undeclared.get(loop) or await self._open_session(loop)

    async def open(self, *, declare: bool = True) -> StoreSession:
        """Returns the session of the running loop and opens it if necessary. `declare=False`: queues and
        pools are not written to the store, for commands that only read."""
        loop = asyncio.get_running_loop()
        async with self._opening.setdefault(loop, asyncio.Lock()):
            if session := self._open.get(loop):
                return session
            session = self._undeclared.get(loop) or await self._open_session(loop)
            if declare:
                await self._declare(session.store)
            self._open[loop] = self._undeclared.pop(loop)
            return session

    def settings_changed(self) -> None:
        """Makes every open session declare queues and pools again before its next use."""
        for loop, session in list(self._open.items()):
            self._undeclared[loop] = (
                session  # before the pop: another thread's loop must find it in one of the two
            )
            self._open.pop(loop, None)

    async def _open_session(self, loop: asyncio.AbstractEventLoop) -> StoreSession:
        await self._close_left_behind()
        store = self._store_for(loop)
        await store.open()
        session = self._undeclared[loop] = StoreSession(store, loop)
        return session

    async def _declare(self, store: Store) -> None:
        """Writes queues and pools to the store, but only new or changed ones. A program that starts often
        then causes no writes."""
        seen = 0
        while seen != (seen := len(self._queues) + len(self._pools)):  # an import may add some meanwhile
            await self._declare_queues(store)
            if self._pools:
                await self._declare_pools(store)

    async def _declare_queues(self, store: Store) -> None:
        known = {info.name: info.declared for info in await store.queues()}
        changed = {
            name: its
            for name, its in self._queues.items()
            if (stored := known.get(name)) is None or redeclare_queue(stored, its) != stored
        }
        if changed:
            await store.declare(changed)

    async def _declare_pools(self, store: Store) -> None:
        known = {view.name: view.declared for view in await store.pools()}
        changed = {name: its for name, its in self._pools.items() if known.get(name) != its}
        if changed:
            await store.declare_pools(changed)

    async def close(self) -> None:
        """Closes the session of the running loop. Callers that come meanwhile wait, and then open a new
        session."""
        loop = asyncio.get_running_loop()
        async with self._opening.setdefault(loop, asyncio.Lock()):
            session = self._pop_session(loop)
            if session is not None:
                await session.close()

    async def _close_left_behind(self) -> None:
        """Closes sessions of ended loops, so that a program with one loop per request does not leak
        connections."""
        for loop in [loop for loop in list(self._opening) if loop.is_closed()]:
            self._opening.pop(loop, None)
            session = self._pop_session(loop)
            if session is not None:
                await session.store.close()

    def _pop_session(self, loop: asyncio.AbstractEventLoop) -> StoreSession | None:
        return self._open.pop(loop, None) or self._undeclared.pop(loop, None)

    def forget(self) -> None:
        """Drops all sessions after a fork, because their event loops belong to the parent process."""
        self._open.clear()
        self._undeclared.clear()
        self._opening.clear()
        self._lock = threading.Lock()

    def _store_for(self, loop: asyncio.AbstractEventLoop) -> Store:
        with self._lock:
            root = self._root()
            if self._root_loop is None:
                self._root_loop = weakref.ref(loop)
            return root if self._root_loop() is loop else root.new_handle()
