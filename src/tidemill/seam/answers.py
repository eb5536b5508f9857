"""What a handler may answer. Any other value is sent as JSON; None is an empty answer."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemill.errors import ConfigurationError

_LINE_ENDS = re.compile(r"[\r\n\0]")


@dataclass(frozen=True)
class Page:
    """A template with what it shows. The blocks that `live` names are drawn again, by the same handler, as
    long as somebody looks at the page."""

    template: str
    shows: Mapping[str, Any] = field(default_factory=dict)
    live: tuple[str, ...] = ()
    status: int = 200


@dataclass(frozen=True)
class Go:
    """To another page, after something was done. `notice` is a sentence that page shows once."""

    path: str
    notice: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Text:
    body: str | bytes
    media_type: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Event:
    """One of a stream. Whoever comes back names the `id` of the last one it saw. `data` may have lines, the
    others may not: they would be read as more of the stream."""

    name: str
    data: str
    id: str | None = None

    def __post_init__(self) -> None:
        for field_name, value in (("name", self.name), ("id", self.id or "")):
            if _LINE_ENDS.search(value):
                raise ConfigurationError(
                    f"{field_name}: of an Event must be one line, is {value[:50]!r}; lines are for data"
                )


@dataclass(frozen=True)
class Events:
    """A stream until it ends or the viewer goes: server-sent events, and where the route says that it
    `answers` this, text frames of a WebSocket, too."""

    stream: AsyncIterator[Event]
