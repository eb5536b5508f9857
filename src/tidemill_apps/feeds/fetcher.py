"""Fetches one feed over HTTP, within limits of time, size and redirects."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from http import HTTPStatus
from typing import Self
from urllib.parse import urljoin

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.http_exceptions import ContentEncodingError
from yarl import URL

from tidemill import AllowedAddresses
from tidemill_apps.feeds.addresses import (
    FeedAddress,
    InvalidFeedUrl,
    PrivateAddress,
    check_address,
    check_literal,
    parse_feed_url,
)
from tidemill_apps.feeds.answer_headers import max_age, retry_after
from tidemill_apps.feeds.sites import mask_url

ACCEPT = "application/atom+xml, application/rss+xml, application/feed+json, application/xml;q=0.9, */*;q=0.8"
_PERMANENT_REDIRECTS = (301, 308)
_SUCCESSES = range(200, 300)
_REDIRECTS = (*_PERMANENT_REDIRECTS, 302, 303, 307)


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

    Each connection goes to an address that was checked just before. `resolver` looks up host names; None for
    the resolver of the system. Raises ConfigurationError if an allowed address is malformed."""

    def __init__(self, limits: FetchLimits, *, resolver: AbstractResolver | None = None) -> None:
        self._limits = limits
        self._allowed = AllowedAddresses.of(limits.allowed_addresses, setting="allowed_addresses")
        self._resolver = resolver
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        resolver = _CheckedResolver(self._resolver or aiohttp.ThreadedResolver(), self._allowed)
        # A connection is used once, so that each fetch checks the address again.
        connector = aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False, force_close=True, limit=0)
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=None),
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def fetch(self, request: FetchRequest, before_hop: Callable[[str], Awaitable[None]]) -> FetchAnswer:
        """Fetches one URL and follows its redirects. Answers with an HTTP error status are returned.

        Awaits `before_hop(url)` before each redirect is followed, so that the caller can wait for the rate
        limit of that site. Raises FetchError if there is no usable answer."""
        target, permanent, seconds = self._check_url(request.url), True, self._limits.seconds
        visited = [target.url]
        while True:
            started = time.monotonic()
            answer = await self._fetch_hop(target, request, seconds)
            if answer.status not in _REDIRECTS:
                moved = target.url if permanent and len(visited) > 1 else None
                return msgspec.structs.replace(answer, permanent_url=moved)
            seconds -= time.monotonic() - started
            permanent = permanent and answer.status in _PERMANENT_REDIRECTS
            target = self._redirect_target(answer, visited)
            visited.append(target.url)
            await before_hop(target.url)

    def _redirect_target(self, answer: FetchAnswer, visited: list[str]) -> FeedAddress:
        location = answer.headers.get("location")
        if not location:
            raise FetchError(FetchErrorKind.PROTOCOL, f"the redirect {answer.status} names no Location")
        if len(visited) > (limit := self._limits.max_redirects):
            raise FetchError(FetchErrorKind.REDIRECTS, f"there are more than {limit} redirects")
        try:
            target = self._check_url(urljoin(answer.url, location))
        except FetchError as error:
            raise FetchError(error.kind, f"the redirect cannot be followed; {error.text}") from None
        except ValueError:
            raise FetchError(FetchErrorKind.INVALID_URL, "the redirect leads to no URL") from None
        if target.url in visited:
            raise FetchError(FetchErrorKind.REDIRECTS, f"the redirects lead back to {mask_url(target.url)}")
        return target

    def _check_url(self, url: str) -> FeedAddress:
        try:
            target = parse_feed_url(url)
            check_literal(target, self._allowed)
        except InvalidFeedUrl as error:
            raise FetchError(FetchErrorKind.INVALID_URL, str(error)) from None
        except PrivateAddress as error:
            raise FetchError(FetchErrorKind.BLOCKED, str(error)) from None
        return target

    async def _fetch_hop(self, target: FeedAddress, request: FetchRequest, seconds: float) -> FetchAnswer:
        try:
            async with asyncio.timeout(max(seconds, 0)):
                return await self._exchange(target, request)
        except PrivateAddress as error:
            raise FetchError(FetchErrorKind.BLOCKED, str(error)) from None
        except TimeoutError:
            limit = f"{self._limits.seconds:g} seconds"
            raise FetchError(FetchErrorKind.TIMEOUT, f"there was no whole answer within {limit}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise _fetch_error(error, target) from error

    async def _exchange(self, target: FeedAddress, request: FetchRequest) -> FetchAnswer:
        """Sends one GET request and returns the answer, with its body if the status is 2xx."""
        if self._session is None:
            raise RuntimeError("use the fetcher as an async context manager")
        url = URL(target.url, encoded=True)  # byte for byte as it was checked
        headers = {"User-Agent": self._limits.user_agent, "Accept": ACCEPT, "Accept-Encoding": "gzip, br"}
        conditions = {"If-None-Match": request.etag, "If-Modified-Since": request.last_modified}
        validators = {name: value for name, value in conditions.items() if value is not None}
        async with self._session.get(url, headers=headers | validators, allow_redirects=False) as response:
            if response.status == HTTPStatus.NOT_MODIFIED and not validators:
                raise FetchError(FetchErrorKind.PROTOCOL, "the server answers 304 but was sent no validator")
            body = await self._read_body(response) if response.status in _SUCCESSES else None
            return _fetch_answer(response, target.url, body)

    async def _read_body(self, response: aiohttp.ClientResponse) -> bytes:
        """Reads the decompressed body. aiohttp decompresses a piece only after the one before was read."""
        body = bytearray()
        async for piece in response.content.iter_any():
            body += piece
            if len(body) > self._limits.max_bytes:
                limit = f"{self._limits.max_bytes / 1_000_000:g} MB"
                raise FetchError(FetchErrorKind.TOO_LARGE, f"the body has more than {limit}")
        return bytes(body)


class _CheckedResolver(AbstractResolver):
    """Resolves a name. Raises PrivateAddress if one of its addresses may not be fetched."""

    def __init__(self, resolver: AbstractResolver, allowed: AllowedAddresses) -> None:
        self._resolver, self._allowed = resolver, allowed

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        target = FeedAddress("", host, port)
        results = await self._resolver.resolve(host, port, family)
        for result in results:
            check_address(target, result["host"], self._allowed)
        return results

    async def close(self) -> None:
        await self._resolver.close()


def _fetch_answer(response: aiohttp.ClientResponse, url: str, body: bytes | None) -> FetchAnswer:
    names = dict.fromkeys(name.lower() for name in response.headers)
    headers = {name: ", ".join(response.headers.getall(name)) for name in names}
    return FetchAnswer(
        status=response.status,
        url=url,
        body=body,
        content_type=headers.get("content-type"),
        etag=_validator(headers.get("etag")),
        last_modified=_validator(headers.get("last-modified")),
        permanent_url=None,
        retry_after=retry_after(response.status, headers, time.time()),
        max_age=max_age(headers),
        headers=headers,
    )


def _validator(value: str | None) -> str | None:
    """Returns a validator as it was sent, or None if it cannot be sent back byte for byte."""
    return value if value and value.isprintable() else None


def _fetch_error(error: Exception, target: FeedAddress) -> FetchError:
    """Returns the FetchError for an error of aiohttp or of the operating system."""
    where = target.host_and_port
    match error:
        case aiohttp.ClientConnectorDNSError():
            return FetchError(FetchErrorKind.DNS, f"the host name {target.host} was not found")
        case aiohttp.ClientSSLError() | aiohttp.ServerFingerprintMismatch():
            reason = str(error.__cause__ or error)[:200]
            return FetchError(FetchErrorKind.TLS, f"there is no trusted TLS connection to {where}; {reason}")
        case aiohttp.ClientConnectorError():
            reason = error.os_error.strerror or type(error.os_error).__name__
            return FetchError(FetchErrorKind.CONNECT, f"there is no connection to {where}; {reason}")
        case aiohttp.ClientPayloadError(__cause__=ContentEncodingError()):
            return FetchError(FetchErrorKind.PROTOCOL, "the body is not compressed as its header says")
        case aiohttp.ClientPayloadError():
            return FetchError(FetchErrorKind.RESET, f"{where} ended the body before its announced end")
        case aiohttp.ServerDisconnectedError() | OSError():
            return FetchError(FetchErrorKind.RESET, f"{where} closed the connection without an answer")
        case _:
            return FetchError(FetchErrorKind.PROTOCOL, f"the answer of {where} is no valid HTTP")
