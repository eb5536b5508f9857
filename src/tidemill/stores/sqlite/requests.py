"""A step on its way through the writer, and who waits for its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import apsw

from tidemill.errors import StoreError, TidemillError
from tidemill.stores.sqlite.faults import translate
from tidemill.stores.sqlite.transaction import Transaction

T = TypeVar("T")
Work = Callable[[Transaction], T]


class Request:
    """`began` is a boot time. `files_inbox`: whether the step must see every accepted job in its place."""

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
        self.transaction: Transaction | None = None

    def fail(self, error: BaseException, path: Path) -> None:
        """What is no error of ours is a bug, or an interrupt: callers are told either way."""
        if isinstance(error, TidemillError):
            self.error = error
        elif isinstance(error, apsw.Error):
            self.error = translate(error, path)
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


def answer(group: list[Request]) -> None:
    """Tell each event loop once, whatever the number of its callers."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Request]] = {}
    for request in group:
        if request.loop is not None:
            by_loop.setdefault(request.loop, []).append(request)
    for loop, requests in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, requests)
        except RuntimeError:
            # The loop was closed while its caller waited; there is nobody left to tell.
            continue


def _resolve(requests: list[Request]) -> None:
    for request in requests:
        request.resolve()
