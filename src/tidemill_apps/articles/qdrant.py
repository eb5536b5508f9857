"""Qdrant, by its address or in a folder of this machine, and in words when it cannot be used.

Both clients have the same methods; a call names one of them. The embedded one works on files, so it is called
in a thread of its own, and only one process at a time can have its folder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from tidemill import ConfigurationError, StoreUnavailable

if TYPE_CHECKING:
    from qdrant_client import AsyncQdrantClient, QdrantClient

PATIENCE = 30
"""Seconds a server has for one call."""


SETTING = "ARTICLES_QDRANT_"
"""Every sentence about vectors that cannot be used names one of the settings that begin so."""
_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class VectorsUnavailable(StoreUnavailable):
    """The vectors cannot be read or written now."""


class FolderTaken(VectorsUnavailable):
    """Another process has the folder, and may well embed."""


class Qdrant(Protocol):
    async def __call__(self, method: str, /, **arguments: Any) -> Any:
        """The client's method of that name."""

    async def close(self) -> None: ...


def qdrant(url: str, path: str, key: str = "") -> Qdrant:
    """By `url` when there is one, else in the folder `path`. Nothing is opened yet."""
    return Served(url, key) if url else Embedded(path)


class Served:
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
                f"set {SETTING}KEY to its key" if error.status_code in _REFUSED else f"{SETTING}URL names it"
            )
            raise VectorsUnavailable(
                f"Qdrant at {self._url} answered {error.status_code} to {method}: {_said(error)}; {remedy}"
            ) from error
        except ApiException as error:
            raise VectorsUnavailable(
                f"Qdrant at {self._url} cannot be reached: {error or type(error).__name__}; "
                f"start it, or set {SETTING}URL to where it is"
            ) from error

    async def close(self) -> None:
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    async def _client(self) -> AsyncQdrantClient:
        """Its package takes seconds to load, which an event loop does not have."""
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            await asyncio.to_thread(import_module, "qdrant_client")
            from qdrant_client import AsyncQdrantClient

            try:
                self._clients[loop] = AsyncQdrantClient(
                    url=self._url, api_key=self._key or None, timeout=PATIENCE, check_compatibility=False
                )
            except ValueError as error:
                raise ConfigurationError(
                    f"ARTICLES_QDRANT_URL: {self._url!r} is not an address ({error}); write it as "
                    "http://localhost:6333"
                ) from error
        return self._clients[loop]


class Embedded:
    def __init__(self, path: str) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, "qdrant")
        self._client: QdrantClient | None = None

    async def __call__(self, method: str, /, **arguments: Any) -> Any:
        return await self._in_thread(partial(self._call, method, arguments))

    async def close(self) -> None:
        await self._in_thread(self._close)

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        """To its end, also when nobody waits for it any more: half a write would be neither."""
        running = asyncio.get_running_loop().run_in_executor(self._thread, work)
        try:
            return await asyncio.shield(running)
        except OSError as error:
            raise VectorsUnavailable(
                f"the folder {self._path} cannot be used: {error}; name another one by {SETTING}PATH"
            ) from error

    def _call(self, method: str, arguments: dict[str, Any]) -> Any:
        if self._client is None:
            self._client = self._opened()
        return getattr(self._client, method)(**arguments)

    def _opened(self) -> QdrantClient:
        from qdrant_client import QdrantClient

        try:
            return QdrantClient(path=self._path)
        except RuntimeError as error:
            raise FolderTaken(
                f"the folder {self._path} is in use by another process, and only one at a time can have it; "
                "run one process, or a Qdrant server and name it by ARTICLES_QDRANT_URL"
            ) from error

    def _close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def _said(error: Any) -> str:
    return str(getattr(error, "content", b"")[:200], "utf-8", "replace")
