"""The PostgreSQL store in virtual time: its statements on a real server, on an event loop of their own.

A verb runs there to its end while the virtual loop stands still, so no virtual time passes. Wake-ups go
through a hub in memory: virtual processes share one real one.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Coroutine, Iterable
from threading import Thread
from typing import Any, Self, TypeVar

from tidemill.contract.wakeups import Listener, job_topic
from tidemill.stores.memory.wakeups import Hub, MemoryListener
from tidemill.stores.postgres import PostgresStore

T = TypeVar("T")


class Elsewhere:
    """An event loop in a thread, and what was opened on it."""

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


class _Bells:
    """Rung by the virtual loop's own thread, when the verb has ended."""

    is_parking = is_deaf = False

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self._topics: list[str] = []

    def announce(self, topics: Iterable[str], ended: Collection[str] = ()) -> None:
        self._topics += [*topics, *map(job_topic, ended)]

    def ring(self) -> None:
        topics, self._topics = self._topics, []
        self.hub.ring(topics)

    async def close(self) -> None:
        """Nothing is open."""


class VirtualPostgresStore(PostgresStore):
    def __init__(self, elsewhere: Elsewhere, hub: Hub, url: str, **given: Any) -> None:
        self._elsewhere, self._bells = elsewhere, _Bells(hub)
        self._url, self._all_given = url, given
        super().__init__(url, **given)
        self._connection.wakeups = self._bells  # type: ignore[assignment]
        elsewhere.opened.append(self._connection)

    def another(self) -> Self:
        return type(self)(self._elsewhere, self._bells.hub, self._url, **self._all_given)

    def listen(self, topics: Iterable[str]) -> Listener:  # type: ignore[override]
        return MemoryListener(self._bells.hub, topics)

    def ring(self, topics: Iterable[str]) -> None:
        self._bells.hub.ring(topics)


def _to_its_end(verb: Callable[..., Any]) -> Callable[..., Any]:
    async def run(self: VirtualPostgresStore, *args: Any, **options: Any) -> Any:
        try:
            return self._elsewhere.run(verb(self, *args, **options))
        finally:
            self._bells.ring()

    return run


for _name, _verb in vars(PostgresStore).items():
    if inspect.iscoroutinefunction(_verb) and not _name.startswith("_"):
        setattr(VirtualPostgresStore, _name, _to_its_end(_verb))
