"""The one writer of a store handle, with group commit.

Coroutines hand their steps to a thread; whatever waits when the thread comes round is
committed together, so that many callers share one fsync. A step that fails is rolled back
with its group, and the group is then run one by one: nobody pays for a neighbour's error.
A caller with no event loop runs its step in its own thread, without the hand-over.

A process that forked gets a connection of its own: SQLite connections do not survive a fork.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import apsw

from tidemill.clock import Clock
from tidemill.core.job import Group
from tidemill.core.queues import Inserted
from tidemill.errors import StoreUnavailable
from tidemill.stores.sqlite import inbox
from tidemill.stores.sqlite.connection import connect
from tidemill.stores.sqlite.faults import translate, translated
from tidemill.stores.sqlite.reclaim import notice_boot
from tidemill.stores.sqlite.settings import SettingsCache
from tidemill.stores.sqlite.transaction import Transaction
from tidemill.stores.sqlite.wakeups import Wakeups

T = TypeVar("T")
Step = Callable[[Transaction], T]

_AT_ONCE = 64
"""Steps per commit at most: a commit is never long enough to be felt."""


class _Request:
    __slots__ = ("answer", "durable", "error", "files_inbox", "future", "loop", "step", "transaction")

    def __init__(
        self,
        step: Step[Any],
        durable: bool,
        loop: asyncio.AbstractEventLoop | None,
        files_inbox: bool = True,
    ) -> None:
        self.step, self.durable, self.loop = step, durable, loop
        self.files_inbox = files_inbox
        self.future: asyncio.Future[Any] | None = None if loop is None else loop.create_future()
        self.answer: Any = None
        self.error: BaseException | None = None
        self.transaction: Transaction | None = None

    def resolve(self) -> None:
        future = self.future
        if future is None or future.done():
            return
        if self.error is None:
            future.set_result(self.answer)
        else:
            future.set_exception(self.error)


class Writer:
    def __init__(self, path: Path, clock: Clock, wakeups: Wakeups) -> None:
        self._path, self._clock, self._wakeups = path, clock, wakeups
        self._closed = False
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._requests: SimpleQueue[_Request | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._connection: apsw.Connection | None = None
        self._settings = SettingsCache()
        self._boot_id: str | None = None
        self._synchronous = "full"

    def open(self) -> None:
        """An empty step shows that the file can be written to, and notices another boot."""
        self._closed = False
        self.run(lambda _: None, durable=False)

    def close(self) -> None:
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        if self._thread is not None:
            self._requests.put(None)
            self._thread.join()
            self._thread = None
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def run(self, step: Step[T], *, durable: bool) -> T:
        """Run a step here and now, in the caller's thread."""
        self._check()
        request = _Request(step, durable, None)
        with self._lock:
            self._commit([request])
        if request.error is not None:
            raise request.error
        self._after([request])
        answer: T = request.answer
        return answer

    def append(self, groups: Sequence[Group]) -> list[list[Inserted]] | None:
        """A lone job straight into the inbox, in the caller's thread: a statement that is a durable
        transaction by itself. None when the general way has to be taken."""
        self._check()
        with self._lock:
            if self._connection is None or self._boot_id != self._clock.boot_id:
                return None
            self._sync_mode(self._connection, "full")
            try:
                inserted = inbox.append(self._connection, self._clock.wall(), groups)
            except apsw.Error as error:
                raise translate(error, self._path) from error
            is_long = inserted is not None and inbox.is_long(self._connection)
        if is_long:
            self.run(lambda _: None, durable=False)
        return inserted

    def submit(self, step: Step[T], *, durable: bool, files_inbox: bool = True) -> asyncio.Future[T]:
        """Run a step in the writer's thread, together with whatever else waits there."""
        self._check()
        request = _Request(step, durable, asyncio.get_running_loop(), files_inbox)
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="tidemill-sqlite", daemon=True)
            self._thread.start()
        self._requests.put(request)
        assert request.future is not None  # noqa: S101 - a request with a loop has one
        return request.future

    def _check(self) -> None:
        if os.getpid() != self._pid:
            self._start_afresh()
        if self._closed:
            raise StoreUnavailable(f"{self._path}: the store is closed; open it again to go on")

    def _serve(self) -> None:
        while True:
            first = self._requests.get()
            group = [] if first is None else [first]
            while len(group) < _AT_ONCE and not self._requests.empty():
                request = self._requests.get()
                if request is None:
                    first = None
                else:
                    group.append(request)
            if group:
                with self._lock:
                    self._commit(group)
                # The answer comes last: from then on this thread and the caller's would fight for
                # the interpreter lock, which cost a lone enqueue more than its commit.
                self._after(group)
                self._answer(group)
            if first is None:
                return

    def _answer(self, group: list[_Request]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[_Request]] = {}
        for request in group:
            if request.loop is not None:
                by_loop.setdefault(request.loop, []).append(request)
        for loop, requests in by_loop.items():
            try:
                loop.call_soon_threadsafe(_resolve, requests)
            except RuntimeError:
                # The loop was closed while its caller waited; there is nobody left to tell.
                continue

    def _after(self, group: list[_Request]) -> None:
        for request in group:
            step = request.transaction
            if step is not None and request.error is None and (step.topics or step.ended):
                self._wakeups.announce(step.topics, step.ended)

    def _commit(self, group: list[_Request]) -> None:
        try:
            connection = self._ready()
            self._sync_mode(connection, "full" if any(r.durable for r in group) else "normal")
            with translated(self._path):
                connection.execute("BEGIN IMMEDIATE")
                for request in group:
                    self._perform(connection, request)
                connection.execute("COMMIT")
        except BaseException as error:  # noqa: BLE001 - handed to whoever asked
            self._roll_back()
            if len(group) == 1:
                group[0].error = error
                return
            for request in group:
                self._commit([request])

    def _perform(self, connection: apsw.Connection, request: _Request) -> None:
        step = Transaction(connection, self._clock.wall(), self._clock.boot(), self._settings)
        if self._boot_id != self._clock.boot_id:
            notice_boot(step, self._clock.boot_id)
        if request.files_inbox:
            inbox.file(step)
        request.answer = request.step(step)
        step.finish()
        request.transaction = step
        self._boot_id = self._clock.boot_id

    def _ready(self) -> apsw.Connection:
        if self._connection is None:
            self._connection = connect(self._path)
        return self._connection

    def _sync_mode(self, connection: apsw.Connection, mode: str) -> None:
        if mode != self._synchronous:
            connection.execute(f"PRAGMA synchronous = {mode}")
            self._synchronous = mode

    def _roll_back(self) -> None:
        self._boot_id = None
        if self._connection is not None and self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except apsw.Error as error:
                # A connection that cannot even roll back is of no further use.
                self._connection.close(force=True)
                self._connection = None
                raise translate(error, self._path) from error


def _resolve(requests: list[_Request]) -> None:
    for request in requests:
        request.resolve()
