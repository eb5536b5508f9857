"""Uploads over real HTTP: streamed, limited in size, refused before they are read, aborted."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import httpx2
import pytest
import requests
from obstore.store import MemoryStore

from tests.web.asgi_client import HOST, send_request
from tests.web.file_server import MAX_UPLOAD_BYTES, MIB, FileServer, resident_bytes
from tidemill import Tidemill
from tidemill.auth.sessions import csrf_token
from tidemill.errors import ConfigurationError
from tidemill.http_routes.problems import HTTPError
from tidemill.http_routes.routes import Role, Route
from tidemill.web import Redirect, RouteRequest, Upload, UploadStream
from tidemill.web.asgi import Dashboard
from tidemill.web.connection_limits import MAX_BODY_SECONDS, ConnectionLimiter
from tidemill.web.uploads import UPLOAD_WAIT_KEY

AUDIO = {"content-type": "audio/mpeg"}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[FileServer]:
    async with FileServer(tmp_path).serve() as server:
        yield server


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def post(server: FileServer, content: Any, **headers: str) -> httpx2.Response:
    sent = {**AUDIO, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return await server.client.post("/api/files", content=content, headers=sent)


async def test_the_handler_receives_the_declared_values(server: FileServer) -> None:
    answer = await post(server, b"x" * 1000, content_disposition='attachment; filename="../a/Song 1.mp3"')
    assert answer.status_code == 200
    expected = {"name": "Song 1.mp3", "type": "audio/mpeg", "length": 1000, "received": 1000}
    assert answer.json() == expected
    answer = await post(server, pieces(b"x" * 10, b"y" * 20), content_type="text/plain; charset=utf-8")
    assert answer.json() == {"name": None, "type": "text/plain", "length": None, "received": 30}
    name = "attachment; filename*=UTF-8''%E6%AD%8C%00%0A.mp3"
    assert (await post(server, b"", content_disposition=name)).json()["name"] == "歌.mp3"


async def test_the_limit_holds_to_the_byte(server: FileServer) -> None:
    for content in (b"x" * MAX_UPLOAD_BYTES, pieces(b"x" * (MAX_UPLOAD_BYTES - 1), b"y")):
        assert (await post(server, content)).json()["received"] == MAX_UPLOAD_BYTES
    for content in (b"x" * (MAX_UPLOAD_BYTES + 1), pieces(b"x" * MAX_UPLOAD_BYTES, b"y")):
        answer = await post(server, content)
        assert (answer.status_code, "over" in answer.json()["detail"]) == (413, True)
    assert len(server.uploads) == 2


async def test_other_clients_receive_the_refusal_of_a_much_larger_file(server: FileServer) -> None:
    """The server discards what they have already begun to send, so the response is not lost."""
    headers, address = {**server.headers, **AUDIO}, f"{server.url}/api/files"
    async with aiohttp.ClientSession(headers=headers) as session:
        for _ in range(2):
            async with session.post(address, data=BytesIO(bytes(60 * MIB))) as refused:
                assert refused.status == 413
    answer = await asyncio.to_thread(
        requests.post, address, data=bytes(60 * MIB), headers=headers, timeout=60
    )
    assert answer.status_code == 413


async def raw_answer(server: FileServer, *headers: str) -> bytes:
    """Sends the head of an upload and no body. Returns the status line of the response."""
    url = httpx2.URL(server.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    lines = ["POST /api/files HTTP/1.1", f"host: {url.host}:{url.port}", *headers]
    lines.append(f"authorization: {server.headers['authorization']}")
    writer.write("\r\n".join([*lines, "", ""]).encode())
    async with asyncio.timeout(10):
        line = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return line


async def test_a_declared_length_over_the_limit_is_refused_before_the_body(server: FileServer) -> None:
    answer = await raw_answer(
        server, f"content-length: {MAX_UPLOAD_BYTES + 1}", "content-type: audio/mpeg", "expect: 100-continue"
    )
    assert b"413" in answer
    assert not server.reading.is_set()


async def test_another_content_type_is_refused_before_the_body(server: FileServer) -> None:
    assert b"415" in await raw_answer(server, "content-length: 100", "content-type: image/png")
    assert b"415" in await raw_answer(server, "content-length: 100")
    for form in ("multipart/form-data; boundary=x", "application/x-www-form-urlencoded"):
        answer = await server.client.put("/api/large/a", content=b"x", headers={"content-type": form})
        assert (answer.status_code, "without a form" in answer.json()["detail"]) == (415, True)
    assert not server.reading.is_set()


async def test_an_upload_needs_the_role_and_an_allowed_origin(server: FileServer) -> None:
    assert (await post(server, b"x", origin="https://elsewhere.example")).status_code == 403
    viewer = await server.app.auth.tokens.create("bob", Role.VIEWER)
    answer = await post(server, b"x", authorization=f"Bearer {viewer.secret}")
    assert answer.status_code == 403
    assert (await post(server, b"x", authorization="Bearer tm_1_1")).status_code == 401
    assert server.uploads == []


async def test_the_audit_log_has_name_and_size(server: FileServer) -> None:
    await post(server, b"x" * 5, content_disposition='attachment; filename="a.mp3"')
    await post(server, b"x" * (MAX_UPLOAD_BYTES + 1))
    [entry] = (await server.app.auth.audit.page()).entries
    assert entry.action == "POST /api/files"
    assert entry.details == {"filename": "a.mp3", "media_type": "audio/mpeg", "bytes": "5"}


async def test_a_large_upload_stays_out_of_memory(server: FileServer) -> None:
    size, block = 200 * MIB, b"x" * (256 * 1024)
    peak = 0
    before = resident_bytes()

    async def blocks() -> AsyncIterator[bytes]:
        nonlocal peak
        for _ in range(size // len(block)):
            peak = max(peak, resident_bytes())
            yield block

    answer = await server.client.put("/api/large/a", content=blocks(), timeout=60)
    assert answer.json()["received"] == size
    assert peak - before < 30 * MIB


async def test_an_aborted_upload_ends_its_handler(server: FileServer) -> None:
    url = httpx2.URL(server.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    head = f"PUT /api/large/a HTTP/1.1\r\nhost: {url.host}:{url.port}\r\ncontent-length: 1000000\r\n"
    writer.write(f"{head}authorization: {server.headers['authorization']}\r\n\r\n".encode() + b"x" * 1000)
    async with asyncio.timeout(10):
        await server.reading.wait()
        writer.transport.abort()
        await server.ended.wait()
    assert reader is not None
    [failure] = server.failures
    assert isinstance(failure, HTTPError)
    assert "ended the upload early" in str(failure)
    assert server.uploads == []
    assert (await server.app.auth.audit.page()).entries == ()


async def test_an_object_store_takes_the_stream(tmp_path: Path) -> None:
    store = MemoryStore()
    server = FileServer(tmp_path, store)

    @server.app.web.route(
        "PUT", "/api/media/{name:path}", role=Role.OPERATOR, summary="Add.", body=Upload(10**8)
    )
    async def put(request: RouteRequest) -> None:
        await store.put_async(request.path["name"], request.body)

    async with server.serve():
        content = bytes(range(256)) * 50_000
        assert (await server.client.put("/api/media/a/b.bin", content=content)).status_code == 204
        assert (await server.get("a/b.bin")).content == content


async def test_a_page_uploads_with_its_session_and_csrf_token() -> None:
    app, received = Tidemill("memory://"), list[UploadStream]()

    @app.web.route("POST", "/songs/add", role=Role.OPERATOR, summary="Add.", body=Upload(max_bytes=100))
    async def add(request: RouteRequest) -> Redirect:
        assert [chunk async for chunk in request.body] == [b"la"]
        received.append(request.body)
        return Redirect("/songs", "added")

    async with app:
        served = Dashboard(app).starlette
        token = (await app.auth.tokens.create("ann", Role.OPERATOR)).secret
        headers = {"content-type": "application/x-www-form-urlencoded", "origin": f"http://{HOST}"}
        answer = await send_request(
            served, "POST", "/sign-in", headers=headers, body=f"token={token}".encode()
        )
        cookie = answer.headers["set-cookie"].partition(";")[0]
        headers = {"cookie": cookie, "origin": f"http://{HOST}", **AUDIO}
        answer = await send_request(served, "POST", "/songs/add", headers=headers, body=b"la")
        assert (answer.status, answer.json["field"], received) == (403, "csrf", [])
        headers["x-csrf"] = csrf_token(cookie.partition("=")[2])
        answer = await send_request(served, "POST", "/songs/add", headers=headers, body=b"la")
        assert (answer.status, received[0].received) == (303, 2)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_bytes": 0}, "max_bytes: of an Upload must be a number of bytes above 0, is 0"),
        ({"max_bytes": True}, "max_bytes: of an Upload must be a number"),
        ({"max_bytes": 5, "media_types": "audio/*"}, "media_types: must be a tuple"),
        ({"max_bytes": 5, "media_types": ("Audio/*",)}, "media_types: must be like audio/mpeg or audio/*"),
        ({"max_bytes": 5, "media_types": ("mp3",)}, "media_types: must be like audio/mpeg"),
    ],
)
def test_a_wrong_upload_is_named(options: Any, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Upload(**options)
    assert str(caught.value).startswith(says)


async def _nothing(_: object) -> None: ...


@pytest.mark.parametrize(("method", "role"), [("GET", Role.ADMIN), ("POST", Role.PUBLIC)])
def test_an_upload_is_a_write_with_a_sign_in(method: Any, role: Role) -> None:
    with pytest.raises(ConfigurationError, match=r"^body: of (GET|POST) /up must not be an Upload"):
        Route(method=method, path="/up", role=role, handler=_nothing, summary="Up.", body=Upload(5))


class FakeConnection:
    """The state of a connection whose request has a body that is not complete."""

    def __init__(self, limiter: ConnectionLimiter, connections: set[Any], now: float) -> None:
        self.state: dict[str, Any] = {}
        self.aborted = False
        self.connections, self.loop, self.transport, self.cycle = connections, self, self, self
        self.response_complete, self.more_body, self.scope = False, True, {"state": self.state}
        self._now = now
        connections.add(self)
        limiter.track_waiting(self)

    def time(self) -> float:
        return self._now

    def abort(self) -> None:
        self.aborted = True


def test_an_upload_may_take_long_while_its_client_sends() -> None:
    limiter, connections = ConnectionLimiter(2), set[Any]()
    slow, uploads = (FakeConnection(limiter, connections, 0.0) for _ in range(2))
    uploads.state[UPLOAD_WAIT_KEY] = 900.0
    limiter.close_late(900.0 + MAX_BODY_SECONDS - 1)
    assert (slow.aborted, uploads.aborted) == (True, False)
    uploads.state[UPLOAD_WAIT_KEY] = math.inf  # the handler works
    limiter.close_late(10_000.0)
    assert not uploads.aborted
    uploads.state[UPLOAD_WAIT_KEY] = 10_000.0
    limiter.close_late(10_000.0 + MAX_BODY_SECONDS)
    assert uploads.aborted


def test_an_upload_is_not_evicted_for_new_connections() -> None:
    limiter, connections = ConnectionLimiter(2), set[Any]()
    uploads = FakeConnection(limiter, connections, 0.0)
    uploads.state[UPLOAD_WAIT_KEY] = 1.0
    waits, newest = FakeConnection(limiter, connections, 1.0), FakeConnection(limiter, connections, 2.0)
    limiter.evict_oldest(newest)
    assert [one.aborted for one in (uploads, waits, newest)] == [False, True, False]
