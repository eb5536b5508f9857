"""Sends one HTTP POST with a deadline, to an address that was checked before. Also runs a blocking call in a
thread."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

from tidemill.notifications.address_policy import (
    AllowedAddresses,
    SocketAddress,
    UrlTarget,
    parse_url,
    resolve_addresses,
)
from tidemill.tls import client_context

T = TypeVar("T")


async def run_in_thread(call: Callable[[], T]) -> T:
    """Runs a blocking call in a new thread and returns its result. Cancellation does not stop the thread."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            completion = answer.set_result, call()
        except BaseException as error:  # noqa: BLE001 - any error is passed to the caller
            completion = answer.set_exception, error  # type: ignore[assignment]
        with suppress(RuntimeError):  # the loop is closed; the result is dropped
            loop.call_soon_threadsafe(_complete_future, answer, *completion)

    threading.Thread(target=run, daemon=True, name="tidemill-call").start()
    return await answer


def _complete_future(answer: asyncio.Future[Any], complete: Callable[[Any], None], value: Any) -> None:
    if not answer.done():
        complete(value)


MAX_RESPONSE_BYTES = 64 * 1024
MAX_ADDRESSES_TRIED = 3


class PostResponse(NamedTuple):
    status: int
    body: bytes
    retry_after: str | None

    @property
    def accepted(self) -> bool:
        return 200 <= self.status < 300  # noqa: PLR2004 - the 2xx statuses


def post(
    url: str, body: bytes, headers: Mapping[str, str], *, timeout: float, allowed: AllowedAddresses | None
) -> PostResponse:
    """Sends one POST and returns the response. Blocks for at most `timeout` seconds, plus the DNS lookup.
    Raises OSError or AddressNotAllowed. `allowed=None` allows every address."""
    target = parse_url(url)
    connection = _PinnedConnection(target, _resolve_allowed(target, allowed), timeout)
    with connection.close_after_timeout():
        try:
            connection.request("POST", target.path, body, {**_DEFAULT_HEADERS, **headers})
            answer = connection.getresponse()
            return PostResponse(
                answer.status, answer.read(MAX_RESPONSE_BYTES), answer.getheader("retry-after")
            )
        except (http.client.HTTPException, OSError) as error:
            if connection.timed_out:
                raise TimeoutError(f"no whole answer within {timeout:g} seconds") from None
            if isinstance(error, OSError):
                raise
            raise ConnectionError(f"the answer is no HTTP: {type(error).__name__}") from None


def _resolve_allowed(target: UrlTarget, allowed: AllowedAddresses | None) -> list[SocketAddress]:
    any_address = AllowedAddresses.of(("0.0.0.0/0", "::/0"))
    return resolve_addresses(target, any_address if allowed is None else allowed)[:MAX_ADDRESSES_TRIED]


class _PinnedConnection(http.client.HTTPConnection):
    """A connection to one of the given addresses. It does not resolve the host name again."""

    def __init__(self, target: UrlTarget, addresses: list[SocketAddress], timeout: float) -> None:
        super().__init__(target.host, target.port, timeout=timeout)
        self._target, self._addresses = target, addresses
        self._seconds = timeout
        self.sock: socket.socket | None = None
        self.timed_out = False

    def connect(self) -> None:
        self.sock = self._connected()
        if self.timed_out:  # the timer fired before there was a socket to close
            raise TimeoutError
        if self._target.scheme == "https":
            self.sock = client_context().wrap_socket(
                self.sock, server_hostname=self._target.host, do_handshake_on_connect=False
            )
            self.sock.do_handshake()  # a separate step: the timer can interrupt it through `self.sock`

    @contextmanager
    def close_after_timeout(self) -> Iterator[None]:
        """Context manager that ends the connection after the timeout. The socket's own timeout is not enough,
        because it starts again with every byte that the server sends."""
        timer = threading.Timer(self._seconds, self._close_on_timeout)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self.close()

    def _connected(self) -> socket.socket:
        failed: OSError = ConnectionError(f"{self._target.host} has no address")
        for candidate in self._addresses:
            raw = socket.socket(candidate.family, socket.SOCK_STREAM)
            raw.settimeout(self._seconds / len(self._addresses))
            try:
                raw.connect(candidate.address)
            except OSError as error:
                raw.close()
                failed = error
            else:
                raw.settimeout(self._seconds)
                return raw
        raise failed

    def _close_on_timeout(self) -> None:
        self.timed_out = True
        if (sock := self.sock) is not None:
            with suppress(OSError):  # already closed
                # SSLSocket.shutdown would drop the TLS state while another thread reads.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)


_DEFAULT_HEADERS = {"Content-Type": "application/json", "User-Agent": "Tidemill", "Connection": "close"}
