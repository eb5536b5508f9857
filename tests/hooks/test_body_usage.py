"""The usage in a body is found for every split of the body into pieces."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.core.feedback import Reason
from tidemill.feedback import read_feedback
from tidemill.feedback.provider_reply import MAX_PARSED_BODY_BYTES
from tidemill.hooks.watched_call import BodyUsageReader, WatchedResponse


def events(*data: Any, end: str = "\n\n") -> bytes:
    return "".join(f"event: {one.get('type')}\ndata: {json.dumps(one)}{end}" for one in data).encode()


ANTHROPIC = events(
    {"type": "message_start", "message": {"usage": {"input_tokens": 25, "output_tokens": 1}}},
    {"type": "content_block_delta", "delta": {"text": 'the "usage" of it'}},
    {"type": "message_delta", "usage": {"output_tokens": 15}},
)
RESPONSES = events(
    {"type": "response.created", "response": {"usage": None}},
    {"type": "response.completed", "response": {"usage": {"input_tokens": 9, "total_tokens": 11}}},
    end="\r\n\r\n",
)
GEMINI = (
    b'data: {"usageMetadata":{"promptTokenCount":8,"totalTokenCount":8}}\n\n'
    b'data: {"usageMetadata":{"promptTokenCount":8,"candidatesTokenCount":4,"totalTokenCount":12}}\n\n'
)
OVERLOADED = (
    b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
)


def fed(raw: bytes, cuts: list[int], kind: str = "text/event-stream") -> Any:
    body = BodyUsageReader(kind)
    places = [0, *sorted(cut % (len(raw) + 1) for cut in cuts), len(raw)]
    for start, end in pairwise(places):
        body.feed(raw[start:end])
    return body.finish()


def tokens(content: Any) -> float | None:
    return (read_feedback(WatchedResponse(200, {}, content), now=0.0).usage or {}).get("tokens")


@given(st.lists(st.integers(0, 1000), max_size=8))
@settings(deadline=None)
def test_a_stream_is_read_however_it_is_cut(cuts: list[int]) -> None:
    assert tokens(fed(ANTHROPIC, cuts)) == 40
    assert tokens(fed(RESPONSES, cuts)) == 11
    assert tokens(fed(GEMINI, cuts)) == 12
    assert fed(OVERLOADED, cuts)["error"]["type"] == "overloaded_error"


def test_an_error_inside_of_a_stream_is_read_as_a_refusal() -> None:
    reading = read_feedback(WatchedResponse(200, {}, fed(ANTHROPIC + OVERLOADED, [])), now=0.0)
    assert reading.refusal is not None
    assert (reading.refusal.reason, reading.refusal.broke_off) == (Reason.OVERLOAD, True)
    assert reading.usage is not None
    assert reading.usage["tokens"] == 40, "what was told before it broke off"


def test_a_line_that_is_too_long_is_passed_over() -> None:
    body = BodyUsageReader("text/event-stream; charset=utf-8")
    for _ in range(5):
        body.feed(b"data: " + b"x" * (MAX_PARSED_BODY_BYTES // 2))
    body.feed(b"\n\n" + GEMINI)
    assert tokens(body.finish()) == 12


@given(
    st.lists(st.integers(0, 2 * MAX_PARSED_BODY_BYTES), max_size=4),
    st.sampled_from([10, MAX_PARSED_BODY_BYTES, 2 * MAX_PARSED_BODY_BYTES]),
)
@settings(deadline=None)
def test_of_a_long_body_the_usage_at_its_end_is_found(cuts: list[int], length: int) -> None:
    raw = json.dumps({"vector": "x" * length, "usage": {"total_tokens": 42}}).encode()
    assert tokens(fed(raw, cuts, "application/json")) == 42


def test_a_body_that_is_handed_out_again_counts_once() -> None:
    body = BodyUsageReader("application/json")
    body.feed(b'{"usage": {"total_tokens": 42}}')
    assert tokens(body.finish()) == 42
    body.feed(b'{"usage": {"total_tokens": 42}}')
    assert tokens(body.finish()) == 42
