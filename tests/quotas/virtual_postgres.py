"""The PostgreSQL store in virtual time: its statements run on a real server, in a separate event loop.

A verb runs there to its end while the virtual loop stands still, so no virtual time passes. Wake-ups go
through a hub in memory, because virtual processes share one real process."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Coroutine, Iterable
from threading import Thread
from typing import Any, Self, TypeVar

from tidemill.contract.coordination import WakeupListener, job_topic
from tidemill.stores.memory.wakeups import MemoryListener, MemoryListenerHub
from tidemill.stores.postgres import PostgresStore

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread, and the resources opened on it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.opened: list[Any] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        for connection in self.opened:
            self.run(connection.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _ThreadWakeups:
    """Wake-ups, sent from the virtual loop's thread after the verb has ended."""

    is_registering = False

    def __init__(self, hub: MemoryListenerHub) -> None:
        self.hub = hub
        self._topics: list[str] = []

    def announce(self, topics: Iterable[str], ended: Collection[str] = ()) -> None:
        self._topics += [*topics, *map(job_topic, ended)]

    def wake(self) -> None:
        topics, self._topics = self._topics, []
        self.hub.wake(topics)

    async def close(self) -> None:
        """Does nothing: nothing is open."""


class VirtualPostgresStore(PostgresStore):
    def __init__(self, elsewhere: LoopThread, hub: MemoryListenerHub, url: str, **given: Any) -> None:
        self._elsewhere, self._bells = elsewhere, _ThreadWakeups(hub)
        self._url, self._all_given = url, given
        super().__init__(url, **given)
        self._connection.wakeups = self._bells  # type: ignore[assignment]
        elsewhere.opened.append(self._connection)

    def new_handle(self) -> Self:
        return type(self)(self._elsewhere, self._bells.hub, self._url, **self._all_given)

    def listen(self, topics: Iterable[str]) -> WakeupListener:  # type: ignore[override]
        return MemoryListener(self._bells.hub, topics)

    def wake(self, topics: Iterable[str]) -> None:
        self._bells.hub.wake(topics)


def _run_to_end(verb: Callable[..., Any]) -> Callable[..., Any]:
    async def run(self: VirtualPostgresStore, *args: Any, **options: Any) -> Any:
        try:
            return self._elsewhere.run(verb(self, *args, **options))
        finally:
            self._bells.wake()

    return run


for _name, _verb in vars(PostgresStore).items():
    if inspect.iscoroutinefunction(_verb) and not _name.startswith("_"):
        setattr(VirtualPostgresStore, _name, _run_to_end(_verb))
