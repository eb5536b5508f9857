"""Fetches one feed over HTTP, within limits of time, size and redirects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from types import TracebackType
from typing import Self

import msgspec
from aiohttp.abc import AbstractResolver


class FetchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of each fetch.

    - `seconds`: for all hops together, without the time that `before_hop` waits.
    - `max_bytes`: of the decompressed body.
    - `allowed_addresses`: networks (10.0.0.0/8), hosts or host:port that are fetched although they are not
      public."""

    seconds: float = 30.0
    max_bytes: int = 10_000_000
    max_redirects: int = 5
    user_agent: str
    allowed_addresses: tuple[str, ...] = ()


class FetchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The URL to fetch, with the validators of the last answer."""

    url: str
    etag: str | None = None
    last_modified: str | None = None


class FetchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The last answer of a fetch.

    - `url`: the URL that answered, after all redirects.
    - `body`: the decompressed body of a 2xx answer; None for any other status.
    - `etag`, `last_modified`: exactly as the server sent them.
    - `permanent_url`: the URL after the redirects if each of them was a 301 or 308; None otherwise.
    - `retry_after`: seconds that the server asks to wait.
    - `max_age`: seconds for which the answer is fresh.
    - `headers`: the headers by their lower-case names."""

    status: int
    url: str
    body: bytes | None
    content_type: str | None
    etag: str | None
    last_modified: str | None
    permanent_url: str | None
    retry_after: float | None
    max_age: float | None
    headers: Mapping[str, str]


class FetchErrorKind(StrEnum):
    """Why a fetch got no answer."""

    DNS = "dns"
    CONNECT = "connect"
    RESET = "reset"
    TLS = "tls"
    TIMEOUT = "timeout"
    TOO_LARGE = "too_large"
    REDIRECTS = "redirects"
    BLOCKED = "blocked"
    PROTOCOL = "protocol"
    INVALID_URL = "invalid_url"


class FetchError(Exception):
    """Raised if a fetch gets no usable answer. `text` is a sentence for people."""

    def __init__(self, kind: FetchErrorKind, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text

    @property
    def retryable(self) -> bool:
        """True if another attempt a few seconds later may succeed."""
        return self.kind in _RETRYABLE_KINDS


_RETRYABLE_KINDS = frozenset(
    {FetchErrorKind.DNS, FetchErrorKind.CONNECT, FetchErrorKind.RESET, FetchErrorKind.TIMEOUT}
)


class Fetcher:
    """Fetches feeds. Use it as an async context manager, one for each event loop.

    `resolver` looks up host names; None for the resolver of the system."""

    def __init__(self, limits: FetchLimits, *, resolver: AbstractResolver | None = None) -> None:
        self._limits = limits
        self._resolver = resolver

    async def __aenter__(self) -> Self:
        raise NotImplementedError

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        raise NotImplementedError

    async def fetch(self, request: FetchRequest, before_hop: Callable[[str], Awaitable[None]]) -> FetchAnswer:
        """Fetches one URL and follows its redirects. Answers with an HTTP error status are returned.

        Awaits `before_hop(url)` before each redirect is followed, so that the caller can wait for the rate
        limit of that site. Raises FetchError if there is no usable answer."""
        raise NotImplementedError
