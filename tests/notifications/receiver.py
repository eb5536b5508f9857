"""A webhook receiver on loopback, and an application with a manual clock and real HTTP calls."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from tidemill import Tidemill
from tidemill.stores.memory import MemoryStore
from tidemill.testing import ManualClock, SeededEntropy

SECRET = "a secret of more than sixteen bytes".replace(" ", "-")


class ReceivedRequest(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Receiver:
    """An HTTP server that answers with `status`, or as `answers` writes. Between `stop` and `start` it
    refuses connections."""

    def __init__(self) -> None:
        self.port = 0  # chosen by the first start, then kept
        self.requests: list[ReceivedRequest] = []
        self.status = 204
        self.headers: dict[str, str] = {}
        self.reply_body = b""
        self.answers: Callable[[BaseHTTPRequestHandler], None] | None = None
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        ThreadingHTTPServer.allow_reuse_address = True
        self._server = server = ThreadingHTTPServer(("127.0.0.1", self.port), self._handler())
        self.port = server.server_port
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.requests.append(ReceivedRequest(self.path, headers, body))
                if receiver.answers is not None:
                    receiver.answers(self)
                    return
                self.send_response(receiver.status)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(receiver.reply_body)

            def log_message(self, *_: Any) -> None:
                """Suppresses the request log."""

        return Handler


class ForbiddenListener:
    """Listens at an address that webhooks may not call, and counts connections."""

    def __init__(self) -> None:
        self._ears = [_listening_socket(socket.AF_INET, "127.0.0.1", 0)]
        self.port = self._ears[0].getsockname()[1]
        self._ears.append(_listening_socket(socket.AF_INET6, "::1", self.port))

    @property
    def called(self) -> int:
        """Returns the number of connections; they queue in the kernel without an accept."""
        found = 0
        for ear in self._ears:
            while True:
                try:
                    ear.accept()[0].close()
                except BlockingIOError:
                    break
                found += 1
        return found

    def close(self) -> None:
        for ear in self._ears:
            ear.close()


def _listening_socket(family: int, address: str, port: int) -> socket.socket:
    ear = socket.socket(family, socket.SOCK_STREAM)
    ear.setblocking(False)
    ear.bind((address, port))
    ear.listen()
    return ear


def make_app(clock: ManualClock) -> Tidemill:
    return Tidemill(store=MemoryStore(clock=clock, entropy=SeededEntropy()), clock=clock)


async def run_worker_until_idle(app: Tidemill) -> None:
    """Runs a worker until it has nothing left to do."""
    await app.worker(until_idle=True, heartbeat_thread=False, isolation=False, grace=0).run()


async def advance_time(app: Tidemill, clock: ManualClock, seconds: float, step: float = 15.0) -> None:
    while seconds > 0:
        clock.advance(min(step, seconds))
        seconds -= step
        await run_worker_until_idle(app)


async def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Waits for a condition that another thread or process makes true."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the other side cannot set an event
            await asyncio.sleep(0.01)
