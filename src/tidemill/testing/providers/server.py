"""The same provider over real HTTP, on this machine only.

    async with Server(provider) as server:
        client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0)

`GET /` says what this is; `GET /simulator/ledger` are its books as JSON, for a test in another process.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Self

import msgspec

from tidemill.testing.providers.asked import Answer, Request
from tidemill.testing.providers.ledger import Ledger
from tidemill.testing.providers.provider import MADE_UP, Provider, Served
from tidemill.testing.providers.streams import streamed
from tidemill.testing.providers.wire import NotHTTP, encoded, read_request, written

HOST = "127.0.0.1"


class Server:
    """port 0: any that is free."""

    def __init__(self, provider: Provider, *, port: int = 0) -> None:
        self.provider, self._port = provider, port
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        if self._server is None:
            raise RuntimeError("the server is not running; use it by `async with`")
        return f"http://{HOST}:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, HOST, self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
        try:
            while await self._exchange(reader, writer):
                pass
        except ConnectionError:
            pass  # the caller has gone; what it was billed stays billed
        except asyncio.CancelledError:
            pass  # the server closes; asyncio would report a cancelled connection as an error
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; whether the connection goes on."""
        try:
            request = await read_request(reader)
        except NotHTTP as error:
            writer.write(written(Answer(400, _json(), {"error": str(error)})))
            return False
        if request is None:
            return False
        if request.method == "GET":
            writer.write(self._page(request))
        else:
            try:
                served = await self.provider.serve(request)
            except Exception as error:
                logging.getLogger("tidemill").exception("the simulated provider could not answer")
                writer.write(written(Answer(500, _json(), {"error": f"the simulator failed: {error!r}"})))
                return False
            if served.answer is None:
                writer.transport.abort()
                return False
            pieces = streamed(request, served.answer) or [written(served.answer)]
            await _deliver(served, pieces, reader, writer)
        await writer.drain()
        return request.headers.get("connection", "").lower() != "close"

    def _page(self, request: Request) -> bytes:
        if request.path == "/simulator/ledger":
            return encoded(200, _json(), msgspec.json.encode(self.provider.ledger))
        if request.path == "/":
            quotas = ", ".join(f"{quota.amount} {quota.name}" for quota in self.provider.quotas)
            text = (
                f"This is a simulator of the {self.provider.dialect.name} API, part of tidemill. Its answers "
                f"are made up and nothing is paid for. It allows: {quotas}.\n"
            )
            return encoded(200, {"content-type": "text/plain; charset=utf-8"} | MADE_UP, text.encode())
        return written(Answer(404, _json(), {"error": f"there is nothing at {request.path}"}))


async def _deliver(
    served: Served, pieces: list[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """A caller that hung up meanwhile never learns what it paid for."""
    if reader.at_eof() or writer.is_closing():
        raise ConnectionResetError("the caller has gone")
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
    if served.bill is not None:
        served.bill.answered = True


def _json() -> dict[str, str]:
    return {"content-type": "application/json"} | MADE_UP


def ledger_from(raw: bytes) -> Ledger:
    """What `GET /simulator/ledger` answered, as the books it came from."""
    return msgspec.json.decode(raw, type=Ledger)
