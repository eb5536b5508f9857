"""The server in which the dashboard runs, beside whatever else this process does."""

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
from tidemill.web.connections import Connections
from tidemill.web.serving import Server
from tidemill.web.sockets import SLOW

TRIED = 20
"""So many ports from the usual one on, when nobody said which."""
LEAVE = 1
"""Seconds that a request under way is given when the server stops; streams end at once."""

HEARD = 64 * 1024
"""Bytes of a message by WebSocket, which nobody reads: longer ones end the connection."""


_LOG = logging.getLogger("uvicorn.error")
_ANSWERED = "ASGI callable returned without completing handshake."
"""uvicorn calls it an error that a handshake was answered with a response: anybody could fill the log."""


class _Quiet(uvicorn.Server):
    """Signals are for whoever runs it: a worker may have to drain first."""

    def __init__(self, config: uvicorn.Config, connections: Connections) -> None:
        super().__init__(config)
        self._connections = connections

    async def on_tick(self, counter: int) -> bool:
        self._connections.close_late(asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def served(app: Tidemill, listening: socket.socket) -> AsyncIterator[None]:
    """The dashboard answers on that socket while the block runs."""
    server, connections = Server(app), Connections()
    config = uvicorn.Config(
        server.starlette,
        http=connections.protocol,
        backlog=connections.accepted_at_once,
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=bool(app.settings.value("web.proxies")),
        forwarded_allow_ips=list(app.settings.value("web.proxies")),
        timeout_graceful_shutdown=LEAVE,
        ws_max_size=HEARD,
        ws_per_message_deflate=False,
    )
    runs = _Quiet(config, connections)
    _LOG.addFilter(_is_told)
    running = asyncio.create_task(runs.serve([listening]), name="tidemill web")
    counting = asyncio.create_task(app.tally.keep_telling(await app.client.store()), name="tidemill tally")
    try:
        yield
    finally:
        runs.should_exit = True
        server.close()
        await running
        counting.cancel()
        await asyncio.gather(counting, return_exceptions=True)
        _LOG.removeFilter(_is_told)


def _is_told(record: logging.LogRecord) -> bool:
    return record.msg != _ANSWERED


def listen(host: str, port: int, *, chosen: bool) -> socket.socket:
    """Bound before anything else begins: a port that is taken is told at once. One that nobody `chosen` may
    be the next free one."""
    for candidate in range(port, port + (1 if chosen else TRIED)):
        try:
            return _bound(host, candidate)
        except OSError as error:
            why = error
    field = "port" if why.errno in (errno.EADDRINUSE, errno.EACCES) else "host"
    raise ConfigurationError(
        f"{field}: {host}:{port} cannot be listened on ({why.strerror}); choose another with --{field}"
    )


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    found = socket.socket(family, kind, protocol)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _let_go_of_who_does_not_read(found)
        found.bind(address)
        found.listen(socket.SOMAXCONN)
    except BaseException:
        found.close()
        raise
    found.setblocking(False)
    return found


def _let_go_of_who_does_not_read(listening: socket.socket) -> None:
    """Nothing else ends a connection that somebody holds open without reading: what is to be sent first keeps
    it from being closed. Connections have it from the socket that listens; only Linux can."""
    if sys.platform == "linux":
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(SLOW * 1000))


def address_of(listening: socket.socket, host: str) -> str:
    """As a browser on this machine asks for it."""
    port = listening.getsockname()[1]
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}  # noqa: S104 - compared, not bound
    shown = everywhere.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}"
