"""Only a connect error proves that nothing was sent."""

from __future__ import annotations

import socket
import ssl
from typing import Any

import pytest

from tests.feedback import shapes
from tidemill.feedback import read

NOW = 1_800_000_000.0


def sent(source: Any) -> str:
    return read(source, now=NOW).sent


@pytest.mark.parametrize(
    "error",
    [
        shapes.httpx_failure("ConnectError", shapes.refused_connection()),
        shapes.httpx_failure("ConnectError", shapes.refused_connection(), edition=""),
        shapes.httpx_failure("ConnectError", socket.gaierror(-2, "Name or service not known")),
        shapes.httpx_failure("ConnectError", ConnectionResetError(104, "reset while shaking hands")),
        shapes.httpx_failure("ConnectTimeout", TimeoutError("timed out")),
        shapes.httpx_failure("PoolTimeout"),
        shapes.sdk_failure("openai", shapes.httpx_failure("ConnectError", shapes.refused_connection())),
        shapes.sdk_failure("anthropic", shapes.httpx_failure("ConnectError", shapes.refused_connection())),
        shapes.aiohttp_refused(),
        shapes.requests_refused(),
        shapes.urllib_failure(shapes.refused_connection()),
        shapes.urllib_failure(socket.gaierror(-2, "Name or service not known")),
        shapes.refused_connection(),
        ssl.SSLCertVerificationError("certificate has expired"),
    ],
)
def test_a_connection_that_was_never_made(error: BaseException) -> None:
    assert sent(error) == "not sent"
    own = ValueError("could not ask")
    own.__cause__ = error
    assert sent(own) == "not sent"
    assert sent(ExceptionGroup("calls", [error, own])) == "not sent"


@pytest.mark.parametrize(
    "error",
    [
        shapes.httpx_failure("ReadTimeout", TimeoutError("timed out")),
        shapes.httpx_failure("WriteError"),
        shapes.httpx_failure("RemoteProtocolError"),
        shapes.sdk_failure("openai", shapes.httpx_failure("ReadTimeout"), "APITimeoutError"),
        shapes.sdk_failure("openai", shapes.httpx_failure("RemoteProtocolError")),
        shapes.aiohttp_reset(),
        shapes.requests_reset(),
        shapes.urllib_failure(ConnectionResetError(104, "reset")),
        TimeoutError(),
        ConnectionResetError(104, "reset"),
        ssl.SSLError("wrong version number"),
        ValueError("any other"),
        shapes.named("mine", "ConnectError")("a class of the same name"),
    ],
)
def test_all_else_is_unknown(error: BaseException) -> None:
    assert sent(error) == "unknown"


def test_a_connect_error_after_an_earlier_try_proves_nothing() -> None:
    """The first try timed out: it may have been billed."""
    first = shapes.httpx_failure("ReadTimeout", TimeoutError("timed out"))
    system = shapes.refused_connection()
    system.__context__ = first
    assert sent(shapes.httpx_failure("ConnectError", system)) == "unknown"


def test_a_context_alone_proves_nothing() -> None:
    own = ValueError("wrong answer")
    own.__context__ = shapes.httpx_failure("ConnectError", shapes.refused_connection())
    assert sent(own) == "unknown"


def test_one_of_a_group_that_may_have_been_sent_makes_it_unknown() -> None:
    errors = [shapes.refused_connection(), TimeoutError()]
    assert sent(ExceptionGroup("calls", errors)) == "unknown"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (200, "answered"),
        (429, "answered"),
        (500, "answered"),
        (502, "unknown"),
        (504, "unknown"),
        (524, "unknown"),
    ],
)
def test_a_gateway_does_not_know(status: int, expected: str) -> None:
    assert sent((status, {}, "")) == expected
    response = shapes.HttpxResponse(status, {}, {})
    assert sent(shapes.status_error(response)) == expected
