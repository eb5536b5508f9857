"""The responses and errors of every client library are read, without touching attributes that may block."""

from __future__ import annotations

from typing import Any

import pytest

from tests.feedback import fake_responses
from tidemill.core.feedback import Reason
from tidemill.feedback import StatedLimit, read_feedback

NOW = 1_800_000_000.0
OPENAI_HEADERS = {
    "X-RateLimit-Limit-Tokens": "30000",
    "x-ratelimit-remaining-tokens": "29000",
    "X-Ratelimit-Reset-Tokens": "2s",
    "Retry-After": "20",
}
TOKENS = StatedLimit(unit="tokens", window=60.0, limit=30_000, remaining=29_000, resets_at=NOW + 2)
USAGE = {"promptTokenCount": 8, "candidatesTokenCount": 4, "thoughtsTokenCount": 18, "totalTokenCount": 30}


def feedback_of(source: Any) -> tuple[Reason, str | None, float | None]:
    reading = read_feedback(source, now=NOW)
    assert reading.refusal is not None
    assert (reading.sent, reading.problems, reading.refusal.status) == ("answered", (), 429)
    return reading.refusal.reason, reading.refusal.unit, reading.refusal.retry_after


@pytest.mark.parametrize(
    "source",
    [
        fake_responses.openai_error(429, OPENAI_HEADERS, fake_responses.OPENAI_429),
        fake_responses.status_error(
            fake_responses.HttpxResponse(429, OPENAI_HEADERS, fake_responses.OPENAI_429)
        ),
        fake_responses.HttpxResponse(429, OPENAI_HEADERS, fake_responses.OPENAI_429),
        fake_responses.RequestsResponse(429, OPENAI_HEADERS, fake_responses.OPENAI_429),
        fake_responses.AiohttpResponse(429, OPENAI_HEADERS, fake_responses.OPENAI_429),
        (429, OPENAI_HEADERS, fake_responses.OPENAI_429),
        (
            429,
            list(OPENAI_HEADERS.items()),
            str(fake_responses.OPENAI_429).replace("'", '"').replace("None", "null"),
        ),
        (
            429,
            {name.encode(): value.encode() for name, value in OPENAI_HEADERS.items()},
            fake_responses.OPENAI_429,
        ),
    ],
    ids=["openai", "httpx error", "httpx", "requests", "aiohttp", "plain", "plain text", "plain bytes"],
)
def test_an_openai_refusal_is_the_same_through_every_client(source: Any) -> None:
    assert feedback_of(source) == (Reason.RATE, "tokens", 20)
    assert read_feedback(source, now=NOW).stated == (TOKENS,)


@pytest.mark.parametrize(
    "source",
    [
        fake_responses.genai_error(fake_responses.GEMINI_DAY),
        fake_responses.genai_error(fake_responses.GEMINI_DAY, fake_responses.AiohttpResponse(429, {})),
        fake_responses.status_error(
            fake_responses.RequestsResponse(429, {}, fake_responses.GEMINI_DAY), "requests.exceptions"
        ),
        fake_responses.AiohttpResponse(429, {}, fake_responses.GEMINI_DAY),
        (429, None, [fake_responses.GEMINI_DAY]),
    ],
    ids=["genai", "genai aiohttp", "requests error", "aiohttp", "a stream's list"],
)
def test_a_gemini_refusal_is_the_same_through_every_client(source: Any) -> None:
    assert feedback_of(source) == (Reason.DAY_QUOTA, "requests", 20)


def test_an_anthropic_refusal() -> None:
    assert feedback_of(
        fake_responses.anthropic_error(429, {"retry-after": "13"}, fake_responses.ANTHROPIC_429)
    ) == (
        Reason.RATE,
        "requests",
        13,
    )


@pytest.mark.parametrize(
    "source",
    [
        fake_responses.HttpxResponse(429, OPENAI_HEADERS),
        fake_responses.RequestsResponse(429, OPENAI_HEADERS),
        fake_responses.AiohttpResponse(429, OPENAI_HEADERS),
        fake_responses.aiohttp_status_error(429, OPENAI_HEADERS),
        fake_responses.urllib_status_error(429, OPENAI_HEADERS),
    ],
    ids=["httpx", "requests", "aiohttp", "aiohttp error", "urllib"],
)
def test_a_body_that_was_not_received_is_not_fetched(source: Any) -> None:
    """Words of the URL in an error ("/daily/quota") do not count as the provider's message."""
    assert feedback_of(source) == (Reason.RATE, None, 20)
    assert read_feedback(source, now=NOW).stated == (TOKENS,)


@pytest.mark.parametrize(
    ("source", "usage"),
    [
        (
            fake_responses.Model(
                usage=fake_responses.Model(completion_tokens=12, prompt_tokens=9, total_tokens=21)
            ),
            {"tokens": 21, "input_tokens": 9, "output_tokens": 12},
        ),
        (
            fake_responses.Model(usage=fake_responses.Model(prompt_tokens=8, total_tokens=8)),
            {"tokens": 8, "input_tokens": 8},
        ),
        (
            fake_responses.Model(
                status="completed",
                text=None,
                usage=fake_responses.Model(input_tokens=5, output_tokens=6, total_tokens=11),
            ),
            {"tokens": 11, "input_tokens": 5, "output_tokens": 6},
        ),
        (
            fake_responses.Model(
                type="message",
                content=[
                    fake_responses.Model(type="text", text="we rate limit: 429, quota per day exceeded")
                ],
                usage=fake_responses.Model(
                    input_tokens=10, cache_creation_input_tokens=3, cache_read_input_tokens=5, output_tokens=7
                ),
            ),
            {"tokens": 20, "input_tokens": 13, "output_tokens": 7},
        ),
        (
            fake_responses.GenaiResponse(
                sdk_http_response=fake_responses.Model(headers={"server": "x"}, body=None),
                usage_metadata=fake_responses.Model(
                    prompt_token_count=8,
                    candidates_token_count=4,
                    thoughts_token_count=18,
                    total_token_count=30,
                ),
            ),
            {"tokens": 30, "input_tokens": 8, "output_tokens": 22},
        ),
        (
            fake_responses.HttpxResponse(200, {}, {"usageMetadata": USAGE}),
            {"tokens": 30, "input_tokens": 8, "output_tokens": 22},
        ),
    ],
    ids=["chat", "embeddings", "responses", "messages", "generate", "raw"],
)
def test_the_usage_of_a_parsed_answer(source: Any, usage: dict[str, float]) -> None:
    reading = read_feedback(source, now=NOW)
    assert reading.usage == usage
    assert (reading.sent, reading.refusal) == ("answered", None)


def test_a_raw_response_has_usage_headers_and_the_clients_own_retries() -> None:
    body = {"usage": {"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21}}
    raw = fake_responses.OpenaiRawResponse(fake_responses.HttpxResponse(200, OPENAI_HEADERS, body), retries=2)
    reading = read_feedback(raw, now=NOW)
    assert reading.usage == {"tokens": 21, "input_tokens": 9, "output_tokens": 12, "requests": 3}
    assert reading.stated[0] == TOKENS


def test_the_cause_of_a_users_own_error_is_read() -> None:
    own = ValueError("the daily quota report could not be made")
    own.__cause__ = fake_responses.openai_error(429, OPENAI_HEADERS, fake_responses.OPENAI_429)
    assert feedback_of(own) == (Reason.RATE, "tokens", 20)


def test_an_exception_s_context_is_not_read() -> None:
    """After a failed fallback to a second provider, the first refusal does not count for the second."""
    own = ValueError("no image")
    own.__context__ = fake_responses.openai_error(429, OPENAI_HEADERS, fake_responses.OPENAI_429)
    assert read_feedback(own, now=NOW).refusal is None


def test_of_a_group_the_longest_wait_wins() -> None:
    group = ExceptionGroup(
        "calls",
        [
            fake_responses.openai_error(429, OPENAI_HEADERS, fake_responses.OPENAI_429),
            ExceptionGroup(
                "inner", [fake_responses.genai_error(fake_responses.GEMINI_DAY), ValueError("other")]
            ),
        ],
    )
    reading = read_feedback(group, now=NOW)
    assert reading.refusal is not None
    assert reading.refusal.reason is Reason.DAY_QUOTA
    assert reading.stated[0] == TOKENS
    assert reading.sent == "unknown"
