"""An answer as a stream of server-sent events, in the words of the provider that gives it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tidemill.testing.providers.asked import Answer, Request
from tidemill.testing.providers.wire import encoded_head

OK = 200
Event = tuple[str | None, dict[str, Any]]
"""Its name, if the provider gives it one, and its data."""


def wants_stream(request: Request) -> bool:
    return request.body.get("stream") is True or ":streamGenerateContent" in request.path


def streamed(request: Request, answer: Answer) -> list[bytes] | None:
    """The head and each event, to be sent one after the other; None where no stream was asked for. Usage is
    told as the provider does: by OpenAI in a last event, if `stream_options` asks for it; by Anthropic in
    the first and the last; by Gemini in each."""
    if answer.status != OK or not wants_stream(request):
        return None
    headers = {**answer.headers, "content-type": "text/event-stream", "transfer-encoding": "chunked"}
    pieces = [_written(event) for event in _events(request, answer.body)]
    chunks = [f"{len(piece):x}\r\n".encode() + piece + b"\r\n" for piece in pieces]
    return [encoded_head(answer.status, headers), *chunks, b"0\r\n\r\n"]


def _written(event: Event) -> bytes:
    name, data = event
    text = b"[DONE]" if data == {} else msgspec.json.encode(data)
    return (b"" if name is None else f"event: {name}\n".encode()) + b"data: " + text + b"\n\n"


def _events(request: Request, body: dict[str, Any]) -> Iterator[Event]:
    if "usageMetadata" in body:
        return _gemini(body)
    if body.get("type") == "message":
        return _anthropic(body)
    options = request.body.get("stream_options") or {}
    return _openai(body, with_usage=bool(options.get("include_usage")))


def _openai(body: dict[str, Any], *, with_usage: bool) -> Iterator[Event]:
    base = {"id": body["id"], "object": "chat.completion.chunk", "created": 0, "model": body["model"]}
    choice = body["choices"][0]
    nothing = {"usage": None} if with_usage else {}
    for delta, finish in ((choice["message"], None), ({}, choice["finish_reason"])):
        choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": finish}]
        yield None, {**base, "choices": choices, **nothing}
    if with_usage:
        yield None, {**base, "choices": [], "usage": body["usage"]}
    yield None, {}


def _anthropic(body: dict[str, Any]) -> Iterator[Event]:
    text, usage = body["content"][0]["text"], body["usage"]
    begun = {**body, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    told = {"stop_reason": body["stop_reason"], "stop_sequence": None}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": told, "usage": {"output_tokens": usage["output_tokens"]}},
        {"type": "message_stop"},
    ]
    for event in events:
        yield event["type"], event


def _gemini(body: dict[str, Any]) -> Iterator[Event]:
    usage = body["usageMetadata"]
    prompt = usage["promptTokenCount"]
    yield None, {**body, "usageMetadata": {"promptTokenCount": prompt, "totalTokenCount": prompt}}
    yield None, body
