"""The SQLite store in virtual time: its steps on a real file, without the threads that carry them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TypeVar

from tidemill.contract.wakeups import Listener, job_topic
from tidemill.stores.memory.wakeups import Hub, MemoryListener
from tidemill.stores.sqlite.requests import Work
from tidemill.stores.sqlite.store import SqliteStore
from tidemill.stores.sqlite.wakeups import Wakeups
from tidemill.stores.sqlite.writer import Writer

T = TypeVar("T")


class VirtualSqliteStore(SqliteStore):
    """Wake-ups go through a hub in memory: virtual processes share one real one."""

    def another(self) -> VirtualSqliteStore:
        other = VirtualSqliteStore(self.path, clock=self._clock, entropy=self._entropy)
        other._share(self._wakeups)
        return other

    def _share(self, wakeups: Wakeups) -> None:
        super()._share(wakeups if isinstance(wakeups, _Hub) else _Hub())
        self._writer = _AtOnce(self._file, self._clock, self._wakeups)


class _AtOnce(Writer):
    def submit(self, work: Work[T], *, durable: bool, files_inbox: bool = True) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(self.run(work, durable=False))
        except Exception as error:
            future.set_exception(error)
        return future


class _Hub(Wakeups):
    def __init__(self) -> None:
        self._hub = Hub()

    def listen(self, topics: Iterable[str]) -> Listener:  # type: ignore[override]
        return MemoryListener(self._hub, topics)

    def announce(self, topics: Iterable[str], ended: Sequence[str]) -> None:
        self._hub.ring([*topics, *map(job_topic, ended)])

    def ring(self, topics: Iterable[str]) -> None:
        self._hub.ring(topics)
