"""HTTP requests and replies of the simulator, and replies as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Literal

import msgspec

CHARACTERS_PER_TOKEN = 4


class SimulatorRequest(msgspec.Struct, frozen=True):
    """A request to the simulator. Header names are lower case."""

    path: str
    body: dict[str, Any] = msgspec.field(default_factory=dict)
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    method: str = "POST"


class SimulatorReply(msgspec.Struct, frozen=True):
    """A reply of the simulator. `audio` is sent instead of `body`, unless it is empty."""

    status: int
    headers: dict[str, str]
    body: dict[str, Any]
    audio: bytes = b""


class SimulatorCall(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed request.

    - `max_tokens`, `dimensions`: 0 if the caller gave none.
    - `speed`: the speed of speech.
    - `mark`: identifies the caller's job, so that tests find repeated calls for the same job.
    """

    kind: Literal["chat", "embed", "speech"]
    model: str
    key: str = ""
    mark: str | None = None
    texts: tuple[str, ...] = ()
    input_tokens: int
    output_tokens: int = 0
    max_tokens: int = 0
    single: bool = False
    dimensions: int = 0
    speed: float = 1.0


class InvalidSimulatorRequest(Exception):
    """Raised if the dialect cannot parse a request; `answer` is the error reply."""

    def __init__(self, answer: SimulatorReply) -> None:
        super().__init__(f"HTTP {answer.status}")
        self.answer = answer


def count_input_tokens(texts: tuple[str, ...], request: SimulatorRequest) -> int:
    """Returns the number of input tokens: the header `x-input-tokens` if present, otherwise one token per 4
    characters."""
    if header := request.headers.get("x-input-tokens"):
        return int(header)
    return max(1, -(-sum(map(len, texts)) // CHARACTERS_PER_TOKEN))


def count_output_tokens(request: SimulatorRequest, usual: int, max_tokens: int) -> int:
    """Returns the number of output tokens: the header `x-output-tokens` if present, otherwise `usual`. It is
    at most `max_tokens`; 0 means no maximum."""
    tokens = int(request.headers.get("x-output-tokens") or usual)
    return min(tokens, max_tokens) if max_tokens else tokens


def read_job_mark(request: SimulatorRequest) -> str | None:
    if mark := request.headers.get("x-job"):
        return mark
    metadata = request.body.get("metadata")
    found = metadata if isinstance(metadata, dict) else {}
    mark = found.get("job") or found.get("user_id") or request.body.get("request_id")
    return None if mark is None else str(mark)


def read_api_key(request: SimulatorRequest) -> str:
    headers = request.headers
    bearer = headers.get("authorization", "").removeprefix("Bearer ")
    return headers.get("x-api-key") or headers.get("x-goog-api-key") or bearer


MAX_BODY_BYTES = 16 * 1024 * 1024


class MalformedHTTP(Exception):
    """Raised for unreadable HTTP. The caller gets the message, and the connection closes."""


async def read_request(reader: asyncio.StreamReader) -> SimulatorRequest | None:
    """Reads one HTTP request; None if the caller has disconnected."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    except asyncio.LimitOverrunError as error:
        raise MalformedHTTP("the headers are too long") from error
    first, *lines = head.decode("latin-1").split("\r\n")
    try:
        method, path, _ = first.split(" ", 2)
        pairs = [line.split(":", 1) for line in lines if line]
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        length = int(headers.get("content-length", "0"))
    except ValueError as error:
        raise MalformedHTTP("this is not an HTTP request") from error
    if "transfer-encoding" in headers or not 0 <= length <= MAX_BODY_BYTES:
        raise MalformedHTTP(f"send the body with a content-length of at most {MAX_BODY_BYTES}")
    try:
        raw = await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return SimulatorRequest(path, _parse_body(raw), headers, method)


def encode_reply(answer: SimulatorReply) -> bytes:
    return encode_response(answer.status, answer.headers, answer.audio or msgspec.json.encode(answer.body))


def encode_response(status: int, headers: dict[str, str], body: bytes) -> bytes:
    return encode_head(status, headers | {"content-length": str(len(body))}) + body


def encode_head(status: int, headers: dict[str, str]) -> bytes:
    known = {code.value: code.phrase for code in HTTPStatus}
    lines = [f"HTTP/1.1 {status} {known.get(status, 'Overloaded')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _parse_body(raw: bytes) -> dict[str, Any]:
    if not raw:
        return {}
    try:
        found = msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise MalformedHTTP(f"the body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise MalformedHTTP("the body must be a JSON object")
    return found


STATUS_OK = 200
ServerSentEvent = tuple[str | None, dict[str, Any]]
"""The name of a server-sent event, or None, and its data."""


def wants_stream(request: SimulatorRequest) -> bool:
    return request.body.get("stream") is True or ":streamGenerateContent" in request.path


def encode_stream(request: SimulatorRequest, answer: SimulatorReply) -> list[bytes] | None:
    """Returns the head and the events of a streamed reply, as chunks to send. None if the request asks for no
    stream or the reply is an error. The usage is in the same events as at the real provider."""
    if answer.status != STATUS_OK or not wants_stream(request):
        return None
    headers = {**answer.headers, "content-type": "text/event-stream", "transfer-encoding": "chunked"}
    pieces = [_encode_event(event) for event in _reply_events(request, answer.body)]
    chunks = [f"{len(piece):x}\r\n".encode() + piece + b"\r\n" for piece in pieces]
    return [encode_head(answer.status, headers), *chunks, b"0\r\n\r\n"]


def _encode_event(event: ServerSentEvent) -> bytes:
    name, data = event
    text = b"[DONE]" if data == {} else msgspec.json.encode(data)
    return (b"" if name is None else f"event: {name}\n".encode()) + b"data: " + text + b"\n\n"


def _reply_events(request: SimulatorRequest, body: dict[str, Any]) -> Iterator[ServerSentEvent]:
    if "usageMetadata" in body:
        return _gemini_events(body)
    if body.get("type") == "message":
        return _anthropic_events(body)
    options = request.body.get("stream_options") or {}
    return _openai_events(body, with_usage=bool(options.get("include_usage")))


def _openai_events(body: dict[str, Any], *, with_usage: bool) -> Iterator[ServerSentEvent]:
    base = {"id": body["id"], "object": "chat.completion.chunk", "created": 0, "model": body["model"]}
    choice = body["choices"][0]
    nothing = {"usage": None} if with_usage else {}
    for delta, finish in ((choice["message"], None), ({}, choice["finish_reason"])):
        choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": finish}]
        yield None, {**base, "choices": choices, **nothing}
    if with_usage:
        yield None, {**base, "choices": [], "usage": body["usage"]}
    yield None, {}


def _anthropic_events(body: dict[str, Any]) -> Iterator[ServerSentEvent]:
    text, usage = body["content"][0]["text"], body["usage"]
    begun = {**body, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    context = {"stop_reason": body["stop_reason"], "stop_sequence": None}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": context, "usage": {"output_tokens": usage["output_tokens"]}},
        {"type": "message_stop"},
    ]
    for event in events:
        yield event["type"], event


def _gemini_events(body: dict[str, Any]) -> Iterator[ServerSentEvent]:
    usage = body["usageMetadata"]
    prompt = usage["promptTokenCount"]
    yield None, {**body, "usageMetadata": {"promptTokenCount": prompt, "totalTokenCount": prompt}}
    yield None, body
