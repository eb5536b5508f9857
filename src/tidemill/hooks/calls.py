"""One request, between a client's hook and the attempt that makes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Protocol


class Answer:
    """What a hook has seen of a response, in the shape that `tidemill.feedback` reads."""

    __slots__ = ("body", "headers", "status_code")

    def __init__(self, status_code: int, headers: Mapping[str, str], body: Any = None) -> None:
        self.status_code, self.headers, self.body = status_code, headers, body


class WatchedCall(Protocol):
    """A request of an attempt. No method raises: a hook must not fail a call that is paid for."""

    async def leaves(self) -> None:
        """The request is about to leave. Returns when the pool knows, or after a bounded wait."""
        ...

    def leaves_sync(self) -> None:
        """`leaves` for clients that block."""
        ...

    def left(self, requests: int) -> None:
        """Reports requests that have left already at an unknown time, for clients without a trace: only
        those that nothing was reserved for."""
        ...

    def answered(self, response: Any) -> None:
        """Reports an answer. A later report of the same call replaces an earlier one."""
        ...


BEGIN_CALL: ContextVar[Callable[[Any], WatchedCall | None] | None] = ContextVar(
    "tidemill_begin_call", default=None
)
"""Begins a call to a pool in the attempt that this code runs in; None outside of an attempt."""


def begin_call(pool: Any) -> WatchedCall | None:
    begin = BEGIN_CALL.get()
    return None if begin is None else begin(pool)
