"""Serves a simulated provider over HTTP on 127.0.0.1.

    async with SimulatorServer(provider) as server:
        client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0)

`GET /` describes the simulator. `GET /simulator/requests` returns the request log as JSON, for tests in
another process."""

from __future__ import annotations

import asyncio
import logging
from typing import Self

import msgspec

from tidemill.testing.simulator.http_messages import (
    MalformedHTTP,
    SimulatorReply,
    SimulatorRequest,
    encode_reply,
    encode_response,
    encode_stream,
    read_request,
)
from tidemill.testing.simulator.provider import SIMULATOR_HEADERS, SimulatedProvider, SimulatorExchange
from tidemill.testing.simulator.request_log import RequestLog

SERVER_HOST = "127.0.0.1"


class SimulatorServer:
    """The HTTP server of a simulated provider, on 127.0.0.1. `port=0` chooses a free port; `url` has the
    result."""

    def __init__(self, provider: SimulatedProvider, *, port: int = 0) -> None:
        self.provider, self._port = provider, port
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        if self._server is None:
            raise RuntimeError("the server is not running; use it by `async with`")
        return f"http://{SERVER_HOST}:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve_connection, SERVER_HOST, self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
        try:
            while await self._serve_request(reader, writer):
                pass
        except ConnectionError:
            pass  # the caller has disconnected; a bill stays in the log
        except asyncio.CancelledError:
            pass  # the server is closing; asyncio would log a cancelled connection as an error
        finally:
            writer.close()

    async def _serve_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serves one request; returns whether the connection stays open."""
        try:
            request = await read_request(reader)
        except MalformedHTTP as error:
            writer.write(encode_reply(SimulatorReply(400, _json_headers(), {"error": str(error)})))
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
                writer.write(
                    encode_reply(
                        SimulatorReply(500, _json_headers(), {"error": f"the simulator failed: {error!r}"})
                    )
                )
                return False
            if served.answer is None:
                writer.transport.abort()
                return False
            pieces = encode_stream(request, served.answer) or [encode_reply(served.answer)]
            await _send_reply(served, pieces, reader, writer)
        await writer.drain()
        return request.headers.get("connection", "").lower() != "close"

    def _page(self, request: SimulatorRequest) -> bytes:
        if request.path == "/simulator/requests":
            return encode_response(200, _json_headers(), msgspec.json.encode(self.provider.request_log))
        if request.path == "/":
            quotas = ", ".join(f"{quota.amount} {quota.name}" for quota in self.provider.quotas)
            text = (
                f"This is a simulator of the {self.provider.dialect.name} API, part of tidemill. Its answers "
                f"are made up and nothing is paid for. It allows: {quotas}.\n"
            )
            return encode_response(
                200, {"content-type": "text/plain; charset=utf-8"} | SIMULATOR_HEADERS, text.encode()
            )
        return encode_reply(
            SimulatorReply(404, _json_headers(), {"error": f"there is nothing at {request.path}"})
        )


async def _send_reply(
    served: SimulatorExchange, pieces: list[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Sends the reply and marks its bill as answered. Raises ConnectionResetError if the caller has
    disconnected."""
    if reader.at_eof() or writer.is_closing():
        raise ConnectionResetError("the caller has gone")
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
    if served.bill is not None:
        served.bill.answered = True


def _json_headers() -> dict[str, str]:
    return {"content-type": "application/json"} | SIMULATOR_HEADERS


def parse_request_log(raw: bytes) -> RequestLog:
    """Parses the response of `GET /simulator/requests`."""
    return msgspec.json.decode(raw, type=RequestLog)
