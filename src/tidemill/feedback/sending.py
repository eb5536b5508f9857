"""Whether a call that failed without an answer can have reached the provider.

Only a connection that was never made proves "not sent". A timeout or a reset may have come after the
provider did, and billed, the work.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidemill.feedback.reading import Sent
from tidemill.feedback.unpack import MOST_LINKS, attribute

UNCERTAIN_STATUSES = frozenset({408, 499, 502, 504, 520, 522, 524})
"""A gateway speaks, and does not know what became of the call behind it."""

_NOT_SENT = frozenset(
    {
        *("httpx.ConnectError", "httpx.ConnectTimeout", "httpx.PoolTimeout", "httpx.UnsupportedProtocol"),
        *("httpcore.ConnectError", "httpcore.ConnectTimeout", "httpcore.PoolTimeout"),
        *("aiohttp.ClientConnectorError", "aiohttp.ConnectionTimeoutError", "aiohttp.InvalidURL"),
        *("urllib3.NewConnectionError", "urllib3.ConnectTimeoutError", "urllib3.NameResolutionError"),
        *("requests.ConnectTimeout", "requests.InvalidURL", "requests.MissingSchema"),
        *("builtins.ConnectionRefusedError", "socket.gaierror", "ssl.SSLCertVerificationError"),
    }
)
_PERHAPS = frozenset(
    {
        *("httpx.ReadTimeout", "httpx.WriteTimeout", "httpx.ReadError", "httpx.WriteError"),
        *("httpx.RemoteProtocolError", "httpx.LocalProtocolError", "httpx.HTTPStatusError"),
        *("aiohttp.ServerDisconnectedError", "aiohttp.SocketTimeoutError", "aiohttp.ClientPayloadError"),
        *("aiohttp.ClientResponseError", "requests.ReadTimeout", "requests.ChunkedEncodingError"),
        *("urllib3.ProtocolError", "urllib3.ReadTimeoutError", "http.IncompleteRead"),
        *("builtins.ConnectionResetError", "builtins.BrokenPipeError", "builtins.ConnectionAbortedError"),
    }
)
_NETWORK = frozenset(
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
"""With all that is derived from them."""


def is_of_the_network(source: BaseException) -> bool:
    """Whether it, or what it names as its cause, is about the connection and not about what was said."""
    return any(_is(one, _NETWORK) for one in _stated(source))


def sent(source: Any) -> Sent:
    """Of an exception without an answer: "not sent" or "unknown"."""
    if not isinstance(source, BaseException):
        return "unknown"
    proven = any(_is(one, _NOT_SENT) for one in _stated(source))
    return "not sent" if proven and not _doubted(source) else "unknown"


def _stated(source: BaseException) -> Iterator[BaseException]:
    """The error and what it names as its cause; the first that is decisive ends the search."""
    one: Any = source
    for _ in range(MOST_LINKS):
        if not isinstance(one, BaseException):
            return
        yield one
        if _is(one, _PERHAPS):
            return
        one = one.__cause__ or _named(one)


def _named(one: BaseException) -> Any:
    """urllib and urllib3 keep the cause as `reason`, requests as its argument."""
    first = one.args[0] if one.args else None
    return next((found for found in (attribute(one, "reason"), first) if isinstance(found, Exception)), None)


def _doubted(source: BaseException) -> bool:
    """An earlier try of the same call may be in the context: it may have been sent. What the system said
    below a connection that failed (a reset, say) is the failure itself and no doubt."""
    pending: list[tuple[BaseException | None, bool]] = [(source, False)]
    seen = set[int]()
    while pending and len(seen) < MOST_LINKS * 4:
        one, below = pending.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if _is(one, _PERHAPS) and not (below and type(one).__module__ == "builtins"):
            return True
        below = below or _is(one, _NOT_SENT)
        context = None if one.__suppress_context__ else one.__context__
        pending += [(one.__cause__, below), (context, below)]
    return False


def _is(one: BaseException, names: frozenset[str]) -> bool:
    return any(_name(kind) in names for kind in type(one).__mro__)


def _name(kind: type) -> str:
    package = kind.__module__.partition(".")[0]
    # httpx2 and httpcore2 are the same libraries in their second edition.
    return f"{package.removesuffix('2')}.{kind.__name__}"
