"""Runs the dashboard in a uvicorn server inside this process."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn

from tidemill.app import Tidemill
from tidemill.errors import ConfigurationError
from tidemill.web.asgi import Dashboard
from tidemill.web.connection_limits import ConnectionLimiter
from tidemill.web.streams import SEND_TIMEOUT_SECONDS

MAX_PORTS_TRIED = 20
"""Ports to try from the default one, if no port is configured."""
SHUTDOWN_SECONDS = 1
"""Seconds that running requests get when the server stops; streams end at once."""

MAX_WEBSOCKET_MESSAGE_BYTES = 64 * 1024
"""Messages from WebSocket clients are ignored; a longer one ends the connection."""


_UVICORN_LOG = logging.getLogger("uvicorn.error")
_REFUSED_HANDSHAKE_MESSAGE = "ASGI callable returned without completing handshake."
"""uvicorn logs a refused handshake as an error, so any client could fill the log."""


class _UvicornServer(uvicorn.Server):
    """A uvicorn server that does not handle signals; the process handles them. It closes connections that are
    too slow to send a request."""

    def __init__(self, config: uvicorn.Config, connections: ConnectionLimiter) -> None:
        super().__init__(config)
        self._connections = connections

    async def on_tick(self, counter: int) -> bool:
        self._connections.close_late(asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serve_dashboard(app: Tidemill, listening: socket.socket) -> AsyncIterator[None]:
    """Async context manager that serves the dashboard on the socket `listening` until its block ends."""
    served, connections = Dashboard(app), ConnectionLimiter()
    config = uvicorn.Config(
        served.starlette,
        http=connections.protocol,
        backlog=connections.accept_backlog,
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=bool(app.settings.value("web.proxies")),
        forwarded_allow_ips=list(app.settings.value("web.proxies")),
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        ws_max_size=MAX_WEBSOCKET_MESSAGE_BYTES,
        ws_per_message_deflate=False,
    )
    uvicorn_server = _UvicornServer(config, connections)
    _UVICORN_LOG.addFilter(_is_relevant)
    running = asyncio.create_task(uvicorn_server.serve([listening]), name="tidemill web")
    counting = asyncio.create_task(
        app.snapshot_writer.write_periodically(await app.client.store()), name="tidemill metrics"
    )
    try:
        yield
    finally:
        uvicorn_server.should_exit = True
        served.close()
        await running
        counting.cancel()
        await asyncio.gather(counting, return_exceptions=True)
        _UVICORN_LOG.removeFilter(_is_relevant)


def _is_relevant(record: logging.LogRecord) -> bool:
    return record.msg != _REFUSED_HANDSHAKE_MESSAGE


def listen(host: str, port: int, *, port_is_fixed: bool) -> socket.socket:
    """Returns a socket that listens on `host` and `port`. Raises ConfigurationError if no port can be used.

    `port_is_fixed=False`: up to 20 ports from `port` are tried."""
    for candidate in range(port, port + (1 if port_is_fixed else MAX_PORTS_TRIED)):
        try:
            return _bind(host, candidate)
        except OSError as error:
            last_error = error
    field = "port" if last_error.errno in (errno.EADDRINUSE, errno.EACCES) else "host"
    raise ConfigurationError(
        f"{field}: {host}:{port} cannot be listened on ({last_error.strerror}); choose another with --{field}"
    )


def _bind(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _set_send_timeout(listening)
        listening.bind(address)
        listening.listen(socket.SOMAXCONN)
    except BaseException:
        listening.close()
        raise
    listening.setblocking(False)
    return listening


def _set_send_timeout(listening: socket.socket) -> None:
    """Sets a socket option that closes a connection if its client does not read for 30 seconds. Accepted
    connections inherit the option. Only Linux has it."""
    if sys.platform == "linux":
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(SEND_TIMEOUT_SECONDS * 1000))


def browser_url(listening: socket.socket, host: str) -> str:
    """Returns the address for a browser on this machine."""
    port = listening.getsockname()[1]
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}  # noqa: S104 - compared, not bound
    shown = everywhere.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}"
