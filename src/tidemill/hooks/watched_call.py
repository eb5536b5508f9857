"""One HTTP call that a hook sees: the methods to report it, its response, and the usage in a streamed
body."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Protocol

import msgspec

from tidemill.feedback.provider_reply import BODY_END_BYTES, MAX_PARSED_BODY_BYTES, find_usage_at_ends


class WatchedResponse:
    """The status, headers and body (or usage) of a response, as an object that `tidemill.feedback` can
    read."""

    __slots__ = ("body", "headers", "status_code")

    def __init__(self, status_code: int, headers: Mapping[str, str], body: Any = None) -> None:
        self.status_code, self.headers, self.body = status_code, headers, body


class WatchedCall(Protocol):
    """One HTTP call of an attempt, to which a hook reports requests and answers. No method raises: a hook
    must not fail a call that is already paid for."""

    async def leaves(self) -> None:
        """Reports that the request is about to be sent. Waits for a short time until the pool has recorded
        this."""
        ...

    def before_send_sync(self) -> None:
        """Like `leaves`, for sync clients: blocks for a short time until the pool has recorded the
        request."""
        ...

    def left(self, requests: int) -> None:
        """Reports that `requests` requests were sent, for client libraries that do not show the moment of
        sending. Does nothing if `leaves` was called before."""
        ...

    def answered(self, response: Any) -> None:
        """Reports the provider's answer. A hook may report twice: first the headers, then also the body. The
        later report replaces the earlier."""
        ...


BEGIN_CALL: ContextVar[Callable[[Any], WatchedCall | None] | None] = ContextVar(
    "tidemill_begin_call", default=None
)
"""Starts a call to a pool in the current attempt; None outside of an attempt."""


def begin_call(pool: Any) -> WatchedCall | None:
    begin = BEGIN_CALL.get()
    return None if begin is None else begin(pool)


_USAGE_FIELDS = ("usage", "usageMetadata")
_USAGE_PARENTS = (None, "message", "response")
"""The places of usage in a stream event: at the top, in its message, or in its response."""
_USAGE_MARKERS = (b'"usage', b'"error"')


class BodyUsageReader:
    """Finds the usage in a response body while the body streams. Pass each piece of the body to `feed`, and
    call `finish` at the end."""

    def __init__(self, content_type: str) -> None:
        self._events = EventStreamUsage() if "event-stream" in content_type else None
        self._start = bytearray()
        self._end = bytearray()
        self._is_over = False

    def feed(self, piece: bytes) -> None:
        if self._is_over:
            return  # a client yields a stored body a second time
        if self._events is not None:
            self._events.feed(piece)
        elif len(self._start) + len(piece) <= MAX_PARSED_BODY_BYTES and not self._end:
            self._start += piece
        else:
            # Too long to keep. `_start` has its beginning, and `_end` its last bytes.
            self._end += piece
            del self._end[:-BODY_END_BYTES]

    def finish(self) -> Any:
        """Ends the reading and returns the part of the body that has the usage; None if there is none.

        - event stream: a dict with the last usage, and the error if there was one
        - any other body: the whole body as bytes; over 256 KiB, only the usage near its beginning or end"""
        self._is_over = True
        if self._events is not None:
            return self._events.found or None
        if self._end:
            end = (self._start + self._end)[-BODY_END_BYTES:]
            return find_usage_at_ends(bytes(self._start[:BODY_END_BYTES] + end))
        return bytes(self._start) or None


class EventStreamUsage:
    """Finds the usage in server-sent events. `found` has the last usage, and the error if there was one."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self._line = bytearray()
        self._is_skipping = False

    def feed(self, piece: bytes) -> None:
        *lines, rest = piece.split(b"\n")
        for line in lines:
            if not self._is_skipping:
                self._read(bytes(self._line + line))
            self._line.clear()
            self._is_skipping = False
        if len(self._line) + len(rest) > MAX_PARSED_BODY_BYTES:
            self._is_skipping = True  # no usage is this long
            self._line.clear()
        elif not self._is_skipping:
            self._line += rest

    def _read(self, line: bytes) -> None:
        if not line.startswith(b"data:") or not any(word in line for word in _USAGE_MARKERS):
            return
        try:
            event = msgspec.json.decode(line[len(b"data:") :].strip())
        except Exception:  # noqa: BLE001 - nested brackets raise RecursionError
            return
        if not isinstance(event, Mapping):
            return
        for parent in _USAGE_PARENTS:
            inside = event if parent is None else event.get(parent)
            if isinstance(inside, Mapping):
                self._merge(inside)
        if isinstance(event.get("error"), Mapping):
            # The type tells adapters which provider sent the error.
            self.found.update((name, event[name]) for name in ("error", "type") if name in event)

    def _merge(self, event: Mapping[str, Any]) -> None:
        for name in _USAGE_FIELDS:
            usage = event.get(name)
            if isinstance(usage, Mapping):
                counts = {unit: amount for unit, amount in usage.items() if amount is not None}
                self.found[name] = {**self.found.get(name, {}), **counts}
