"""Responses and exceptions as the client libraries make them, without the libraries.

They were recorded from openai 3.49.0, anthropic 2.8.0, google-genai 3.1.0, httpx 0.28.1, httpx2 2.16.0,
aiohttp 3.14.5, requests 2.34.2 and urllib of Python 3.11. Each client called a small HTTP server on
127.0.0.1 that answered with the bodies below. Each also called a closed port, a port that resets, and
one that never answers. The classes here have the recorded module, name, bases, attributes, `__cause__`,
`__context__`, `reason` and `args`.

A property that fetches, warns or raises in the library fails the test here."""

from __future__ import annotations

import json
from typing import Any

OPENAI_429 = {
    "error": {
        "message": "Rate limit reached for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000,"
        " Used 29000, Requested 2000. Please try again in 2s. Visit https://example.com/account/rate-limits.",
        "type": "tokens",
        "param": None,
        "code": "rate_limit_exceeded",
    }
}
ANTHROPIC_429 = {
    "type": "error",
    "error": {
        "type": "rate_limit_error",
        "message": "This request would exceed your organization's rate limit of 50 requests per minute",
    },
    "request_id": "req_2",
}


def gemini_error(
    *violations: tuple[str, str], delay: str | dict[str, int] | None = None, message: str = ""
) -> dict[str, Any]:
    """Returns a Gemini error. Violations are pairs of quotaId and quotaValue."""
    details: list[dict[str, Any]] = []
    if violations:
        failed = [
            {
                "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_requests",
                "quotaId": quota,
                "quotaDimensions": {"location": "global", "model": "gemini-2.5-flash"},
                "quotaValue": value,
            }
            for quota, value in violations
        ]
        details.append({"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": failed})
    if delay:
        details.append({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay})
    text = message or "You exceeded your current quota, please check your plan and billing details."
    return {"error": {"code": 429, "message": text, "status": "RESOURCE_EXHAUSTED", "details": details}}


PER_DAY = "GenerateRequestsPerDayPerProjectPerModel-FreeTier"
PER_MINUTE = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"
TOKENS_PER_MINUTE = "GenerateContentInputTokensPerModelPerMinute-FreeTier"
GEMINI_DAY = gemini_error((PER_DAY, "250"), delay="20s")


class Blocked(BaseException):
    """The code read an attribute that may block."""


class Fetches:
    """A property that fetches in the real library; here it raises."""

    def __get__(self, owner: object, kind: type) -> Any:
        raise Blocked


def named(module: str, name: str, *bases: type, **members: Any) -> Any:
    return type(name, bases or (Exception,), {"__module__": module, **members})


class CaseInsensitive(dict[str, str]):
    """Headers like those of requests and aiohttp: names keep the case that the server sent."""


# httpx and httpx2: `_content` exists after the body was read; before, `content` and `text` raise.
class HttpxResponse:
    content = text = Fetches()

    def __init__(self, status: int, headers: dict[str, str], body: Any = None) -> None:
        self.status_code = status
        self.headers = CaseInsensitive(headers)
        if body is not None:
            self._content = json.dumps(body).encode()

    def json(self) -> Any:
        raise Blocked


HttpxResponse.__module__ = "httpx2"


# requests: `_content` is False until the body is read; `content` and `text` read it from the network.
class RequestsResponse:
    content = text = Fetches()

    def __init__(self, status: int, headers: dict[str, str], body: Any = None) -> None:
        self.status_code = status
        self.headers = CaseInsensitive(headers)
        self._content = False if body is None else json.dumps(body).encode()
        self.reason = "Too Many Requests"


RequestsResponse.__module__ = "requests.models"


# aiohttp: `_body` is None until read; `text()`, `json()` and `read()` must be awaited.
class AiohttpResponse:
    def __init__(self, status: int, headers: dict[str, str], body: Any = None) -> None:
        self.status = status
        self._headers = CaseInsensitive(headers)
        self._body = None if body is None else json.dumps(body).encode()
        self.content = object()

    @property
    def headers(self) -> dict[str, str]:
        return self._headers

    async def text(self) -> str:
        raise Blocked

    json = read = text


AiohttpResponse.__module__ = "aiohttp.client_reqrep"


def status_error(response: Any, module: str = "httpx2", name: str = "HTTPStatusError") -> Exception:
    """Returns the error of `raise_for_status` in httpx and requests."""
    address = "https://api.example.com/daily/quota"
    error = named(module, name)(f"Client error '{response.status_code}' for url '{address}'")
    error.response = response
    return error  # type: ignore[no-any-return]


def aiohttp_status_error(status: int, headers: dict[str, str]) -> Exception:
    """Returns the error of aiohttp's `raise_for_status`: it has headers but no body, and its text has the
    URL."""
    text = f"{status}, message='Too Many Requests', url='https://api.example.com/daily/quota'"
    error = named("aiohttp.client_exceptions", "ClientResponseError")(text)
    error.status, error.code, error.message = status, status, "Too Many Requests"
    error.headers = CaseInsensitive(headers)
    return error  # type: ignore[no-any-return]


def urllib_status_error(status: int, headers: dict[str, str]) -> Exception:
    """Returns urllib's error; its body is still on the connection."""
    members = {"read": Fetches(), "fp": Fetches()}
    error = named("urllib.error", "HTTPError", OSError, **members)("HTTP Error 429: Too Many Requests")
    error.status = error.code = status
    error.reason, error.headers = "Too Many Requests", CaseInsensitive(headers)
    return error  # type: ignore[no-any-return]


def openai_error(status: int, headers: dict[str, str], body: dict[str, Any]) -> Exception:
    """Returns openai's error; `body` is the inner error object."""
    inner = body["error"]
    error = named("openai", "RateLimitError")(f"Error code: {status} - {inner['message']}")
    error.response, error.status_code = HttpxResponse(status, headers, body), status
    error.message, error.body = f"Error code: {status} - {inner['message']}", inner
    error.code, error.type, error.param = inner.get("code"), inner.get("type"), None
    return error  # type: ignore[no-any-return]


def anthropic_error(status: int, headers: dict[str, str], body: dict[str, Any]) -> Exception:
    """Returns anthropic's error; `body` is the whole body and `details` is None."""
    error = named("anthropic", "RateLimitError")(f"Error code: {status} - {body}")
    error.response, error.status_code = HttpxResponse(status, headers, body), status
    error.body, error.details, error.type = body, None, body["error"]["type"]
    return error  # type: ignore[no-any-return]


def genai_error(body: dict[str, Any], response: Any = None) -> Exception:
    """Returns google-genai's error: `code` is the HTTP status, `status` Google's word, `details` the whole
    body."""
    inner = body["error"]
    error = named("google.genai.errors", "ClientError")(f"{inner['code']} {inner['status']}. {body}")
    error.code, error.status, error.message = inner["code"], inner["status"], inner["message"]
    error.details, error.response = body, response or HttpxResponse(inner["code"], {}, body)
    return error  # type: ignore[no-any-return]


# Parsed answers are pydantic models, whose `json()` dumps and warns.
class Model:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def json(self) -> str:
        raise Blocked


class GenaiResponse(Model):
    text = Fetches()  # warns if a part is not text


GenaiResponse.__module__ = "google.genai.types"


class OpenaiRawResponse:
    """The result of `with_raw_response`, which has the headers."""

    content = text = Fetches()

    def __init__(self, response: HttpxResponse, retries: int = 0) -> None:
        self.http_response = response
        self.retries_taken = retries

    @property
    def status_code(self) -> int:
        return self.http_response.status_code

    @property
    def headers(self) -> dict[str, str]:
        return self.http_response.headers


# Failures without an answer
def chained(error: Any, cause: BaseException | None = None, context: BaseException | None = None) -> Any:
    error.__context__ = context or cause
    if cause is not None:
        error.__cause__ = cause
    return error


def httpx_failure(name: str, system: BaseException | None = None, edition: str = "2") -> Any:
    core = chained(named(f"httpcore{edition}", name)(name), context=system)
    return chained(named(f"httpx{edition}", name)(name), cause=core)


def sdk_failure(package: str, cause: BaseException, name: str = "APIConnectionError") -> Any:
    return chained(named(package, name)("Connection error."), cause=cause)


def refused_connection() -> ConnectionRefusedError:
    return ConnectionRefusedError(111, "Connection refused")


def requests_refused() -> Any:
    timeout = named("urllib3.exceptions", "ConnectTimeoutError")
    connection = chained(
        named("urllib3.exceptions", "NewConnectionError", timeout)("no"), cause=refused_connection()
    )
    most = chained(named("urllib3.exceptions", "MaxRetryError")("Max retries exceeded"), cause=connection)
    most.reason = connection
    error = named("requests.exceptions", "ConnectionError", OSError)(most)
    error.response = None
    return chained(error, context=most)


def requests_reset() -> Any:
    gone = named("http.client", "RemoteDisconnected", ConnectionResetError)("Remote end closed connection")
    protocol = chained(
        named("urllib3.exceptions", "ProtocolError")("Connection aborted.", gone), context=gone
    )
    error = named("requests.exceptions", "ConnectionError", OSError)(protocol)
    error.response = None
    return chained(error, context=protocol)


def aiohttp_refused() -> Any:
    base = named("aiohttp.client_exceptions", "ClientOSError", OSError)
    return chained(
        named("aiohttp.client_exceptions", "ClientConnectorError", base)("no"), cause=refused_connection()
    )


def aiohttp_reset() -> Any:
    reset = ConnectionResetError(104, "Connection reset by peer")
    return chained(named("aiohttp.client_exceptions", "ClientOSError", OSError)("reset"), cause=reset)


def urllib_failure(system: OSError) -> Any:
    error = named("urllib.error", "URLError", OSError)(system)
    error.reason = system
    return chained(error, context=system)
