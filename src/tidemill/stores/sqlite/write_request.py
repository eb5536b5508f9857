"""A transaction that waits for the writer, together with the caller that waits for its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import apsw

from tidemill.errors import StoreError, TidemillError
from tidemill.stores.sqlite.errors import translate_error
from tidemill.stores.sqlite.transaction import SqliteTransaction

T = TypeVar("T")
Work = Callable[[SqliteTransaction], T]


class WriteRequest:
    """One transaction that the writer has to run.

    - `work`: the function that runs in the transaction
    - `began`: the boot time at which the caller made the request
    - `durable`: if True, the commit waits for the disk
    - `files_inbox`: if True, jobs in the table `inbox` are first moved to the table `jobs`
    - `loop`: the caller's event loop; None for a synchronous caller"""

    __slots__ = (
        "answer",
        "began",
        "durable",
        "error",
        "files_inbox",
        "future",
        "loop",
        "transaction",
        "work",
    )

    def __init__(
        self,
        work: Work[Any],
        began: float,
        *,
        durable: bool,
        files_inbox: bool = True,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.work, self.began, self.durable, self.files_inbox = work, began, durable, files_inbox
        self.loop = loop
        self.future: asyncio.Future[Any] | None = None if loop is None else loop.create_future()
        self.answer: Any = None
        self.error: TidemillError | None = None
        self.transaction: SqliteTransaction | None = None

    def fail(self, error: BaseException, path: Path) -> None:
        """Records the error that the caller will get. SQLite's errors are translated; any other unexpected
        exception becomes a StoreError."""
        if isinstance(error, TidemillError):
            self.error = error
        elif isinstance(error, apsw.Error):
            self.error = translate_error(error, path)
        else:
            self.error = StoreError(f"{path}: {type(error).__name__}: {error}")
        if self.error is not error:
            self.error.__cause__ = error

    def resolve(self) -> None:
        future = self.future
        if future is None or future.done():
            return
        if self.error is None:
            future.set_result(self.answer)
        else:
            future.set_exception(self.error)


def resolve_requests(group: list[WriteRequest]) -> None:
    """Delivers the answers of all requests to their event loops, with one thread-safe call per loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[WriteRequest]] = {}
    for request in group:
        if request.loop is not None:
            by_loop.setdefault(request.loop, []).append(request)
    for loop, requests in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, requests)
        except RuntimeError:
            # The loop was closed while its caller waited; no caller is left.
            continue


def _resolve(requests: list[WriteRequest]) -> None:
    for request in requests:
        request.resolve()
