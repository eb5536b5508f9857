"""One POST, bounded in time and in size. Redirects are not followed: each would be another address."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple

from tidemill.telling.addresses import Allowed, Place, Target, resolve, target_of
from tidemill.tls import client_context

LARGEST_ANSWER = 64 * 1024
ADDRESSES_TRIED = 3


class Answer(NamedTuple):
    status: int
    body: bytes
    retry_after: str | None

    @property
    def accepted(self) -> bool:
        return 200 <= self.status < 300  # noqa: PLR2004 - what HTTP calls a success


def post(
    url: str, body: bytes, headers: Mapping[str, str], *, timeout: float, allowed: Allowed | None
) -> Answer:
    """Blocks for `timeout` seconds at most, but for the look-up of a name. Raises OSError when nobody
    answers, AddressRefused when nobody may be asked. `allowed` None: whoever set the address may call
    anybody."""
    target = target_of(url)
    connection = _Pinned(target, _places(target, allowed), timeout)
    with connection.cut_in_time():
        try:
            connection.request("POST", target.path, body, {**_ALWAYS, **headers})
            answer = connection.getresponse()
            return Answer(answer.status, answer.read(LARGEST_ANSWER), answer.getheader("retry-after"))
        except (http.client.HTTPException, OSError) as error:
            if connection.was_cut:
                raise TimeoutError(f"no whole answer within {timeout:g} seconds") from None
            if isinstance(error, OSError):
                raise
            raise ConnectionError(f"the answer is no HTTP: {type(error).__name__}") from None


def _places(target: Target, allowed: Allowed | None) -> list[Place]:
    everybody = Allowed.of(("0.0.0.0/0", "::/0"))
    return resolve(target, everybody if allowed is None else allowed)[:ADDRESSES_TRIED]


class _Pinned(http.client.HTTPConnection):
    """Connects to the addresses it is given, whatever its host's name means by now."""

    def __init__(self, target: Target, places: list[Place], timeout: float) -> None:
        super().__init__(target.host, target.port, timeout=timeout)
        self._target, self._places = target, places
        self._seconds = timeout
        self.sock: socket.socket | None = None
        self.was_cut = False

    def connect(self) -> None:
        self.sock = self._connected()
        if self.was_cut:  # when there was nothing to cut yet
            raise TimeoutError
        if self._target.scheme == "https":
            self.sock = client_context().wrap_socket(
                self.sock, server_hostname=self._target.host, do_handshake_on_connect=False
            )
            self.sock.do_handshake()  # apart, so that it can be cut too

    @contextmanager
    def cut_in_time(self) -> Iterator[None]:
        """Who sends a byte now and then keeps every single read from timing out."""
        timer = threading.Timer(self._seconds, self._cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self.close()

    def _connected(self) -> socket.socket:
        failed: OSError = ConnectionError(f"{self._target.host} has no address")
        for place in self._places:
            raw = socket.socket(place.family, socket.SOCK_STREAM)
            raw.settimeout(self._seconds / len(self._places))
            try:
                raw.connect(place.address)
            except OSError as error:
                raw.close()
                failed = error
            else:
                raw.settimeout(self._seconds)
                return raw
        raise failed

    def _cut(self) -> None:
        self.was_cut = True
        if (here := self.sock) is not None:
            with suppress(OSError):  # closed meanwhile
                socket.socket.shutdown(here, socket.SHUT_RDWR)  # TLS has another, for those who read


_ALWAYS = {"Content-Type": "application/json", "User-Agent": "Tidemill", "Connection": "close"}
