"""Every client library's shapes are read, and nothing that may block is touched."""

from __future__ import annotations

from typing import Any

import pytest

from tests.feedback import shapes
from tidemill.core.refusals import Reason
from tidemill.feedback import Stated, read

NOW = 1_800_000_000.0
OPENAI_HEADERS = {
    "X-RateLimit-Limit-Tokens": "30000",
    "x-ratelimit-remaining-tokens": "29000",
    "X-Ratelimit-Reset-Tokens": "2s",
    "Retry-After": "20",
}
TOKENS = Stated(unit="tokens", window=60.0, limit=30_000, remaining=29_000, resets_at=NOW + 2)
USAGE = {"promptTokenCount": 8, "candidatesTokenCount": 4, "thoughtsTokenCount": 18, "totalTokenCount": 30}


def said(source: Any) -> tuple[Reason, str | None, float | None]:
    reading = read(source, now=NOW)
    assert reading.refusal is not None
    assert (reading.sent, reading.problems, reading.refusal.status) == ("answered", (), 429)
    return reading.refusal.reason, reading.refusal.unit, reading.refusal.retry_after


@pytest.mark.parametrize(
    "source",
    [
        shapes.openai_error(429, OPENAI_HEADERS, shapes.OPENAI_429),
        shapes.status_error(shapes.HttpxResponse(429, OPENAI_HEADERS, shapes.OPENAI_429)),
        shapes.HttpxResponse(429, OPENAI_HEADERS, shapes.OPENAI_429),
        shapes.RequestsResponse(429, OPENAI_HEADERS, shapes.OPENAI_429),
        shapes.AiohttpResponse(429, OPENAI_HEADERS, shapes.OPENAI_429),
        (429, OPENAI_HEADERS, shapes.OPENAI_429),
        (429, list(OPENAI_HEADERS.items()), str(shapes.OPENAI_429).replace("'", '"').replace("None", "null")),
        (429, {name.encode(): value.encode() for name, value in OPENAI_HEADERS.items()}, shapes.OPENAI_429),
    ],
    ids=["openai", "httpx error", "httpx", "requests", "aiohttp", "plain", "plain text", "plain bytes"],
)
def test_an_openai_refusal_is_the_same_through_every_client(source: Any) -> None:
    assert said(source) == (Reason.RATE, "tokens", 20)
    assert read(source, now=NOW).stated == (TOKENS,)


@pytest.mark.parametrize(
    "source",
    [
        shapes.genai_error(shapes.GEMINI_DAY),
        shapes.genai_error(shapes.GEMINI_DAY, shapes.AiohttpResponse(429, {})),
        shapes.status_error(shapes.RequestsResponse(429, {}, shapes.GEMINI_DAY), "requests.exceptions"),
        shapes.AiohttpResponse(429, {}, shapes.GEMINI_DAY),
        (429, None, [shapes.GEMINI_DAY]),
    ],
    ids=["genai", "genai aiohttp", "requests error", "aiohttp", "a stream's list"],
)
def test_a_gemini_refusal_is_the_same_through_every_client(source: Any) -> None:
    assert said(source) == (Reason.DAY_QUOTA, "requests", 20)


def test_an_anthropic_refusal() -> None:
    assert said(shapes.anthropic_error(429, {"retry-after": "13"}, shapes.ANTHROPIC_429)) == (
        Reason.RATE,
        "requests",
        13,
    )


@pytest.mark.parametrize(
    "source",
    [
        shapes.HttpxResponse(429, OPENAI_HEADERS),
        shapes.RequestsResponse(429, OPENAI_HEADERS),
        shapes.AiohttpResponse(429, OPENAI_HEADERS),
        shapes.aiohttp_status_error(429, OPENAI_HEADERS),
        shapes.urllib_status_error(429, OPENAI_HEADERS),
    ],
    ids=["httpx", "requests", "aiohttp", "aiohttp error", "urllib"],
)
def test_a_body_that_was_not_received_is_not_fetched(source: Any) -> None:
    """And the address in an error's words ("/daily/quota") is not what the provider said."""
    assert said(source) == (Reason.RATE, None, 20)
    assert read(source, now=NOW).stated == (TOKENS,)


@pytest.mark.parametrize(
    ("source", "usage"),
    [
        (
            shapes.Model(usage=shapes.Model(completion_tokens=12, prompt_tokens=9, total_tokens=21)),
            {"tokens": 21, "input_tokens": 9, "output_tokens": 12},
        ),
        (shapes.Model(usage=shapes.Model(prompt_tokens=8, total_tokens=8)), {"tokens": 8, "input_tokens": 8}),
        (
            shapes.Model(
                status="completed",
                text=None,
                usage=shapes.Model(input_tokens=5, output_tokens=6, total_tokens=11),
            ),
            {"tokens": 11, "input_tokens": 5, "output_tokens": 6},
        ),
        (
            shapes.Model(
                type="message",
                content=[shapes.Model(type="text", text="we rate limit: 429, quota per day exceeded")],
                usage=shapes.Model(
                    input_tokens=10, cache_creation_input_tokens=3, cache_read_input_tokens=5, output_tokens=7
                ),
            ),
            {"tokens": 20, "input_tokens": 13, "output_tokens": 7},
        ),
        (
            shapes.GenaiResponse(
                sdk_http_response=shapes.Model(headers={"server": "x"}, body=None),
                usage_metadata=shapes.Model(
                    prompt_token_count=8,
                    candidates_token_count=4,
                    thoughts_token_count=18,
                    total_token_count=30,
                ),
            ),
            {"tokens": 30, "input_tokens": 8, "output_tokens": 22},
        ),
        (
            shapes.HttpxResponse(200, {}, {"usageMetadata": USAGE}),
            {"tokens": 30, "input_tokens": 8, "output_tokens": 22},
        ),
    ],
    ids=["chat", "embeddings", "responses", "messages", "generate", "raw"],
)
def test_the_usage_of_a_parsed_answer(source: Any, usage: dict[str, float]) -> None:
    reading = read(source, now=NOW)
    assert reading.usage == usage
    assert (reading.sent, reading.refusal) == ("answered", None)


def test_a_raw_response_has_usage_headers_and_the_clients_own_retries() -> None:
    body = {"usage": {"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21}}
    raw = shapes.OpenaiRawResponse(shapes.HttpxResponse(200, OPENAI_HEADERS, body), retries=2)
    reading = read(raw, now=NOW)
    assert reading.usage == {"tokens": 21, "input_tokens": 9, "output_tokens": 12, "requests": 3}
    assert reading.stated[0] == TOKENS


def test_the_cause_of_a_users_own_error_is_read() -> None:
    own = ValueError("the daily quota report could not be made")
    own.__cause__ = shapes.openai_error(429, OPENAI_HEADERS, shapes.OPENAI_429)
    assert said(own) == (Reason.RATE, "tokens", 20)


def test_what_was_merely_being_handled_is_not_read() -> None:
    """A fallback to another provider failed: the first one's refusal is not the second one's."""
    own = ValueError("no image")
    own.__context__ = shapes.openai_error(429, OPENAI_HEADERS, shapes.OPENAI_429)
    assert read(own, now=NOW).refusal is None


def test_of_a_group_the_longest_wait_wins() -> None:
    group = ExceptionGroup(
        "calls",
        [
            shapes.openai_error(429, OPENAI_HEADERS, shapes.OPENAI_429),
            ExceptionGroup("inner", [shapes.genai_error(shapes.GEMINI_DAY), ValueError("other")]),
        ],
    )
    reading = read(group, now=NOW)
    assert reading.refusal is not None
    assert reading.refusal.reason is Reason.DAY_QUOTA
    assert reading.stated[0] == TOKENS
    assert reading.sent == "unknown"
