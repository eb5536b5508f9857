"""Wake-ups between processes, sent with NOTIFY. A topic names what a listener waits for, such as new jobs of
a queue."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from typing import Any, Protocol
from weakref import WeakSet

import asyncpg

from tidemill.contract.coordination import ARRIVALS_TOPIC, job_topic, queue_topic
from tidemill.errors import StoreError
from tidemill.stores.postgres.address import PostgresAddress
from tidemill.stores.postgres.connection_pool import ConnectionPool
from tidemill.stores.postgres.listen_connection import ListenConnection
from tidemill.stores.postgres.statements import load_statements


class ListenerRegistry(Protocol):
    """Keeps the armed listeners: the listeners that wait for a wake-up now. `arm` returns the id of this
    wait."""

    def arm(self, listener: PostgresListener) -> int: ...
    def disarm(self, listener: PostgresListener) -> None: ...


class PostgresListener:
    """Waits for wake-ups of some topics. `wait_id`: the number of the current wait; 0 if the listener does
    not wait. A wake-up for an earlier wait is ignored."""

    def __init__(self, wakeups: ListenerRegistry, topics: tuple[str, ...]) -> None:
        self.topics = topics
        self.wait_id = 0
        self.is_woken = False
        self._wakeups = wakeups
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def arm(self) -> None:
        if self.wait_id and not self.is_woken:
            return  # it is waiting already, and the server knows
        self.is_woken = False
        self._event.clear()
        self.wait_id = self._wakeups.arm(self)

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109 - the contract's word
        # Not wait_for: on Python 3.11 it swallows a cancellation that arrives together with a wake-up.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._event.wait()
        return self.is_woken

    def disarm(self) -> None:
        if self.wait_id:
            self._wakeups.disarm(self)
            self.wait_id = 0

    def close(self) -> None:
        self.disarm()

    def wake(self) -> None:
        """Wakes the listener, from any thread."""
        self.is_woken = True
        with contextlib.suppress(RuntimeError):  # its loop is closed: no coroutine waits any more
            self._loop.call_soon_threadsafe(self._set_event)

    def _set_event(self) -> None:
        if self.is_woken:  # not for an earlier wait
            self._event.set()


SQL = load_statements("wakeups")

NOTIFY_INTERVAL_SECONDS, IDLE_NOTIFY_INTERVAL_SECONDS = 0.005, 0.04
"""Seconds between two notifications of a handle: at most 200 a second, not one per commit. Fewer if no
listener is found: a worker that starts to listen meanwhile has claimed by itself."""
MAX_USELESS_NOTIFICATIONS = 3
"""The interval grows after this many notifications that woke no listener."""
_NOTIFY_TIMEOUT_SECONDS = 1.0
_QUEUE_PREFIX, _JOB_PREFIX = queue_topic(""), job_topic("")

_wakeups_of_process: dict[tuple[str, str], WeakSet[PostgresWakeups]] = {}
_lock = threading.Lock()


class FetchRows(Protocol):
    def __call__(self, sql: str, *values: Any) -> Coroutine[Any, Any, list[asyncpg.Record]]: ...


class PostgresWakeups:
    def __init__(
        self, address: PostgresAddress, pool: ConnectionPool, qualify: Callable[[str], str], fetch: FetchRows
    ) -> None:
        self._pool, self._qualify, self._fetch = pool, qualify, fetch
        self._last_wait_id = self._latest = 0
        self._armed: dict[int, PostgresListener] = {}
        self._listen_connection: ListenConnection | None = None
        self._topics: set[str] = set()
        self._ended: list[str] = []
        self._notify_task: asyncio.Task[None] | None = None
        self._useless_count = 0
        with _lock:
            database = (address.dsn, address.schema)
            self._handles_of_process = _wakeups_of_process.setdefault(database, WeakSet())
            self._handles_of_process.add(self)

    @property
    def is_pooled(self) -> bool:
        return self._pool.pooled

    @property
    def is_registering(self) -> bool:
        return self._listen_connection is not None and self._listen_connection.is_registering

    async def registered(self) -> None:
        """Waits until all armed listeners are registered on the server, at most 1 s. A worker that claims
        afterwards misses no wake-up."""
        if self._listen_connection is not None:
            await self._listen_connection.registered(_NOTIFY_TIMEOUT_SECONDS)

    async def close(self) -> None:
        """Sends the pending notifications, waiting at most 1 s, and closes the listening connection."""
        if (task := self._notify_task) is not None:
            await asyncio.wait([task], timeout=_NOTIFY_TIMEOUT_SECONDS)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._listen_connection is not None:
            await self._listen_connection.close()
            self._listen_connection = None

    # -- listening

    def listen(self, topics: Iterable[str]) -> PostgresListener:
        return PostgresListener(self, tuple(topics))

    def arm(self, listener: PostgresListener) -> int:
        self._forget(listener)
        self._last_wait_id = wait_id = self._last_wait_id + 1
        self._armed[wait_id] = listener
        if not self.is_pooled:
            if self._listen_connection is None:
                self._listen_connection = ListenConnection(
                    self._pool, self._qualify, self._notified, self._wake_all
                )
            self._listen_connection.register(wait_id, listener.topics)
        return wait_id

    def disarm(self, listener: PostgresListener) -> None:
        self._forget(listener)

    def _forget(self, listener: PostgresListener) -> None:
        if self._armed.pop(listener.wait_id, None) is not None and self._listen_connection is not None:
            self._listen_connection.unregister(listener.wait_id)

    def _notified(self, wait_id: int, topic: str) -> None:
        listener = self._armed.get(wait_id)
        if listener is not None and not listener.is_woken:
            listener.wake()
            if len(listener.topics) == 1 and topic != ARRIVALS_TOPIC:
                del self._armed[wait_id]  # the notification deleted its row
        elif topic.startswith(_QUEUE_PREFIX) or topic == ARRIVALS_TOPIC:
            self.announce([topic])  # it is busy now; the next one may be idle

    def _wake_all(self) -> None:
        for listener in self._armed.values():
            listener.wake()

    # -- waking

    def announce(self, topics: Iterable[str], ended: Collection[str] = ()) -> None:
        """Wakes the listeners of `topics`, and the listeners that wait for one of the jobs `ended`. Call this
        after the commit. The topic of a queue wakes only one listener."""
        remote_topics = {topic for topic in topics if not self._wake_here(topic)}
        for topic in self._awaited_jobs() if ended else ():
            if topic.removeprefix(_JOB_PREFIX) in ended:
                self._wake_here(topic)
        if self.is_pooled or not (remote_topics or ended):
            return
        self._latest = self._last_wait_id
        self._topics |= remote_topics
        self._ended.extend(ended)
        if self._notify_task is None:
            self._notify_task = asyncio.get_running_loop().create_task(self._notify_pending())

    def _wake_here(self, topic: str) -> bool:
        """Wakes the listeners of `topic` in this process that are not yet registered on the server. For the
        topic of a queue, wakes only one listener and then returns True."""
        for listener in self._unknown_to_server():
            if topic in listener.topics and not listener.is_woken:
                listener.wake()
                if topic.startswith(_QUEUE_PREFIX):
                    return True
        return False

    def _awaited_jobs(self) -> set[str]:
        """Returns the topics of single jobs for which unregistered listeners of this process wait."""
        topics = itertools.chain.from_iterable(listener.topics for listener in self._unknown_to_server())
        return {topic for topic in topics if topic.startswith(_JOB_PREFIX)}

    def _unknown_to_server(self) -> Iterator[PostgresListener]:
        with _lock:
            handles = list(self._handles_of_process)
        for wakeups in handles:
            yield from wakeups.unregistered()

    def unregistered(self) -> list[PostgresListener]:
        """Returns the armed listeners of this store object that have no row in the server's table
        `listeners`. Behind a connection pooler no listener has a row."""
        connection, armed = self._listen_connection, list(self._armed.items())
        if self.is_pooled or connection is None:
            return [listener for _, listener in armed]
        return [listener for wait_id, listener in armed if connection.is_unregistered(wait_id)]

    async def _notify_pending(self) -> None:
        try:
            while self._topics or self._ended:
                topics, self._topics = self._topics, set()
                ended, self._ended = self._ended, []
                with contextlib.suppress(StoreError):
                    await self._notify_now(list(topics), ended)
                delay = NOTIFY_INTERVAL_SECONDS * 2 ** max(0, self._useless_count - MAX_USELESS_NOTIFICATIONS)
                await asyncio.sleep(min(delay, IDLE_NOTIFY_INTERVAL_SECONDS))
        finally:
            self._notify_task = None

    async def _notify_now(self, topics: list[str], ended: list[str]) -> None:
        """Asks the server to notify the listeners of `topics` and of the jobs `ended`. Listeners of this
        object that armed after the commit are left out, because they see the change anyway."""
        latest = self._latest
        await self.registered()
        known = (self._listen_connection.pid if self._listen_connection else 0, latest)
        answer = (await self._fetch(SQL.wake_listeners, topics, *known))[0]
        woken = answer["woken"]
        if ended and answer["has_job_listeners"]:
            woken += (await self._fetch(SQL.wake_listeners, [job_topic(job) for job in ended], *known))[0][
                "woken"
            ]
        self._useless_count = 0 if woken else min(self._useless_count + 1, 2 * MAX_USELESS_NOTIFICATIONS)
