"""The one writer of a store handle, with group commit.

Coroutines hand their steps to a thread; whatever waits when the thread comes round is
committed together, so that many callers share one fsync. A step that fails is rolled back
with its group, and the group is then run one by one: nobody pays for a neighbour's error.
A file that cannot be locked is told to all of them at once.
A caller with no event loop runs its step in its own thread, without the hand-over.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TypeVar

import apsw

from tidemill.clock import Clock
from tidemill.core.job import Group
from tidemill.core.queues import Inserted
from tidemill.errors import StoreError, StoreUnavailable
from tidemill.stores.sqlite import inbox
from tidemill.stores.sqlite.connection import BUSY_PATIENCE, Patience, connect
from tidemill.stores.sqlite.faults import translate, translated
from tidemill.stores.sqlite.file import DatabaseFile
from tidemill.stores.sqlite.forking import survive_forks
from tidemill.stores.sqlite.reclaim import notice_boot
from tidemill.stores.sqlite.requests import Request, Work, answer
from tidemill.stores.sqlite.settings import SettingsCache
from tidemill.stores.sqlite.statements import load
from tidemill.stores.sqlite.transaction import Transaction
from tidemill.stores.sqlite.wakeups import Wakeups

SQL = load("upkeep")
T = TypeVar("T")

_AT_ONCE = 64
"""Steps per commit at most: a commit is never long enough to be felt."""

_LEAST_PATIENCE = 0.1


class Writer:
    def __init__(self, file: DatabaseFile, clock: Clock, wakeups: Wakeups) -> None:
        self._file, self._path = file, file.path
        self._clock, self._wakeups = clock, wakeups
        self._closed = False
        self._start_afresh()
        survive_forks(self, reader=False)

    def _start_afresh(self) -> None:
        self._lock = threading.Lock()  # held by whoever uses the connection
        self._door = threading.Lock()  # held by whoever hands in a request, or closes
        self._requests: SimpleQueue[Request | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._connection: apsw.Connection | None = None
        self._settings = SettingsCache()
        self._boot_id: str | None = None
        self._synchronous = "full"
        self._patience = Patience()

    def open(self) -> None:
        """An empty step shows that the file can be written to, and notices another boot."""
        self._closed = False
        self.run(lambda _: None, durable=False)

    def close(self) -> None:
        """What was handed in before is done; what comes later is refused."""
        with self._door:
            self._closed = True
            thread, self._thread = self._thread, None
            if thread is not None:
                self._requests.put(None)
        if thread is not None:
            thread.join()
        with self._lock:
            self._disconnect()

    def run(self, work: Work[T], *, durable: bool) -> T:
        """Run a step here and now, in the caller's thread."""
        request = Request(work, self._clock.boot(), durable=durable)
        self._take_connection()
        try:
            self._commit([request])
        finally:
            self._lock.release()
        if request.error is not None:
            raise request.error
        self._ring([request])
        result: T = request.answer
        return result

    def run_alone(self, work: Callable[[apsw.Connection], T]) -> T:
        """What cannot be a step: on the writer's connection while nobody else in this process writes."""
        self._take_connection()
        try:
            with translated(self._path):
                self._be_patient(self._clock.boot())
                connection = self._connected()
                self._file.check()
                return work(connection)
        finally:
            self._lock.release()

    def append(self, groups: Sequence[Group]) -> list[list[Inserted]] | None:
        """A lone job straight into the inbox, in the caller's thread: a statement that is a durable
        transaction by itself. None when the general way has to be taken."""
        # No context managers here: this is a program's commonest call, and they would show in it.
        began = self._clock.boot()
        self._take_connection()
        try:
            connection = self._connection
            if connection is None or self._boot_id != self._clock.boot_id:
                return None
            self._be_patient(began)
            self._sync_mode(connection, "full")
            inserted = inbox.append(connection, self._clock.wall(), groups)
            self._file.check()
            is_long = inserted is not None and inbox.is_long(connection)
        except apsw.Error as error:
            raise translate(error, self._path) from error
        finally:
            self._lock.release()
        if is_long:
            # The job is accepted, whatever becomes of the filing: another step will see to it.
            with contextlib.suppress(StoreError):
                self.run(lambda _: None, durable=False)
        return inserted

    def submit(self, work: Work[T], *, durable: bool, files_inbox: bool = True) -> asyncio.Future[T]:
        """Run a step in the writer's thread, together with whatever else waits there."""
        loop = asyncio.get_running_loop()
        began = self._clock.boot()
        request = Request(work, began, durable=durable, files_inbox=files_inbox, loop=loop)
        with self._door:
            self._check_open()
            if self._thread is None:
                thread = threading.Thread(target=self._serve, name="tidemill-sqlite", daemon=True)
                thread.start()
                self._thread = thread
            self._requests.put(request)
        assert request.future is not None  # noqa: S101 - a request with a loop has one
        return request.future

    def _take_connection(self) -> None:
        """Nobody waits longer for a neighbour in this process than for one in another."""
        if not self._lock.acquire(timeout=BUSY_PATIENCE):
            raise StoreUnavailable(f"{self._path}: this process has held the database for too long")
        if self._closed:
            self._lock.release()
            self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"{self._path}: the store is closed; open it again to go on")

    def _serve(self) -> None:
        requests = self._requests
        while True:
            group, is_last = _gather(requests)
            try:
                if group:
                    with self._lock:
                        self._commit(group)
                    # The answer comes last: from then on this thread and the caller's would fight
                    # for the interpreter lock, which cost a lone enqueue more than its commit.
                    self._ring(group)
            finally:
                answer(group)
            if is_last:
                return

    def _ring(self, group: list[Request]) -> None:
        for request in group:
            transaction = request.transaction
            if transaction is not None and request.error is None and transaction.rings:
                with contextlib.suppress(OSError):  # a hint that cannot be given is only a hint
                    self._wakeups.announce(transaction.topics, transaction.ended)

    def _commit(self, group: list[Request]) -> None:
        try:
            with translated(self._path):
                self._be_patient(min(request.began for request in group))
                connection = self._connected()
                self._sync_mode(connection, "full" if any(r.durable for r in group) else "normal")
                connection.execute("BEGIN IMMEDIATE")
        except BaseException as error:  # noqa: BLE001 - handed to whoever asked
            for request in group:
                request.fail(error, self._path)
            return
        try:
            for request in group:
                self._perform(connection, request)
            connection.execute("COMMIT")
        except BaseException as error:  # noqa: BLE001 - handed to whoever asked
            self._roll_back()
            if len(group) == 1:
                group[0].fail(error, self._path)
                return
            for request in group:
                self._commit([request])
            return
        self._flush_reserved(connection, group)
        self._check_file(group)

    def _check_file(self, group: list[Request]) -> None:
        """After the commit: a job is accepted only if the file that holds it is still there."""
        try:
            self._file.check()
        except StoreError as error:
            for request in group:
                request.fail(error, self._path)

    def _flush_reserved(self, connection: apsw.Connection, group: list[Request]) -> None:
        """A claim that took units is told only when they are on the disk: a calendar's count outlives a
        power cut, and what was told may be spent. A commit that waits takes all before it along."""
        if self._synchronous == "full":
            return
        if not any(request.transaction is not None and request.transaction.has_reserved for request in group):
            return
        try:
            with translated(self._path):
                self._sync_mode(connection, "full")
                connection.execute(SQL.flush)
        except BaseException as error:  # noqa: BLE001 - handed to whoever asked; repeating it finds what was done
            for request in group:
                request.fail(error, self._path)

    def _perform(self, connection: apsw.Connection, request: Request) -> None:
        clock = self._clock
        transaction = Transaction(connection, clock.wall(), clock.boot(), clock.boot_id, self._settings)
        if self._boot_id != clock.boot_id:
            notice_boot(transaction, clock.boot_id)
        if request.files_inbox:
            inbox.file(transaction)
        request.answer = request.work(transaction)
        transaction.finish()
        request.transaction = transaction
        self._boot_id = clock.boot_id

    def _connected(self) -> apsw.Connection:
        if self._connection is None:
            self._connection = connect(self._file, self._patience)
            self._synchronous = "full"
        return self._connection

    def _be_patient(self, began: float) -> None:
        """What was waited for a neighbour in this process is not waited again for one in another."""
        self._patience.left = max(_LEAST_PATIENCE, BUSY_PATIENCE - (self._clock.boot() - began))

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(force=True)

    def _sync_mode(self, connection: apsw.Connection, mode: str) -> None:
        if mode != self._synchronous:
            connection.pragma("synchronous", mode)
            self._synchronous = mode

    def _roll_back(self) -> None:
        self._boot_id = None
        try:
            if self._connection is not None and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except apsw.Error:
            # A connection that cannot even roll back is of no further use; closing it does.
            self._disconnect()

    def before_fork(self) -> None:
        self._lock.acquire()
        self._disconnect()

    def after_fork_in_parent(self) -> None:
        self._lock.release()

    def after_fork_in_child(self) -> None:
        self._start_afresh()


def _gather(requests: SimpleQueue[Request | None]) -> tuple[list[Request], bool]:
    """All that wait, at least one; and whether the end was among them."""
    group: list[Request] = []
    request = requests.get()
    while request is not None:
        group.append(request)
        if len(group) == _AT_ONCE:
            return group, False
        try:
            request = requests.get_nowait()
        except Empty:
            return group, False
    return group, True
