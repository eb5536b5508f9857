"""`File` responses over real HTTP: ranges, conditions, HEAD, paths that leave the folder, memory."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import httpx2
import pytest
from obstore.store import LocalStore, MemoryStore

from tests.web.file_server import MIB, FileServer, resident_bytes
from tidemill.errors import ConfigurationError
from tidemill.http_routes.routes import Role, Route
from tidemill.web import File, Upload
from tidemill.web.api.openapi import openapi_document
from tidemill.web.file_contents import FILE_CHUNK_BYTES, FileChangedError, FolderContent, open_content

CONTENT = bytes(range(256)) * 40
SIZE = len(CONTENT)


@pytest.fixture(params=["folder", "local store", "memory store"])
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FileServer]:
    folder = tmp_path / "media"
    (folder / "deep").mkdir(parents=True)
    store: Any = None if request.param == "folder" else LocalStore(str(folder))
    if request.param == "memory store":
        store = MemoryStore()
    server = FileServer(folder, store)
    for name, content in {"song.mp3": CONTENT, "deep/a b.txt": b"deep", "empty.bin": b""}.items():
        if isinstance(store, MemoryStore):
            await store.put_async(name, content)
        else:
            (folder / name).write_bytes(content)
    async with server.serve():
        yield server


@pytest.fixture
async def folder_server(tmp_path: Path) -> AsyncIterator[FileServer]:
    folder = tmp_path / "media"
    folder.mkdir()
    (folder / "song.mp3").write_bytes(CONTENT)
    async with FileServer(folder).serve() as server:
        yield server


async def test_a_file_is_sent_with_its_headers(server: FileServer) -> None:
    answer = await server.get()
    assert (answer.status_code, answer.content) == (200, CONTENT)
    headers = answer.headers
    assert (headers["content-type"], headers["content-length"]) == ("audio/mpeg", str(SIZE))
    assert (headers["accept-ranges"], headers["x-content-type-options"]) == ("bytes", "nosniff")
    assert headers["etag"].startswith('"')
    assert headers["last-modified"].endswith("GMT")
    assert headers["cache-control"] == "private, no-cache"
    assert headers["content-security-policy"].endswith("sandbox")
    assert "content-disposition" not in headers
    assert (await server.get("deep/a%20b.txt")).content == b"deep"
    empty = await server.get("empty.bin")
    assert (empty.status_code, empty.content, empty.headers["content-length"]) == (200, b"", "0")


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=0-", 0, SIZE),
        ("bytes=100-199", 100, 200),
        ("bytes=-7", SIZE - 7, SIZE),
        (f"bytes=-{SIZE + 5}", 0, SIZE),
        (f"bytes={SIZE - 1}-", SIZE - 1, SIZE),
        (f"bytes=5-{10**17}", 5, SIZE),
        ("BYTES= 5-6", 5, 7),
    ],
)
async def test_a_range_is_sent_alone(server: FileServer, asked: str, start: int, end: int) -> None:
    for method in ("GET", "HEAD"):
        answer = await server.get(method=method, range=asked)
        assert answer.status_code == 206
        assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/{SIZE}"
        assert answer.headers["content-length"] == str(end - start)
        assert answer.content == (CONTENT[start:end] if method == "GET" else b"")


@pytest.mark.parametrize("asked", [f"bytes={SIZE}-", f"bytes={SIZE}-{SIZE + 9}", "bytes=-0"])
async def test_an_unsatisfiable_range_is_refused(server: FileServer, asked: str) -> None:
    answer = await server.get(range=asked)
    assert (answer.status_code, answer.headers["content-range"]) == (416, f"bytes */{SIZE}")
    assert answer.json()["field"] == "range"
    assert (await server.get("empty.bin", range="bytes=0-")).status_code == 416


@pytest.mark.parametrize(
    "asked", ["bytes=5-4", "bytes=-", "bytes=a-b", "lines=1-2", "bytes=0-1,5-6", "bytes", "bytes=1--2"]
)
async def test_other_ranges_are_ignored(server: FileServer, asked: str) -> None:
    answer = await server.get(range=asked)
    assert (answer.status_code, len(answer.content)) == (200, SIZE)


async def test_a_known_version_is_not_sent_again(server: FileServer) -> None:
    first = await server.get()
    etag, modified = first.headers["etag"], first.headers["last-modified"]
    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        for method in ("GET", "HEAD"):
            answer = await server.get(method=method, if_none_match=known, range="bytes=0-5")
            assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
    assert (await server.get(if_none_match='"other"', if_modified_since=modified)).status_code == 200
    assert (await server.get(if_modified_since=modified)).status_code == 304
    assert (await server.get(if_modified_since=formatdate(0, usegmt=True))).status_code == 200
    assert (await server.get(if_modified_since="yesterday")).status_code == 200


async def test_if_range_continues_only_the_same_version(server: FileServer) -> None:
    first = await server.get()
    etag, modified = first.headers["etag"], first.headers["last-modified"]
    for same in (etag, modified):
        assert (await server.get(range="bytes=5-9", if_range=same)).content == CONTENT[5:10]
    for other in ('"other"', f"W/{etag}", formatdate(0, usegmt=True), "never"):
        assert (await server.get(range="bytes=5-9", if_range=other)).content == CONTENT


async def test_head_sends_the_headers_of_get(server: FileServer) -> None:
    got, head = await server.get(), await server.get(method="HEAD")
    assert (head.status_code, head.content) == (200, b"")
    varying = ("date", "ratelimit", "x-ratelimit")
    kept = {name: value for name, value in got.headers.items() if not name.startswith(varying)}
    assert {name: head.headers.get(name) for name in kept} == kept


async def test_a_download_has_a_name_and_more_headers(server: FileServer) -> None:
    server.options = {
        "filename": 'Tür "1"\r\n.mp3',
        "media_type": "audio/x-own",
        "headers": {"Cache-Control": "public, max-age=60", "X-Own": "1"},
    }
    headers = (await server.get()).headers
    assert headers["content-type"] == "audio/x-own"
    assert headers["content-disposition"] == (
        "attachment; filename=\"T_r _1___.mp3\"; filename*=UTF-8''T%C3%BCr%20%221%22%0D%0A.mp3"
    )
    assert (headers["cache-control"], headers["x-own"]) == ("public, max-age=60", "1")


OUTSIDE = (
    "..%2Fsecret",
    "%2e%2e/secret",
    "deep/..%2F..%2Fsecret",
    "%2Fetc%2Fpasswd",
    "%5Csong",
    "deep//a.txt",
)
MISSING = ("nothing.mp3", "deep")


@pytest.mark.parametrize("name", [*OUTSIDE, *MISSING])
async def test_a_missing_or_outside_file_is_404(server: FileServer, name: str) -> None:
    (server.folder.parent / "secret").write_text("content of the secret")
    url = httpx2.URL(f"{server.url}/api/media/").copy_with(raw_path=f"/api/media/{name}".encode())
    answer = await server.client.get(url)
    assert answer.status_code == 404
    assert "content" not in answer.text


async def test_symbolic_links_lead_nowhere_outside(folder_server: FileServer) -> None:
    folder = folder_server.folder
    secret = folder.parent / "secret"
    secret.write_text("secret")
    (folder / "link").symlink_to(secret)
    (folder / "up").symlink_to(folder.parent)
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "inside").symlink_to(folder / "song.mp3")
    os.mkfifo(folder / "pipe")
    for name in ("link", "up/secret", "loop", "pipe", "up", "song.mp3/x", "a" * 300):
        assert (await folder_server.get(name)).status_code == 404, name
    assert (await folder_server.get("inside")).content == CONTENT


async def test_a_link_that_appears_while_a_file_is_sent_is_not_followed(tmp_path: Path) -> None:
    """The link leads to the same file, which was moved out of the folder."""
    (tmp_path / "media" / "deep").mkdir(parents=True)
    (tmp_path / "media" / "deep" / "song.mp3").write_bytes(CONTENT)
    content = await open_content(File("deep/song.mp3", folder=tmp_path / "media"))
    assert b"".join([chunk async for chunk in content.chunks(0, SIZE)]) == CONTENT
    (tmp_path / "media" / "deep").rename(tmp_path / "outside")
    (tmp_path / "media" / "deep").symlink_to(tmp_path / "outside")
    with pytest.raises(FileChangedError, match="was removed while it was sent"):
        await anext(content.chunks(0, SIZE))


async def test_a_folder_that_is_itself_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "song.mp3").write_bytes(CONTENT)
    (tmp_path / "media").symlink_to(tmp_path / "real")
    async with FileServer(tmp_path / "media").serve() as server:
        assert (await server.get()).content == CONTENT


async def test_files_need_the_role_and_an_allowed_origin(folder_server: FileServer) -> None:
    for method in ("GET", "HEAD"):
        async with httpx2.AsyncClient() as stranger:
            plain = await stranger.request(method, f"{folder_server.url}/api/media/song.mp3")
        assert plain.status_code == 401
        assert (await folder_server.get(method=method, origin="https://elsewhere.example")).status_code == 403


async def open_slow_reader(server: FileServer, name: str) -> tuple[Any, Any]:
    """Opens a connection that reads only when the test does, with a small buffer."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    listening.setblocking(False)
    host, port = httpx2.URL(server.url).host, httpx2.URL(server.url).port
    await asyncio.get_running_loop().sock_connect(listening, (host, port))
    reader, writer = await asyncio.open_connection(sock=listening, limit=64 * 1024)
    head = f"GET /api/media/{name} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
    head += f"authorization: {server.headers['authorization']}\r\n\r\n"
    writer.write(head.encode())
    return reader, writer


@pytest.mark.parametrize("change", ["remove", "cut", "replace"])
async def test_a_file_that_changes_while_it_is_sent_ends_the_connection(
    folder_server: FileServer, change: str
) -> None:
    """The client receives fewer bytes than announced, never bytes of another file."""
    path, size = folder_server.folder / "long.bin", 40 * MIB
    path.write_bytes(b"a" * size)
    reader, writer = await open_slow_reader(folder_server, "long.bin")
    head = await reader.readuntil(b"\r\n\r\n")
    assert f"content-length: {size}".encode() in head.lower()
    if change == "remove":
        path.unlink()
    elif change == "cut":
        os.truncate(path, 10)
    else:
        other = path.with_name("other.bin")
        other.write_bytes(b"b" * size)
        other.replace(path)
    received = await reader.read(-1)
    writer.close()
    assert len(received) < size
    assert b"b" not in received


async def test_a_large_file_stays_out_of_memory(folder_server: FileServer) -> None:
    """200 MB to a fast reader, while a slow one has stopped reading."""
    path, size = folder_server.folder / "long.bin", 200 * MIB
    with path.open("wb") as file:
        file.truncate(size)
    reader, writer = await open_slow_reader(folder_server, "long.bin")
    await reader.readuntil(b"\r\n\r\n")
    received = peak = 0
    before = resident_bytes()
    async with folder_server.client.stream("GET", "/api/media/long.bin") as answer:
        async for chunk in answer.aiter_raw(FILE_CHUNK_BYTES):
            received += len(chunk)
            peak = max(peak, resident_bytes())
    writer.close()
    assert received == size
    assert peak - before < 30 * MIB


async def test_a_reader_that_leaves_ends_the_reading(
    folder_server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, plain = asyncio.Event(), FolderContent.chunks

    async def watched(self: FolderContent, start: int, end: int) -> AsyncIterator[bytes]:
        try:
            async for chunk in plain(self, start, end):
                yield chunk
        finally:
            ended.set()

    monkeypatch.setattr(FolderContent, "chunks", watched)
    with (folder_server.folder / "long.bin").open("wb") as file:
        file.truncate(40 * MIB)
    reader, writer = await open_slow_reader(folder_server, "long.bin")
    await reader.readuntil(b"\r\n\r\n")
    writer.transport.abort()
    async with asyncio.timeout(10):
        await ended.wait()


def test_a_file_names_its_place_and_one_line_headers() -> None:
    with pytest.raises(ConfigurationError, match="give either folder or store, not neither"):
        File("a")
    with pytest.raises(ConfigurationError, match="give either folder or store, not both"):
        File("a", folder="/srv", store=MemoryStore())
    with pytest.raises(ConfigurationError, match="a header of a File must be one line"):
        File("a", folder="/srv", headers={"x-own": "1\r\nset-cookie: a=b"})


async def _nothing(_: object) -> None: ...


def test_the_openapi_document_describes_files_and_uploads() -> None:
    upload = Upload(max_bytes=5, media_types=("audio/*",))
    options: Any = {"role": Role.OPERATOR, "handler": _nothing, "summary": "A file."}
    routes = [
        Route(method="GET", path="/api/songs/file", response=File, **options),
        Route(method="PUT", path="/api/songs/file", body=upload, **options),
        Route(method="POST", path="/api/songs/file", body=Upload(max_bytes=5), **options),
    ]
    found = openapi_document(routes)["paths"]["/api/songs/file"]
    binary = {"schema": {"type": "string", "format": "binary"}}
    assert found["get"]["responses"]["200"]["content"] == {"*/*": binary}
    assert {"206", "304", "404", "416"} <= found["get"]["responses"].keys()
    assert found["put"]["requestBody"] == {"required": True, "content": {"audio/*": binary}}
    assert found["post"]["requestBody"]["content"] == {"*/*": binary}
    assert {"413", "415"} <= found["put"]["responses"].keys()
