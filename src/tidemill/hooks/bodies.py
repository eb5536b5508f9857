"""The usage in a body that streams by. The body is passed on as it comes, and little of it is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tidemill.feedback.unpack import END_OF_BODY, WHOLE_BODY, usage_at_ends

_USAGES = ("usage", "usageMetadata")
_PLACES = (None, "message", "response")
"""Where an event of a stream keeps its usage: at the top, or in the message or response it belongs to."""
_WORTH_DECODING = (b'"usage', b'"error"')


class Body:
    """`feed` takes the pieces in order. `content` is what they said: of a JSON body all of it, or the
    usage at its ends when it is long; of an event stream the last usage, and the error if there was one."""

    def __init__(self, content_type: str) -> None:
        self._events = EventUsage() if "event-stream" in content_type else None
        self._kept = bytearray()
        self._end = bytearray()
        self._is_over = False

    def feed(self, piece: bytes) -> None:
        if self._is_over:
            return  # a client hands out a body that it has kept once more
        if self._events is not None:
            self._events.feed(piece)
        elif len(self._kept) + len(piece) <= WHOLE_BODY and not self._end:
            self._kept += piece
        else:
            # Too long to keep: its beginning is in `_kept`, and its end is kept up to date.
            self._end += piece
            del self._end[:-END_OF_BODY]

    def content(self) -> Any:
        """After this nothing more is taken."""
        self._is_over = True
        if self._events is not None:
            return self._events.found or None
        if self._end:
            end = (self._kept + self._end)[-END_OF_BODY:]
            return usage_at_ends(bytes(self._kept[:END_OF_BODY] + end))
        return bytes(self._kept) or None


class EventUsage:
    """Of server-sent events. A provider states usage in parts (Anthropic) or again with every event, each
    time higher (Gemini): of each count the last one holds."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self._line = bytearray()
        self._skips = False

    def feed(self, piece: bytes) -> None:
        *lines, rest = piece.split(b"\n")
        for line in lines:
            if not self._skips:
                self._read(bytes(self._line + line))
            self._line.clear()
            self._skips = False
        if len(self._line) + len(rest) > WHOLE_BODY:
            self._skips = True  # no usage is that long
            self._line.clear()
        elif not self._skips:
            self._line += rest

    def _read(self, line: bytes) -> None:
        if not line.startswith(b"data:") or not any(word in line for word in _WORTH_DECODING):
            return
        try:
            event = msgspec.json.decode(line[len(b"data:") :].strip())
        except Exception:  # noqa: BLE001 - also a RecursionError of nested brackets
            return
        if not isinstance(event, Mapping):
            return
        for place in _PLACES:
            inside = event if place is None else event.get(place)
            if isinstance(inside, Mapping):
                self._merge(inside)
        if isinstance(event.get("error"), Mapping):
            # With its type: by that an adapter knows whose error it is.
            self.found.update((name, event[name]) for name in ("error", "type") if name in event)

    def _merge(self, event: Mapping[str, Any]) -> None:
        for name in _USAGES:
            usage = event.get(name)
            if isinstance(usage, Mapping):
                told = {unit: amount for unit, amount in usage.items() if amount is not None}
                self.found[name] = {**self.found.get(name, {}), **told}
