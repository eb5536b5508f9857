"""Clients of the vector database Qdrant: a server, or an embedded database in a folder.

Call a client with the name of a Qdrant method and its arguments. Only one process at a time can open the
folder of an embedded database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from tidemill import ConfigurationError, DependencyUnavailable, StoreUnavailable

if TYPE_CHECKING:
    from qdrant_client import AsyncQdrantClient, QdrantClient


CALL_TIMEOUT_SECONDS = 30
"""Timeout of one call to a server."""


SETTING_PREFIX = "ARTICLES_QDRANT_"
"""Every error message about vectors names a setting with this prefix."""
_AUTH_ERRORS = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


QDRANT = "Qdrant"
"""The name of the dependency in events, metrics and the status."""
UNAVAILABLE_RETRY_SECONDS = 15.0
"""Delay before articles are retried while vectors cannot be read or written."""


class VectorsUnavailable(DependencyUnavailable, StoreUnavailable):
    """The vectors cannot be read or written now. A job whose handler raises it waits for Qdrant, which costs
    no attempt and no call."""

    def __init__(self, problem: str) -> None:
        super().__init__(QDRANT, problem, retry_in=UNAVAILABLE_RETRY_SECONDS)

    def __str__(self) -> str:
        return self.problem


class QdrantFolderInUse(VectorsUnavailable):
    """Raised if another process has opened the folder. This says nothing about Qdrant's health: the other
    process may work normally."""


class QdrantCaller(Protocol):
    async def __call__(self, method: str, /, **arguments: Any) -> Any:
        """Calls the Qdrant client's method named `method` with these arguments, and returns its result."""

    async def close(self) -> None: ...


def open_qdrant(url: str, path: str, key: str = "") -> QdrantCaller:
    """Returns a client of the server at `url`, or of the folder `path` if `url` is empty. `key` is the
    server's API key. The client connects at its first call."""
    return QdrantServer(url, key) if url else EmbeddedQdrant(path)


class QdrantServer:
    def __init__(self, url: str, key: str) -> None:
        self._url, self._key = url, key
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncQdrantClient] = WeakKeyDictionary()

    async def __call__(self, method: str, /, **arguments: Any) -> Any:
        client = await self._client()
        from qdrant_client.http.exceptions import ApiException, UnexpectedResponse

        try:
            return await getattr(client, method)(**arguments)
        except UnexpectedResponse as error:
            remedy = (
                f"set {SETTING_PREFIX}KEY to its key"
                if error.status_code in _AUTH_ERRORS
                else f"{SETTING_PREFIX}URL names it"
            )
            raise VectorsUnavailable(
                f"Qdrant at {self._url} answered {error.status_code} to {method}: "
                f"{_error_text(error)}; {remedy}"
            ) from error
        except ApiException as error:
            raise VectorsUnavailable(
                f"Qdrant at {self._url} cannot be reached: {error or type(error).__name__}; "
                f"start it, or set {SETTING_PREFIX}URL to where it is"
            ) from error

    async def close(self) -> None:
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    async def _client(self) -> AsyncQdrantClient:
        """Returns the Qdrant client of the running event loop, and creates it if necessary. The package is
        imported in a thread, because the import takes seconds and would block the event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            await asyncio.to_thread(import_module, "qdrant_client")
            from qdrant_client import AsyncQdrantClient

            try:
                self._clients[loop] = AsyncQdrantClient(
                    url=self._url,
                    api_key=self._key or None,
                    timeout=CALL_TIMEOUT_SECONDS,
                    check_compatibility=False,
                )
            except ValueError as error:
                raise ConfigurationError(
                    f"ARTICLES_QDRANT_URL: {self._url!r} is not an address ({error}); write it as "
                    "http://localhost:6333"
                ) from error
        return self._clients[loop]


class EmbeddedQdrant:
    def __init__(self, path: str) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, "qdrant")
        self._client: QdrantClient | None = None

    async def __call__(self, method: str, /, **arguments: Any) -> Any:
        return await self._in_thread(partial(self._call, method, arguments))

    async def close(self) -> None:
        await self._in_thread(self._close)

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        """Runs `work` in the database's thread and returns its result. The work finishes even if the caller
        is cancelled, because a write must not stop halfway."""
        running = asyncio.get_running_loop().run_in_executor(self._thread, work)
        try:
            return await asyncio.shield(running)
        except OSError as error:
            raise VectorsUnavailable(
                f"the folder {self._path} cannot be used: {error}; name another one by {SETTING_PREFIX}PATH"
            ) from error

    def _call(self, method: str, arguments: dict[str, Any]) -> Any:
        if self._client is None:
            self._client = self._open()
        return getattr(self._client, method)(**arguments)

    def _open(self) -> QdrantClient:
        from qdrant_client import QdrantClient

        try:
            return QdrantClient(path=self._path)
        except RuntimeError as error:
            raise QdrantFolderInUse(
                f"the folder {self._path} is in use by another process, and only one at a time can have it; "
                "run one process, or a Qdrant server and name it by ARTICLES_QDRANT_URL"
            ) from error

    def _close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def _error_text(error: Any) -> str:
    return str(getattr(error, "content", b"")[:200], "utf-8", "replace")
