"""The SQLite store in virtual time: its steps run on a real file, without its threads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TypeVar

from tidemill.contract.coordination import WakeupListener, job_topic
from tidemill.stores.memory.wakeups import MemoryListener, MemoryListenerHub
from tidemill.stores.sqlite.store import SqliteStore
from tidemill.stores.sqlite.wakeups import SqliteWakeups
from tidemill.stores.sqlite.write_request import Work
from tidemill.stores.sqlite.writer import SqliteWriter

T = TypeVar("T")


class VirtualSqliteStore(SqliteStore):
    """Wake-ups go through a hub in memory, because virtual processes share one real process."""

    def new_handle(self) -> VirtualSqliteStore:
        other = VirtualSqliteStore(self.path, clock=self._clock, entropy=self._entropy)
        other._share(self._wakeups)
        return other

    def _share(self, wakeups: SqliteWakeups) -> None:
        super()._share(wakeups if isinstance(wakeups, _WakeupHub) else _WakeupHub())
        self._writer = _ImmediateWriter(self._file, self._clock, self._wakeups)


class _ImmediateWriter(SqliteWriter):
    def submit(self, work: Work[T], *, durable: bool, files_inbox: bool = True) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(self.run(work, durable=False))
        except Exception as error:
            future.set_exception(error)
        return future


class _WakeupHub(SqliteWakeups):
    def __init__(self) -> None:
        self._hub = MemoryListenerHub()

    def listen(self, topics: Iterable[str]) -> WakeupListener:  # type: ignore[override]
        return MemoryListener(self._hub, topics)

    def announce(self, topics: Iterable[str], ended: Sequence[str]) -> None:
        self._hub.wake([*topics, *map(job_topic, ended)])

    def wake(self, topics: Iterable[str]) -> None:
        self._hub.wake(topics)
