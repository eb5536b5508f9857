"""The refusals of each provider: one 429 has many meanings, and each provider its own precedence."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.feedback import fake_responses
from tests.feedback.fake_responses import PER_DAY, PER_MINUTE, TOKENS_PER_MINUTE, gemini_error
from tidemill.core.feedback import Reason, Refusal
from tidemill.feedback import StatedLimit, read_feedback

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()


def refusal(status: int | None, body: Any, **headers: str) -> Refusal:
    found = read_feedback(
        (status or 0, {name.replace("_", "-"): value for name, value in headers.items()}, body), now=NOW
    )
    assert found.refusal is not None
    return found.refusal


def reason(status: int | None, body: Any, **headers: str) -> Reason:
    return refusal(status, body, **headers).reason


# Gemini


def test_gemini_a_day_goes_before_the_hint_which_stays() -> None:
    found = refusal(429, gemini_error((PER_DAY, "250"), delay="20.04s"))
    assert (found.reason, found.unit, found.retry_after) == (Reason.DAY_QUOTA, "requests", 20.04)


@pytest.mark.parametrize("violations", [(PER_MINUTE, PER_DAY), (PER_DAY, PER_MINUTE)])
def test_gemini_of_several_violations_the_longest_wait_wins(violations: tuple[str, ...]) -> None:
    body = gemini_error(*((one, "10") for one in violations), delay="7s")
    assert reason(429, body) is Reason.DAY_QUOTA


def test_gemini_a_minute() -> None:
    found = refusal(429, gemini_error((PER_MINUTE, "10"), delay="20s"))
    assert (found.reason, found.unit, found.retry_after) == (Reason.RATE, "requests", 20)


@pytest.mark.parametrize("status", ["UNAVAILABLE", "PERMISSION_DENIED"])
def test_gemini_a_hint_comes_with_every_refusal(status: str) -> None:
    body = gemini_error(delay="20.04s", message="later")
    body["error"]["status"] = status
    assert refusal(503, body).retry_after == 20.04


def test_gemini_names_the_unit() -> None:
    found = refusal(429, gemini_error((TOKENS_PER_MINUTE, "250000")))
    assert (found.reason, found.unit, found.retry_after) == (Reason.RATE, "input_tokens", None)
    both = refusal(429, gemini_error((TOKENS_PER_MINUTE, "250000"), (PER_MINUTE, "10")))
    assert (both.reason, both.unit) == (Reason.RATE, None)


def test_gemini_a_model_that_is_not_in_the_plan_is_never_retried() -> None:
    assert reason(429, gemini_error((PER_DAY, "0"), (PER_MINUTE, "0"), delay="20s")) is Reason.FORBIDDEN
    text = "Quota exceeded for metric: requests, limit: 0, model: gemini-2.5-pro. Please retry in 20.04s."
    assert reason(429, gemini_error(delay="20s", message=text)) is Reason.FORBIDDEN
    assert reason(429, gemini_error(message=text.replace("limit: 0", "limit: 0.5"))) is Reason.RATE


def test_gemini_without_details_goes_by_its_words() -> None:
    hinted = refusal(429, gemini_error(message="Quota exceeded. Please retry in 20.04s."))
    assert (hinted.reason, hinted.retry_after) == (Reason.RATE, 20.04)
    bare = refusal(429, gemini_error(message="Resource has been exhausted (e.g. check quota)."))
    assert (bare.reason, bare.then) == (Reason.UNKNOWN, Reason.DAY_QUOTA)
    assert reason(429, gemini_error(message="Quota exceeded: requests per day")) is Reason.DAY_QUOTA


@pytest.mark.parametrize(
    ("status", "word", "text", "expected"),
    [
        (503, "UNAVAILABLE", "The model is overloaded. Please try again later.", Reason.OVERLOAD),
        (403, "PERMISSION_DENIED", "caller has no permission", Reason.FORBIDDEN),
        (401, "UNAUTHENTICATED", "who are you", Reason.FORBIDDEN),
        (
            400,
            "INVALID_ARGUMENT",
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            Reason.TOO_LARGE,
        ),
    ],
)
def test_gemini_other_statuses(status: int, word: str, text: str, expected: Reason) -> None:
    assert reason(status, {"error": {"code": status, "message": text, "status": word}}) is expected


def test_gemini_a_wrong_key_is_a_400() -> None:
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
    body = {"error": {"code": 400, "message": "no", "status": "INVALID_ARGUMENT", "details": [info]}}
    assert reason(400, body) is Reason.FORBIDDEN


def test_gemini_an_invalid_request_is_no_refusal() -> None:
    body = {"error": {"code": 400, "message": "quota must be per day", "status": "INVALID_ARGUMENT"}}
    assert read_feedback((400, {}, body), now=NOW).refusal is None


# OpenAI


def openai(code: str | None, message: str = "", kind: str = "requests") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def test_openai_a_minute() -> None:
    found = refusal(429, openai("rate_limit_exceeded", "Please try again in 6m0s."))
    assert (found.reason, found.unit, found.retry_after) == (Reason.RATE, "requests", 360)
    headed = refusal(429, openai("rate_limit_exceeded", "Please try again in 6m0s."), retry_after="3")
    assert headed.retry_after == 3
    precise = refusal(429, openai("rate_limit_exceeded"), retry_after_ms="1500", retry_after="2")
    assert precise.retry_after == 1.5


def test_openai_the_unit_is_in_the_type_or_the_words() -> None:
    assert refusal(429, openai("rate_limit_exceeded", kind="tokens")).unit == "tokens"
    message = "Rate limit reached on tokens per min (TPM): Limit 30000"
    assert refusal(429, openai("rate_limit_exceeded", message, kind="")).unit == "tokens"


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (429, "insufficient_quota", Reason.SPENDING),
        (503, "slow_down", Reason.OVERLOAD),
        (400, "context_length_exceeded", Reason.TOO_LARGE),
        (401, "invalid_api_key", Reason.FORBIDDEN),
        (403, "unsupported_country_region_territory", Reason.FORBIDDEN),
        (503, None, Reason.OVERLOAD),
        (401, None, Reason.FORBIDDEN),
    ],
)
def test_openai_codes(status: int, code: str | None, expected: Reason) -> None:
    assert reason(status, openai(code, "You exceeded your current quota")) is expected


def test_openai_asks_for_less_speed() -> None:
    assert refusal(503, openai("slow_down")).slow
    assert not refusal(503, openai("server_overloaded")).slow


def test_openai_a_too_large_call_is_recognised_by_its_message() -> None:
    message = "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 38000."
    assert reason(429, openai("rate_limit_exceeded", message, "tokens")) is Reason.TOO_LARGE


@pytest.mark.parametrize(
    ("limit", "remaining", "reset", "window"),
    [
        ("10000", "9999", "8.64s", 86_400),
        ("200", "150", "6h0m0s", 86_400),
        ("60", "59", "1s", 60),
        ("150000", "149984", "6ms", 60),
        ("60", "60", "0s", None),  # nothing used, so the window is unknown
        ("60", "59", "20ms", None),  # lost by rounding
        ("60", "70", "1s", None),
        ("many", "0", "1s", None),
    ],
)
def test_openai_a_daily_limit_is_recognised_by_its_reset_time(
    limit: str, remaining: str, reset: str, window: float | None
) -> None:
    names = ("limit", "remaining", "reset")
    given = zip(names, (limit, remaining, reset), strict=True)
    headers = {f"x-ratelimit-{name}-requests": value for name, value in given}
    (stated,) = read_feedback((200, headers, {}), now=NOW).stated
    assert stated.unit == "requests"
    assert stated.window == window


# Anthropic


def anthropic(kind: str, message: str = "no") -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


def test_anthropic_with_a_hint_it_is_a_minute() -> None:
    message = (
        "This request would exceed the rate limit for your organization of 40,000 input tokens per minute"
    )
    found = refusal(429, anthropic("rate_limit_error", message), retry_after="13")
    assert (found.reason, found.unit, found.retry_after) == (Reason.RATE, "input_tokens", 13)


def test_anthropic_without_a_hint_it_is_the_months_spending_cap() -> None:
    found = refusal(429, anthropic("rate_limit_error"), request_id="req_1")
    assert found.reason is Reason.SPENDING
    assert found.resets_at == datetime(2026, 12, 1, tzinfo=UTC).timestamp()


def test_anthropic_an_empty_limit_is_no_spending_cap() -> None:
    headers = {
        "anthropic-ratelimit-output-tokens-limit": "8000",
        "anthropic-ratelimit-output-tokens-remaining": "0",
        "anthropic-ratelimit-output-tokens-reset": "2026-11-16T12:00:30Z",
    }
    found = read_feedback((429, headers, anthropic("rate_limit_error")), now=NOW)
    assert found.refusal is not None
    assert (found.refusal.reason, found.refusal.unit) == (Reason.RATE, "output_tokens")
    assert found.refusal.resets_at == NOW + 30
    assert found.stated == (
        StatedLimit(unit="output_tokens", window=60, limit=8000, remaining=0, resets_at=NOW + 30),
    )


def test_anthropic_inside_a_stream_there_are_no_headers_to_miss() -> None:
    assert reason(None, anthropic("rate_limit_error")) is Reason.UNKNOWN


def test_anthropic_is_known_by_its_headers_when_the_body_was_not_received() -> None:
    limit = {"anthropic-ratelimit-requests-limit": "50"}
    found = read_feedback(fake_responses.aiohttp_status_error(429, limit), now=NOW).refusal
    assert found is not None
    assert found.reason is Reason.SPENDING
    hinted = read_feedback(
        fake_responses.aiohttp_status_error(429, {**limit, "Retry-After": "9"}), now=NOW
    ).refusal
    assert hinted is not None
    assert (hinted.reason, hinted.retry_after) == (Reason.RATE, 9)


def test_anthropic_sharp_growth_asks_for_a_ramp() -> None:
    message = "This request would exceed the acceleration limit; increase usage gradually"
    found = refusal(429, anthropic("rate_limit_error", message), retry_after="5")
    assert (found.reason, found.slow) == (Reason.RATE, True)


@pytest.mark.parametrize(
    ("status", "kind", "message", "expected"),
    [
        (529, "overloaded_error", "Overloaded", Reason.OVERLOAD),
        (401, "authentication_error", "invalid x-api-key", Reason.FORBIDDEN),
        (403, "permission_error", "no", Reason.FORBIDDEN),
        (402, "billing_error", "no", Reason.SPENDING),
        (413, "request_too_large", "Request exceeds the maximum size", Reason.TOO_LARGE),
        (400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000", Reason.TOO_LARGE),
        (400, "invalid_request_error", "Your credit balance is too low to access", Reason.SPENDING),
    ],
)
def test_anthropic_types(status: int, kind: str, message: str, expected: Reason) -> None:
    assert reason(status, anthropic(kind, message)) is expected


def test_anthropic_too_many_connections_are_too_many_at_once() -> None:
    message = "Number of concurrent connections has exceeded your rate limit"
    assert reason(429, anthropic("rate_limit_error", message), request_id="r") is Reason.CONCURRENCY


def test_anthropic_a_bad_call_is_no_refusal() -> None:
    body = anthropic("invalid_request_error", "max_tokens: must be below the rate limit")
    assert read_feedback((400, {}, body), now=NOW).refusal is None


# GLM


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("1302", Reason.CONCURRENCY),
        ("1303", Reason.RATE),
        ("1304", Reason.DAY_QUOTA),
        ("1305", Reason.OVERLOAD),
        ("1312", Reason.OVERLOAD),
        ("1113", Reason.SPENDING),
        ("1309", Reason.SPENDING),
        ("1311", Reason.FORBIDDEN),
        ("1313", Reason.FORBIDDEN),
        ("1261", Reason.TOO_LARGE),
    ],
)
def test_glm_the_code_counts_and_not_the_text(code: str, expected: Reason) -> None:
    body = {"error": {"code": code, "message": "INSUFFICIENT QUOTA: daily limit, retry in 5 s"}}
    assert reason(429, body) is expected
    through_openai = read_feedback(fake_responses.openai_error(429, {}, body), now=NOW).refusal
    assert through_openai is not None
    assert through_openai.reason is expected
    assert reason(429, {"error": {"code": int(code), "message": ""}}) is expected


@pytest.mark.parametrize("code", ["1308", "1310"])
@pytest.mark.parametrize(
    "text",
    [
        "Usage limit reached. Your limit will reset at 2026-11-17 03:45:17",
        "您的限额将在 2026-11-17 03:45:17 重置。",
    ],
)
def test_glm_a_stated_reset_is_in_china(code: str, text: str) -> None:
    found = refusal(429, {"error": {"code": code, "message": text}})
    assert found.reason is Reason.STATED
    assert found.resets_at == datetime(2026, 11, 16, 19, 45, 17, tzinfo=UTC).timestamp()


@pytest.mark.parametrize("text", ["used up", "reset at 2026-13-99 03:45:17"])
def test_glm_a_reset_that_cannot_be_read_escalates(text: str) -> None:
    found = refusal(429, {"error": {"code": "1308", "message": text}})
    assert (found.reason, found.then) == (Reason.UNKNOWN, Reason.DAY_QUOTA)


def test_glm_blocked_content_is_the_jobs_own_trouble() -> None:
    assert read_feedback((429, {}, {"error": {"code": "1301", "message": "quota"}}), now=NOW).refusal is None


# ElevenLabs


@pytest.mark.parametrize(
    ("status", "word", "expected"),
    [
        (429, "too_many_concurrent_requests", Reason.CONCURRENCY),
        (429, "system_busy", Reason.OVERLOAD),
        (401, "quota_exceeded", Reason.SPENDING),
        (401, "invalid_api_key", Reason.FORBIDDEN),
        (400, "max_character_limit_exceeded", Reason.TOO_LARGE),
    ],
)
def test_elevenlabs_ours_and_theirs(status: int, word: str, expected: Reason) -> None:
    assert reason(status, {"detail": {"status": word, "message": "no"}}) is expected


def test_elevenlabs_says_how_many_at_once_and_what_it_cost() -> None:
    headers = {
        "current-concurrent-requests": "3",
        "maximum-concurrent-requests": "5",
        "character-cost": "120",
    }
    found = read_feedback((200, headers, b"ID3 some sound"), now=NOW)
    assert found.stated == (StatedLimit(unit="concurrent", window=0, limit=5, remaining=2),)
    assert found.usage == {"characters": 120}


# Every provider


WORDS: dict[str, Any] = {
    "gemini": {"error": {"code": 503, "status": "UNAVAILABLE", "message": "no"}},
    "gemini's key": {
        "error": {"status": "INVALID_ARGUMENT", "message": "no", "details": [{"reason": "API_KEY_INVALID"}]}
    },
    "gemini's plan": gemini_error((PER_DAY, "0"), message="no"),
    "gemini's day": gemini_error((PER_DAY, "9"), message="no"),
    "gemini's words": gemini_error(message="no"),
    "anthropic": anthropic("overloaded_error"),
    "anthropic's minute": anthropic("rate_limit_error"),
    "anthropic's connections": anthropic("rate_limit_error", "Number of concurrent connections"),
    "openai": {"error": {"code": "server_overloaded", "message": "no"}},
    "openai's minute": {"error": {"code": "rate_limit_exceeded", "message": "no"}},
    "glm": {"error": {"code": "1305", "message": "no"}},
    "glm's stated time": {"error": {"code": "1308", "message": "no"}},
    "elevenlabs": {"detail": {"status": "system_busy", "message": "no"}},
    "nobody's": {"error": {"message": "no"}},
}
NO_WAIT_HELPS = {"gemini's key", "gemini's plan"}


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("name", sorted(WORDS))
def test_a_refusal_has_the_status_the_text_and_the_hint(name: str, status: int) -> None:
    body = WORDS[name]
    message = body["detail"]["message"] if "detail" in body else body["error"]["message"]
    found = refusal(status, body, retry_after="17")
    assert (found.status, found.text) == (status, message)
    assert found.retry_after == (None if name in NO_WAIT_HELPS else 17)


@pytest.mark.parametrize("name", sorted(WORDS))
def test_a_refusal_says_nothing_that_the_provider_did_not(name: str) -> None:
    found = refusal(429, WORDS[name], retry_after="17")
    unit = "requests" if name == "gemini's day" else None
    assert (found.unit, found.resets_at, found.then) == (unit, None, None)
    assert not found.slow
    assert not found.bare


def test_a_day_in_words_goes_before_a_long_hint_which_stays() -> None:
    body = {"error": {"message": "Quota exceeded: requests per day"}}
    found = refusal(429, body, retry_after="3600")
    assert (found.reason, found.retry_after) == (Reason.DAY_QUOTA, 3600)
    minute = {"error": {"message": "Rate limit reached: 10 requests per minute"}}
    assert reason(429, minute) is Reason.RATE
    assert reason(429, minute, retry_after="3600") is Reason.STATED


def test_anthropic_a_limit_that_is_not_empty_is_no_reason() -> None:
    """A limit with units left was not the reason, and a limit without a reset gives no wait."""
    headers = {
        "anthropic-ratelimit-requests-remaining": "5",
        "anthropic-ratelimit-requests-reset": "2026-11-16T12:05:00Z",
        "anthropic-ratelimit-output-tokens-remaining": "0",
        "anthropic-ratelimit-output-tokens-reset": "2026-11-16T12:00:30Z",
    }
    found = read_feedback((429, headers, anthropic("rate_limit_error")), now=NOW).refusal
    assert found is not None
    assert (found.reason, found.unit, found.resets_at) == (Reason.RATE, "output_tokens", NOW + 30)
    unsaid = {"anthropic-ratelimit-requests-remaining": "0"}
    found = read_feedback((429, unsaid, anthropic("rate_limit_error")), now=NOW).refusal
    assert found is not None
    assert found.reason is Reason.SPENDING
