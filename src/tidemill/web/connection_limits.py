"""Limits how many connections the dashboard's server has, and how long each may take to send a request.

At the limit, a new connection replaces the connection that has waited longest for a complete request."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from tidemill.web.uploads import UPLOAD_WAIT_KEY

MAX_HEAD_SECONDS = 10.0
"""From the connection, or from the last response, to the end of the next request's headers."""
MAX_BODY_SECONDS = 60.0
"""To the end of the request's body."""
MAX_CONNECTIONS = 2000
_MIN_CONNECTIONS = 16
_RESERVED_FILES = 256
"""Files reserved for the worker, the store and handlers, where a process may have 1024."""
_WARN_INTERVAL_SECONDS = 60.0


def connection_limit(files: float) -> int:
    """Returns how many connections a server may have, from 16 to 2000. `files` is how many files its process
    may open; infinity means no limit."""
    if files == math.inf:
        return MAX_CONNECTIONS
    reserved = max(files // 4, min(_RESERVED_FILES, files // 2))
    return int(max(_MIN_CONNECTIONS, min(MAX_CONNECTIONS, files - reserved)))


def file_limit() -> float:
    """Returns how many files this process may have open at once; infinity if there is no limit."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return math.inf
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return math.inf if soft == resource.RLIM_INFINITY else soft


class ConnectionLimiter:
    """Tracks and limits the connections of one server.

    - `max_connections`: by default computed from the number of files that the process may open
    - `accept_backlog`: the most connections that the server accepts in one iteration of the event loop"""

    def __init__(self, max_connections: int | None = None) -> None:
        self.max_connections = connection_limit(file_limit()) if max_connections is None else max_connections
        self.accept_backlog = max(1, min(100, self.max_connections // 4))
        self._waiting: dict[Any, float] = {}
        self._warned = -math.inf

    @property
    def protocol(self) -> type[asyncio.Protocol]:
        """Returns the class that handles a connection, for `uvicorn.Config(http=…)`. This limiter tracks
        every connection that the class handles."""
        return type("LimitedProtocol", (_LimitedProtocol,), {"limits": self})

    def track_waiting(self, connection: Any) -> None:
        """Records that a connection begins to wait for a request."""
        self._waiting.pop(connection, None)
        self._waiting[connection] = connection.loop.time()

    def untrack(self, connection: Any) -> None:
        self._waiting.pop(connection, None)

    def evict_oldest(self, newest: Any) -> None:
        if len(newest.connections) <= self.max_connections:
            return
        waiting = (connection for connection in self._waiting if not _is_uploading(connection))
        victim = next(waiting, newest)
        self.untrack(victim)
        victim.connections.discard(victim)
        victim.transport.abort()
        self._warn(newest.loop.time())

    def close_late(self, now: float) -> None:
        """Aborts connections that did not send a complete request in time: headers within 10 seconds, the
        body within 60. An upload may take longer if its client keeps sending."""
        late = [
            connection
            for connection, since in self._waiting.items()
            if now - _waiting_since(connection, since) >= _request_timeout(connection)
        ]
        for connection in late:
            self.untrack(connection)
            connection.transport.abort()

    def _warn(self, now: float) -> None:
        if now - self._warned >= _WARN_INTERVAL_SECONDS:
            self._warned = now
            logging.getLogger("tidemill").warning(
                "%d connections are open, the limit: new ones replace those that wait longest for a complete "
                "request; raise the limit of open files (ulimit -n), or use a reverse proxy",
                self.max_connections,
            )


_Protocol: Any = AutoHTTPProtocol


class _LimitedProtocol(_Protocol):  # type: ignore[misc]  # uvicorn picks it by what is installed
    limits: ConnectionLimiter

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.limits.track_waiting(self)
        self.limits.evict_oldest(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.limits.untrack(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # A WebSocket changes its protocol here and is no longer one of these connections.
        if _has_whole_request(self) or self not in self.connections:
            self.limits.untrack(self)

    def on_response_complete(self) -> None:
        if not self.transport.is_closing():
            self.limits.track_waiting(self)
        super().on_response_complete()
        if _has_whole_request(self):  # the next request arrived before the response was complete
            self.limits.untrack(self)


def _is_answered(connection: Any) -> bool:
    return connection.cycle is None or connection.cycle.response_complete


def _has_whole_request(connection: Any) -> bool:
    return not _is_answered(connection) and not connection.cycle.more_body


def _is_uploading(connection: Any) -> bool:
    return not _is_answered(connection) and UPLOAD_WAIT_KEY in connection.cycle.scope["state"]


def _waiting_since(connection: Any, since: float) -> float:
    """Returns when the connection began to wait for its client. `since` is the result unless the connection
    has an upload."""
    if not _is_uploading(connection):
        return since
    waiting_since: float = connection.cycle.scope["state"][UPLOAD_WAIT_KEY]
    return waiting_since


def _request_timeout(connection: Any) -> float:
    return MAX_HEAD_SECONDS if _is_answered(connection) else MAX_BODY_SECONDS
