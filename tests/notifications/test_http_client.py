"""A receiver cannot use more time or memory than the limits allow."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.notifications.receiver import Receiver
from tests.servers.certificates import Certificate
from tests.servers.proxy import Proxy
from tidemill.clock import SystemClock
from tidemill.notifications.address_policy import AllowedAddresses
from tidemill.notifications.http_client import MAX_RESPONSE_BYTES, post, run_in_thread

HERE = AllowedAddresses.of(["127.0.0.1"])


def test_a_receiver_that_sends_single_bytes_is_cut_off_by_the_timeout(receiver: Receiver) -> None:
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


def test_a_connection_made_after_the_timeout_is_cut_off(
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
    assert receiver.requests == []


def test_no_more_is_read_than_need_be(receiver: Receiver) -> None:
    receiver.status, receiver.reply_body = 200, b"x" * (4 * MAX_RESPONSE_BYTES)
    assert len(post(receiver.url, b"{}", {}, timeout=5, allowed=HERE).body) == MAX_RESPONSE_BYTES


def test_a_response_that_is_no_http_is_a_connection_error(receiver: Receiver) -> None:
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
        assert receiver.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.path))
        assert await asyncio.to_thread(call) == 204


LOOPBACK_ALLOWED = AllowedAddresses.of(["127.0.0.1"])

PROGRAM = """
import asyncio, time
from tidemill.notifications.http_client import run_in_thread

async def main():
    try:
        await asyncio.wait_for(run_in_thread(lambda: time.sleep(60)), 0.05)
    except TimeoutError:
        print("nobody waits")

asyncio.run(main())
"""


async def test_a_receiver_that_hangs_takes_no_thread_in_which_a_store_is_read(receiver: Receiver) -> None:
    over = threading.Event()

    def hangs(_: object) -> None:
        over.wait(30)

    receiver.answers = hangs
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    calls = [
        asyncio.create_task(
            run_in_thread(lambda: post(receiver.url, b"{}", {}, timeout=20, allowed=LOOPBACK_ALLOWED))
        )
        for _ in range(3)
    ]
    async with asyncio.timeout(10):
        assert await asyncio.to_thread(lambda: "read") == "read"
    over.set()
    await asyncio.gather(*calls, return_exceptions=True)


async def test_an_error_in_the_thread_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        await run_in_thread(lambda: 1 / 0)


def test_a_process_ends_though_a_call_does_not() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, timeout=30, check=True)
    assert ran.stdout == b"nobody waits\n"
