"""The only writer of a store object. It commits several requests together (group commit).

Coroutines submit requests to the writer's thread. The thread commits all waiting requests with one fsync. If
a request fails, the group is rolled back and each request runs again alone. A caller without an event loop
runs its request in its own thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TypeVar

import apsw

from tidemill.clock import Clock
from tidemill.core.jobs import JobGroup
from tidemill.core.queues import InsertResult
from tidemill.errors import StoreError, StoreUnavailable
from tidemill.stores.sqlite import insert_inbox
from tidemill.stores.sqlite.connection import BUSY_TIMEOUT_SECONDS, BusyTimeout, connect, survive_forks
from tidemill.stores.sqlite.errors import translate_error, translate_errors
from tidemill.stores.sqlite.file import DatabaseFile
from tidemill.stores.sqlite.leases import end_previous_boot
from tidemill.stores.sqlite.settings_cache import SettingsCache
from tidemill.stores.sqlite.statements import load_statements
from tidemill.stores.sqlite.transaction import SqliteTransaction
from tidemill.stores.sqlite.wakeups import SqliteWakeups
from tidemill.stores.sqlite.write_request import Work, WriteRequest, resolve_requests

SQL = load_statements("maintenance")
T = TypeVar("T")

_MAX_REQUESTS_PER_COMMIT = 64
"""Most requests per commit, so that no commit takes noticeably long."""

_MIN_BUSY_TIMEOUT_SECONDS = 0.1


class SqliteWriter:
    def __init__(self, file: DatabaseFile, clock: Clock, wakeups: SqliteWakeups) -> None:
        self._file, self._path = file, file.path
        self._clock, self._wakeups = clock, wakeups
        self._closed = False
        self._reset()
        survive_forks(self, reader=False)

    def _reset(self) -> None:
        self._lock = threading.Lock()  # held while the connection is used
        self._submit_lock = threading.Lock()  # held while a request is submitted, and while closing
        self._requests: SimpleQueue[WriteRequest | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._connection: apsw.Connection | None = None
        self._settings = SettingsCache()
        self._boot_id: str | None = None
        self._synchronous = "full"
        self._busy_timeout = BusyTimeout()

    def open(self) -> None:
        """Runs an empty transaction. This checks that the file can be written, and ends old leases after a
        reboot."""
        self._closed = False
        self.run(lambda _: None, durable=False)

    def close(self) -> None:
        """Finishes the submitted requests and closes the connection. Later requests raise
        StoreUnavailable."""
        with self._submit_lock:
            self._closed = True
            thread, self._thread = self._thread, None
            if thread is not None:
                self._requests.put(None)
        if thread is not None:
            thread.join()
        with self._lock:
            self._disconnect()

    def run(self, work: Work[T], *, durable: bool) -> T:
        """Runs `work` in a transaction in the caller's thread, and returns its result. `durable=True`: the
        commit waits for the disk."""
        request = WriteRequest(work, self._clock.boot(), durable=durable)
        self._take_connection()
        try:
            self._commit([request])
        finally:
            self._lock.release()
        if request.error is not None:
            raise request.error
        self._send_wakeups([request])
        result: T = request.answer
        return result

    def run_alone(self, work: Callable[[apsw.Connection], T]) -> T:
        """Runs `work` outside a transaction and returns its result. No other thread of this process writes
        meanwhile. For statements that cannot run in a transaction, such as VACUUM."""
        self._take_connection()
        try:
            with translate_errors(self._path):
                self._set_busy_timeout(self._clock.boot())
                connection = self._connected()
                self._file.check()
                return work(connection)
        finally:
            self._lock.release()

    def append(self, groups: Sequence[JobGroup]) -> list[list[InsertResult]] | None:
        """Appends one job to the table `inbox`, in the caller's thread, and returns its insert result.
        Returns None if the caller must insert the job in a normal transaction."""
        # No context managers here: this is the most common call of a program, and their cost is measurable.
        began = self._clock.boot()
        self._take_connection()
        try:
            connection = self._connection
            if connection is None or self._boot_id != self._clock.boot_id:
                return None
            self._set_busy_timeout(began)
            self._set_synchronous(connection, "full")
            inserted = insert_inbox.append_job(connection, self._clock.wall(), groups)
            self._file.check()
            is_inbox_full = inserted is not None and insert_inbox.is_full(connection)
        except apsw.Error as error:
            raise translate_error(error, self._path) from error
        finally:
            self._lock.release()
        if is_inbox_full:
            # The job is accepted even if moving the inbox fails: a later transaction moves it.
            with contextlib.suppress(StoreError):
                self.run(lambda _: None, durable=False)
        return inserted

    def submit(self, work: Work[T], *, durable: bool, files_inbox: bool = True) -> asyncio.Future[T]:
        """Runs `work` in the writer's thread; the future gets its result. `durable=True`: the commit waits
        for the disk. `files_inbox=True`: jobs in the table `inbox` are moved to `jobs` first."""
        loop = asyncio.get_running_loop()
        began = self._clock.boot()
        request = WriteRequest(work, began, durable=durable, files_inbox=files_inbox, loop=loop)
        with self._submit_lock:
            self._check_open()
            if self._thread is None:
                thread = threading.Thread(target=self._serve, name="tidemill-sqlite", daemon=True)
                thread.start()
                self._thread = thread
            self._requests.put(request)
        assert request.future is not None  # noqa: S101 - a request with a loop has one
        return request.future

    def _take_connection(self) -> None:
        """Takes the lock of the connection. The caller must release the lock. Raises StoreUnavailable after
        3.5 seconds."""
        if not self._lock.acquire(timeout=BUSY_TIMEOUT_SECONDS):
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
                    # The answers come last: from then on this thread and the caller's compete for the
                    # interpreter lock, which cost a single enqueue more than its commit.
                    self._send_wakeups(group)
            finally:
                resolve_requests(group)
            if is_last:
                return

    def _send_wakeups(self, group: list[WriteRequest]) -> None:
        for request in group:
            transaction = request.transaction
            if transaction is not None and request.error is None and transaction.has_wakeups:
                with contextlib.suppress(OSError):  # a lost wake-up costs only time
                    self._wakeups.announce(transaction.topics, transaction.ended)

    def _commit(self, group: list[WriteRequest]) -> None:
        try:
            with translate_errors(self._path):
                self._set_busy_timeout(min(request.began for request in group))
                connection = self._connected()
                self._set_synchronous(connection, "full" if any(r.durable for r in group) else "normal")
                connection.execute("BEGIN IMMEDIATE")
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            for request in group:
                request.fail(error, self._path)
            return
        try:
            for request in group:
                self._run_request(connection, request)
            connection.execute("COMMIT")
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            self._roll_back()
            if len(group) == 1:
                group[0].fail(error, self._path)
                return
            for request in group:
                self._commit([request])
            return
        self._flush_reserved(connection, group)
        self._check_file(group)

    def _check_file(self, group: list[WriteRequest]) -> None:
        """Checks after the commit that the database file was not deleted or replaced. If it was, all requests
        of the group fail."""
        try:
            self._file.check()
        except StoreError as error:
            for request in group:
                request.fail(error, self._path)

    def _flush_reserved(self, connection: apsw.Connection, group: list[WriteRequest]) -> None:
        """Makes sure that reserved units are on the disk before the claim is answered. The caller may spend
        the units at once, so they must survive a power cut."""
        if self._synchronous == "full":
            return
        if not any(request.transaction is not None and request.transaction.has_reserved for request in group):
            return
        try:
            with translate_errors(self._path):
                self._set_synchronous(connection, "full")
                connection.execute(SQL.flush)
        except BaseException as error:  # noqa: BLE001 - the caller gets it; repeating the claim finds the same jobs
            for request in group:
                request.fail(error, self._path)

    def _run_request(self, connection: apsw.Connection, request: WriteRequest) -> None:
        clock = self._clock
        transaction = SqliteTransaction(connection, clock.wall(), clock.boot(), clock.boot_id, self._settings)
        if self._boot_id != clock.boot_id:
            end_previous_boot(transaction, clock.boot_id)
        if request.files_inbox:
            insert_inbox.move_to_jobs(transaction)
        request.answer = request.work(transaction)
        transaction.finish()
        request.transaction = transaction
        self._boot_id = clock.boot_id

    def _connected(self) -> apsw.Connection:
        if self._connection is None:
            self._connection = connect(self._file, self._busy_timeout)
            self._synchronous = "full"
        return self._connection

    def _set_busy_timeout(self, began: float) -> None:
        """Sets how long SQLite waits for a locked file: the usual time, less the time that the oldest request
        has already waited. `began`: the boot time of that request."""
        self._busy_timeout.remaining = max(
            _MIN_BUSY_TIMEOUT_SECONDS, BUSY_TIMEOUT_SECONDS - (self._clock.boot() - began)
        )

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(force=True)

    def _set_synchronous(self, connection: apsw.Connection, mode: str) -> None:
        if mode != self._synchronous:
            connection.pragma("synchronous", mode)
            self._synchronous = mode

    def _roll_back(self) -> None:
        self._boot_id = None
        try:
            if self._connection is not None and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except apsw.Error:
            # A connection that cannot roll back is useless; closing it rolls back.
            self._disconnect()

    def before_fork(self) -> None:
        self._lock.acquire()
        self._disconnect()

    def after_fork_in_parent(self) -> None:
        self._lock.release()

    def after_fork_in_child(self) -> None:
        self._reset()


def _gather(requests: SimpleQueue[WriteRequest | None]) -> tuple[list[WriteRequest], bool]:
    """Waits for a request and returns it with the requests that already wait, at most 64 in all. Also returns
    True if the writer has to close afterwards."""
    group: list[WriteRequest] = []
    request = requests.get()
    while request is not None:
        group.append(request)
        if len(group) == _MAX_REQUESTS_PER_COMMIT:
            return group, False
        try:
            request = requests.get_nowait()
        except Empty:
            return group, False
    return group, True
