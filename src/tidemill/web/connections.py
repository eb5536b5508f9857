"""How many connections the dashboard's server has, and how long each may take to send a request.

A connection is a file of the process, and the worker needs files too: without free ones its jobs fail. So
there are fewer connections than files. One more than that takes the place of the connection that has waited
longest for the rest of its request; requests that have come whole are not ended.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEAD_SECONDS = 10.0
"""From the connection, or from the last answer, until the head of the next request has come."""
BODY_SECONDS = 60.0
"""Until its body has come too."""
MOST_CONNECTIONS = 2000
_LEAST_CONNECTIONS = 16
_KEPT_FILES = 256
"""Files that are kept for the worker, the store and what handlers open, where a process may have 1024."""
_WARN_AGAIN = 60.0


def connection_limit(files: float) -> int:
    """The number of connections for a process with that limit of open files."""
    if files == math.inf:
        return MOST_CONNECTIONS
    kept = max(files // 4, min(_KEPT_FILES, files // 2))
    return int(max(_LEAST_CONNECTIONS, min(MOST_CONNECTIONS, files - kept)))


def file_limit() -> float:
    """The files that this process may have open at once."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return math.inf
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return math.inf if soft == resource.RLIM_INFINITY else soft


class Connections:
    """The connections of one server. `accepted_at_once`: how many it accepts in a step of the event loop."""

    def __init__(self, most: int | None = None) -> None:
        self.most = connection_limit(file_limit()) if most is None else most
        self.accepted_at_once = max(1, min(100, self.most // 4))
        self._waiting: dict[Any, float] = {}
        self._warned = -math.inf

    @property
    def protocol(self) -> type[asyncio.Protocol]:
        """The protocol for `uvicorn.Config(http=…)`."""
        return type("LimitedProtocol", (_LimitedProtocol,), {"limits": self})

    def wait_for(self, connection: Any) -> None:
        """A request is to come. Waiting connections are ordered by since when they wait."""
        self._waiting.pop(connection, None)
        self._waiting[connection] = connection.loop.time()

    def forget(self, connection: Any) -> None:
        self._waiting.pop(connection, None)

    def make_room(self, newest: Any) -> None:
        if len(newest.connections) <= self.most:
            return
        victim = next(iter(self._waiting), newest)
        self.forget(victim)
        victim.connections.discard(victim)
        victim.transport.abort()
        self._warn(newest.loop.time())

    def close_late(self, now: float) -> None:
        """Ends those that did not send a whole request in time."""
        late = [each for each, since in self._waiting.items() if now - since >= _patience(each)]
        for connection in late:
            self.forget(connection)
            connection.transport.abort()

    def _warn(self, now: float) -> None:
        if now - self._warned >= _WARN_AGAIN:
            self._warned = now
            logging.getLogger("tidemill").warning(
                "%d connections are open, and more would take the files of jobs: those that wait longest for "
                "a whole request are ended; raise the limit of open files (ulimit -n), or put a proxy before",
                self.most,
            )


_Protocol: Any = AutoHTTPProtocol


class _LimitedProtocol(_Protocol):  # type: ignore[misc]  # uvicorn picks it by what is installed
    limits: Connections

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.limits.wait_for(self)
        self.limits.make_room(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.limits.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # A WebSocket has another protocol from here on, and is no longer among the connections of this one.
        if _has_whole_request(self) or self not in self.connections:
            self.limits.forget(self)

    def on_response_complete(self) -> None:
        if not self.transport.is_closing():
            self.limits.wait_for(self)
        super().on_response_complete()
        if _has_whole_request(self):  # the next one had come before the answer
            self.limits.forget(self)


def _is_answered(connection: Any) -> bool:
    return connection.cycle is None or connection.cycle.response_complete


def _has_whole_request(connection: Any) -> bool:
    return not _is_answered(connection) and not connection.cycle.more_body


def _patience(connection: Any) -> float:
    return HEAD_SECONDS if _is_answered(connection) else BODY_SECONDS
