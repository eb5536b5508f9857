"""A receiver on loopback, and an application whose time is moved by hand while its calls are real."""

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


class Received(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Receiver:
    """Answers with `status`, or as `answers` writes; between `stop` and `start` nobody is there."""

    def __init__(self) -> None:
        self.port = 0  # its own from the first start on
        self.got: list[Received] = []
        self.status = 204
        self.headers: dict[str, str] = {}
        self.said = b""
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
                receiver.got.append(Received(self.path, headers, body))
                if receiver.answers is not None:
                    receiver.answers(self)
                    return
                self.send_response(receiver.status)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(receiver.said)

            def log_message(self, *_: Any) -> None:
                """Nobody reads it."""

        return Handler


class Canary:
    """Listens where nobody may call, and counts who does."""

    def __init__(self) -> None:
        self._ears = [_listening(socket.AF_INET, "127.0.0.1", 0)]
        self.port = self._ears[0].getsockname()[1]
        self._ears.append(_listening(socket.AF_INET6, "::1", self.port))

    @property
    def called(self) -> int:
        """A connection waits to be accepted whether or not anybody accepts it."""
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


def _listening(family: int, address: str, port: int) -> socket.socket:
    ear = socket.socket(family, socket.SOCK_STREAM)
    ear.setblocking(False)
    ear.bind((address, port))
    ear.listen()
    return ear


def an_app(clock: ManualClock) -> Tidemill:
    return Tidemill(store=MemoryStore(clock=clock, entropy=SeededEntropy()), clock=clock)


async def work(app: Tidemill) -> None:
    """Everything that can be done now."""
    await app.worker(until_idle=True, heartbeat_thread=False, isolation=False, grace=0).run()


async def pass_time(app: Tidemill, clock: ManualClock, seconds: float, step: float = 15.0) -> None:
    while seconds > 0:
        clock.advance(min(step, seconds))
        seconds -= step
        await work(app)


async def until(said: Callable[[], bool], seconds: float = 10.0) -> None:
    """For what happens in another thread or process."""
    async with asyncio.timeout(seconds):
        while not said():  # noqa: ASYNC110 - nothing there could ring
            await asyncio.sleep(0.01)
