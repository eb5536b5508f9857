"""A receiver takes no more of us than it should: neither time nor memory."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.servers.certificates import Certificate
from tests.servers.proxy import Proxy
from tests.telling.support import Receiver
from tidemill.clock import SystemClock
from tidemill.telling.addresses import Allowed
from tidemill.telling.posting import LARGEST_ANSWER, post

HERE = Allowed.of(["127.0.0.1"])


def test_who_sends_a_byte_now_and_then_is_cut_off(receiver: Receiver) -> None:
    over = threading.Event()

    def drips(handler: BaseHTTPRequestHandler) -> None:
        try:
            while not over.wait(0.05):
                handler.wfile.write(b"H")
                handler.wfile.flush()
        except OSError:
            over.set()

    receiver.answers = drips
    began = SystemClock().boot()
    with pytest.raises(TimeoutError, match="no whole answer within"):
        post(receiver.url, b"{}", {}, timeout=0.3, allowed=HERE)
    assert SystemClock().boot() - began < 5
    over.set()


def test_who_lets_us_in_when_the_time_is_over_is_cut_off(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    connect = socket.socket.connect

    def late(here: socket.socket, address: tuple[str, int]) -> None:
        over.wait(0.5)
        connect(here, address)

    monkeypatch.setattr(socket.socket, "connect", late)
    with pytest.raises(TimeoutError, match="no whole answer within"):
        post(receiver.url, b"{}", {}, timeout=0.1, allowed=HERE)
    assert receiver.got == []


def test_no_more_is_read_than_need_be(receiver: Receiver) -> None:
    receiver.status, receiver.said = 200, b"x" * (4 * LARGEST_ANSWER)
    assert len(post(receiver.url, b"{}", {}, timeout=5, allowed=HERE).body) == LARGEST_ANSWER


def test_what_is_no_http_is_an_error_like_any_other(receiver: Receiver) -> None:
    def greets(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"220 mail.example ESMTP\r\n")

    receiver.answers = greets
    with pytest.raises(ConnectionError, match="is no HTTP"):
        post(receiver.url, b"{}", {}, timeout=2, allowed=HERE)


async def test_tls_is_checked_against_the_name(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = Certificate(tmp_path)
    async with Proxy(receiver.port, tls=certificate.context()) as proxy:
        url = f"https://127.0.0.1:{proxy.port}/"

        def call() -> int:
            return post(url, b"{}", {}, timeout=5, allowed=HERE).status

        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.to_thread(call)
        assert receiver.got == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.path))
        assert await asyncio.to_thread(call) == 204
