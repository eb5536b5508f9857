"""Decides whether a call that failed without an answer may have reached the provider.

A call counts as "not sent" only if no connection was made. After a timeout or a connection reset the provider
may have billed the work.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidemill.feedback.provider_reply import MAX_CAUSE_LINKS, SendStatus, safe_attribute

UNCERTAIN_STATUSES = frozenset({408, 499, 502, 504, 520, 522, 524})
"""Statuses of a gateway that does not know the result of the call behind it."""

_NOT_SENT_ERRORS = frozenset(
    {
        *("httpx.ConnectError", "httpx.ConnectTimeout", "httpx.PoolTimeout", "httpx.UnsupportedProtocol"),
        *("httpcore.ConnectError", "httpcore.ConnectTimeout", "httpcore.PoolTimeout"),
        *("aiohttp.ClientConnectorError", "aiohttp.ConnectionTimeoutError", "aiohttp.InvalidURL"),
        *("urllib3.NewConnectionError", "urllib3.ConnectTimeoutError", "urllib3.NameResolutionError"),
        *("requests.ConnectTimeout", "requests.InvalidURL", "requests.MissingSchema"),
        *("builtins.ConnectionRefusedError", "socket.gaierror", "ssl.SSLCertVerificationError"),
    }
)
_MAYBE_SENT_ERRORS = frozenset(
    {
        *("httpx.ReadTimeout", "httpx.WriteTimeout", "httpx.ReadError", "httpx.WriteError"),
        *("httpx.RemoteProtocolError", "httpx.LocalProtocolError", "httpx.HTTPStatusError"),
        *("aiohttp.ServerDisconnectedError", "aiohttp.SocketTimeoutError", "aiohttp.ClientPayloadError"),
        *("aiohttp.ClientResponseError", "requests.ReadTimeout", "requests.ChunkedEncodingError"),
        *("urllib3.ProtocolError", "urllib3.ReadTimeoutError", "http.IncompleteRead"),
        *("builtins.ConnectionResetError", "builtins.BrokenPipeError", "builtins.ConnectionAbortedError"),
    }
)
_NETWORK_ERRORS = frozenset(
    {
        *("httpx.TimeoutException", "httpx.NetworkError", "httpx.ProxyError", "httpx.RemoteProtocolError"),
        *("httpcore.TimeoutException", "httpcore.NetworkError", "httpcore.RemoteProtocolError"),
        *("aiohttp.ClientConnectionError", "aiohttp.ClientPayloadError", "http.IncompleteRead"),
        *("requests.ConnectionError", "requests.Timeout", "requests.ChunkedEncodingError"),
        *("urllib3.TimeoutError", "urllib3.ProtocolError", "urllib3.NewConnectionError"),
        *("openai.APIConnectionError", "anthropic.APIConnectionError", "socket.gaierror", "ssl.SSLError"),
        *("builtins.TimeoutError", "builtins.ConnectionError"),
    }
)
"""These classes and their subclasses."""


def is_network_error(source: BaseException) -> bool:
    """True if the error, or one of its causes, is a connection error or a timeout."""
    return any(_is_any_of(error, _NETWORK_ERRORS) for error in _cause_chain(source))


def send_status(source: Any) -> SendStatus:
    """Returns "not sent" if the exception proves that the call was never sent, otherwise "unknown". It is for
    exceptions without an answer."""
    if not isinstance(source, BaseException):
        return "unknown"
    proven = any(_is_any_of(error, _NOT_SENT_ERRORS) for error in _cause_chain(source))
    return "not sent" if proven and not _may_have_been_sent(source) else "unknown"


def _cause_chain(source: BaseException) -> Iterator[BaseException]:
    """Yields the error and then its causes, the outermost first. Stops after an error that shows that the
    call may have been sent, because deeper causes cannot disprove it."""
    error: Any = source
    for _ in range(MAX_CAUSE_LINKS):
        if not isinstance(error, BaseException):
            return
        yield error
        if _is_any_of(error, _MAYBE_SENT_ERRORS):
            return
        error = error.__cause__ or _inner_cause(error)


def _inner_cause(error: BaseException) -> Any:
    """Returns the cause that some libraries do not store in `__cause__`. urllib and urllib3 store it in
    `reason`, requests in the first argument. Returns None if there is none."""
    first = error.args[0] if error.args else None
    return next(
        (found for found in (safe_attribute(error, "reason"), first) if isinstance(found, Exception)), None
    )


def _may_have_been_sent(source: BaseException) -> bool:
    """True if the exception, or one of its causes and contexts, shows that the call may have been sent. The
    cause of a failed connection does not count, because no request was sent over it."""
    pending: list[tuple[BaseException | None, bool]] = [(source, False)]
    seen = set[int]()
    while pending and len(seen) < MAX_CAUSE_LINKS * 4:
        error, below = pending.pop()
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        if _is_any_of(error, _MAYBE_SENT_ERRORS) and not (below and type(error).__module__ == "builtins"):
            return True
        below = below or _is_any_of(error, _NOT_SENT_ERRORS)
        context = None if error.__suppress_context__ else error.__context__
        pending += [(error.__cause__, below), (context, below)]
    return False


def _is_any_of(error: BaseException, names: frozenset[str]) -> bool:
    return any(_qualified_name(kind) in names for kind in type(error).__mro__)


def _qualified_name(kind: type) -> str:
    package = kind.__module__.partition(".")[0]
    # httpx2 and httpcore2 are the second editions of the same libraries.
    return f"{package.removesuffix('2')}.{kind.__name__}"
