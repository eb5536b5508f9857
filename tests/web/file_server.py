"""An application with files and uploads on a real server."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from tidemill import Tidemill
from tidemill.http_routes.routes import Role
from tidemill.web import File, ObjectStore, RouteRequest, Upload
from tidemill.web.server import listen, serve_dashboard

MAX_UPLOAD_BYTES = 1_000_000
MIB = 1024 * 1024


def resident_bytes() -> int:
    """Returns how much memory this process uses."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


class FileServer:
    """Serves the files of a folder, and of an object store if there is one. `uploads` has the received files,
    `failures` the errors that a handler met while it read, `reading` is set when it has read a chunk."""

    def __init__(self, folder: Path, store: ObjectStore | None = None) -> None:
        self.app = Tidemill("memory://")
        self.folder, self.store = folder, store
        self.options: dict[str, Any] = {}
        self.uploads: list[dict[str, Any]] = []
        self.failures: list[Exception] = []
        self.reading, self.ended = asyncio.Event(), asyncio.Event()
        self.url = ""
        self.headers: dict[str, str] = {}
        self.client: httpx2.AsyncClient
        route = self.app.web.route
        route("GET", "/media/{name:path}", role=Role.VIEWER, summary="A file.", response=File)(self._get)
        route("GET", "/api/media/{name:path}", role=Role.VIEWER, summary="A file.", response=File)(self._get)
        small = Upload(max_bytes=MAX_UPLOAD_BYTES, media_types=("audio/*", "text/plain"))
        large = Upload(max_bytes=10**9)
        route("POST", "/api/files", role=Role.OPERATOR, summary="Add.", body=small)(self._post)
        route("PUT", "/api/large/{name}", role=Role.OPERATOR, summary="Add.", body=large)(self._post)

    async def _get(self, request: RouteRequest) -> File:
        place: Any = {"folder": self.folder} if self.store is None else {"store": self.store}
        return File(request.path["name"], **place, **self.options)

    async def _post(self, request: RouteRequest) -> dict[str, Any]:
        upload, digest = request.body, 0
        try:
            async for chunk in upload:
                digest += sum(chunk[:10])
                self.reading.set()
        except Exception as error:
            self.failures.append(error)
            raise
        finally:
            self.ended.set()
        found = {"name": upload.filename, "type": upload.media_type, "length": upload.length}
        self.uploads.append({**found, "received": upload.received})
        return self.uploads[-1]

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[FileServer]:
        with listen("127.0.0.1", 0, port_is_fixed=True) as found:
            self.url = f"http://127.0.0.1:{found.getsockname()[1]}"
            async with self.app, serve_dashboard(self.app, found):
                issued = await self.app.auth.tokens.create("ann", Role.OPERATOR)
                self.headers = {"authorization": f"Bearer {issued.secret}"}
                async with httpx2.AsyncClient(base_url=self.url, headers=self.headers) as self.client:
                    yield self

    async def get(self, name: str = "song.mp3", method: str = "GET", **headers: str) -> httpx2.Response:
        sent = {key.replace("_", "-"): value for key, value in headers.items()}
        return await self.client.request(method, f"/api/media/{name}", headers=sent)
