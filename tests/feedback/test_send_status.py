"""Only a connect error proves that nothing was sent."""

from __future__ import annotations

import socket
import ssl
from typing import Any

import pytest

from tests.feedback import fake_responses
from tidemill.feedback import read_feedback

NOW = 1_800_000_000.0


def sent(source: Any) -> str:
    return read_feedback(source, now=NOW).sent


@pytest.mark.parametrize(
    "error",
    [
        fake_responses.httpx_failure("ConnectError", fake_responses.refused_connection()),
        fake_responses.httpx_failure("ConnectError", fake_responses.refused_connection(), edition=""),
        fake_responses.httpx_failure("ConnectError", socket.gaierror(-2, "Name or service not known")),
        fake_responses.httpx_failure("ConnectError", ConnectionResetError(104, "reset while shaking hands")),
        fake_responses.httpx_failure("ConnectTimeout", TimeoutError("timed out")),
        fake_responses.httpx_failure("PoolTimeout"),
        fake_responses.sdk_failure(
            "openai", fake_responses.httpx_failure("ConnectError", fake_responses.refused_connection())
        ),
        fake_responses.sdk_failure(
            "anthropic", fake_responses.httpx_failure("ConnectError", fake_responses.refused_connection())
        ),
        fake_responses.aiohttp_refused(),
        fake_responses.requests_refused(),
        fake_responses.urllib_failure(fake_responses.refused_connection()),
        fake_responses.urllib_failure(socket.gaierror(-2, "Name or service not known")),
        fake_responses.refused_connection(),
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
        fake_responses.httpx_failure("ReadTimeout", TimeoutError("timed out")),
        fake_responses.httpx_failure("WriteError"),
        fake_responses.httpx_failure("RemoteProtocolError"),
        fake_responses.sdk_failure("openai", fake_responses.httpx_failure("ReadTimeout"), "APITimeoutError"),
        fake_responses.sdk_failure("openai", fake_responses.httpx_failure("RemoteProtocolError")),
        fake_responses.aiohttp_reset(),
        fake_responses.requests_reset(),
        fake_responses.urllib_failure(ConnectionResetError(104, "reset")),
        TimeoutError(),
        ConnectionResetError(104, "reset"),
        ssl.SSLError("wrong version number"),
        ValueError("any other"),
        fake_responses.named("mine", "ConnectError")("a class of the same name"),
    ],
)
def test_all_else_is_unknown(error: BaseException) -> None:
    assert sent(error) == "unknown"


def test_a_connect_error_after_an_earlier_try_proves_nothing() -> None:
    """The first attempt timed out, so it may have been billed."""
    first = fake_responses.httpx_failure("ReadTimeout", TimeoutError("timed out"))
    system = fake_responses.refused_connection()
    system.__context__ = first
    assert sent(fake_responses.httpx_failure("ConnectError", system)) == "unknown"


def test_a_context_alone_proves_nothing() -> None:
    own = ValueError("wrong answer")
    own.__context__ = fake_responses.httpx_failure("ConnectError", fake_responses.refused_connection())
    assert sent(own) == "unknown"


def test_one_of_a_group_that_may_have_been_sent_makes_it_unknown() -> None:
    errors = [fake_responses.refused_connection(), TimeoutError()]
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
    response = fake_responses.HttpxResponse(status, {}, {})
    assert sent(fake_responses.status_error(response)) == expected
