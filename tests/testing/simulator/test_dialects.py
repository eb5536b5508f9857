"""The replies of each dialect, compared with observed replies of the real providers."""

from __future__ import annotations

import asyncio
import re
import wave
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import pytest

from tests.testing.simulator.client_requests import GEMINI, chat_request, create_provider, last_reply
from tidemill.testing import START_TIME, run_virtual
from tidemill.testing.simulator import (
    AccelerationLimit,
    Dialect,
    Disruption,
    GeminiDialect,
    GlmDialect,
    Quota,
    RefusalCause,
    SimulatorReply,
    SimulatorRequest,
)
from tidemill.testing.simulator.dialects.openai import format_go_duration

TEN = Quota.rolling("requests", 10)


def answered(
    dialect: str | Dialect,
    *quotas: Quota,
    calls: int = 1,
    request: SimulatorRequest | None = None,
    **options: Any,
) -> SimulatorReply:
    """Makes `calls` calls to a new provider; returns the last reply."""

    async def scenario() -> SimulatorReply:
        name = dialect if isinstance(dialect, str) else dialect.name
        return await last_reply(
            create_provider(dialect, quotas or (TEN,), **options), request or chat_request(name), calls
        )

    return run_virtual(scenario())


def troubled(dialect: str | Dialect, reason: RefusalCause) -> SimulatorReply:
    return answered(dialect, disruptions=(Disruption(reason),))


@pytest.mark.parametrize("name", ["openai", "anthropic", "gemini", "glm"])
def test_every_answer_says_that_it_is_simulated_and_is_the_same_again(name: str) -> None:
    first, second = answered(name), answered(name)
    assert first == second
    assert first.status == 200
    assert first.headers["x-simulator"] == "tidemill"
    assert answered(name, calls=11).headers["x-simulator"] == "tidemill"


def test_openai_answers_with_usage_and_headers() -> None:
    request = chat_request("openai", x_input_tokens="82", x_output_tokens="17")
    request.body["max_tokens"] = 100
    quotas = (Quota.bucket("requests", 500), Quota.bucket("tokens", 30_000))
    answer = answered("openai", *quotas, request=request, charge="admission")
    assert answer.body["usage"] == {"prompt_tokens": 82, "completion_tokens": 17, "total_tokens": 99}
    assert answer.body["choices"][0]["message"]["role"] == "assistant"
    assert {name: value for name, value in answer.headers.items() if name.startswith("x-ratelimit")} == {
        "x-ratelimit-limit-requests": "500",
        "x-ratelimit-remaining-requests": "499",
        "x-ratelimit-reset-requests": "120ms",
        "x-ratelimit-limit-tokens": "30000",
        "x-ratelimit-remaining-tokens": "29900",
        "x-ratelimit-reset-tokens": "200ms",
    }


def test_openais_reset_gives_away_the_window() -> None:
    """window = reset * limit / (limit - remaining), and the first quota named may be the daily one."""
    quotas = (Quota.bucket("requests", 200, per=86_400), Quota.bucket("requests", 3))
    headers = answered("openai", *quotas).headers
    assert headers["x-ratelimit-reset-requests"] == "7m12s"
    assert 432 * 200 / (200 - int(headers["x-ratelimit-remaining-requests"])) == 86_400


def test_openai_refuses_a_minute() -> None:
    request = chat_request("openai", x_input_tokens="24754")
    answer = answered("openai", Quota.bucket("tokens", 30_000), calls=2, request=request, charge="admission")
    assert answer.status == 429
    assert answer.body == {
        "error": {
            "message": "Rate limit reached for gpt-4o in organization org-simulated on tokens per min (TPM): "
            "Limit 30000, Used 24754, Requested 24754. Please try again in 39.016s. "
            "Visit https://platform.openai.com/account/rate-limits to learn more.",
            "type": "tokens",
            "param": None,
            "code": "rate_limit_exceeded",
        }
    }
    assert answer.headers["retry-after"] == "40"
    assert answer.headers["x-ratelimit-remaining-tokens"] == "5246"


def test_openai_refuses_for_other_reasons() -> None:
    large = answered(
        "openai",
        Quota.bucket("tokens", 30_000),
        request=chat_request("openai", x_input_tokens="36278"),
        charge="admission",
    )
    assert large.status == 429
    assert "Request too large for gpt-4o" in large.body["error"]["message"]
    assert "Limit 30000, Requested 36278" in large.body["error"]["message"]
    credit = troubled("openai", RefusalCause.NO_CREDIT)
    assert (credit.status, credit.body["error"]["code"]) == (429, "insufficient_quota")
    assert "retry-after" not in credit.headers
    assert troubled("openai", RefusalCause.OVERLOAD).status == 503
    assert troubled("openai", RefusalCause.WRONG_KEY).status == 401
    slow = answered("openai", calls=2, acceleration=AccelerationLimit(free=1))
    assert (slow.status, slow.body["error"]["code"]) == (503, "slow_down")


def test_openai_embeds() -> None:
    body = {"model": "text-embedding-3-small", "input": ["low tide", "high tide"]}
    answer = answered("openai", request=SimulatorRequest("/v1/embeddings", body))
    assert [row["index"] for row in answer.body["data"]] == [0, 1]
    assert answer.body["data"][0]["embedding"] != answer.body["data"][1]["embedding"]
    assert answer.body["usage"] == {"prompt_tokens": 5, "total_tokens": 5}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (0.012, "12ms"),
        (8.64, "8.64s"),
        (360, "6m0s"),
        (3723, "1h2m3s"),
        (0.9996, "1s"),
        (59.9999, "1m0s"),
    ],
)
def test_durations_are_written_as_go_does(seconds: float, text: str) -> None:
    assert format_go_duration(seconds) == text


def test_anthropic_answers_with_headers_for_every_unit() -> None:
    quotas = (
        Quota.bucket("requests", 50),
        Quota.bucket("input_tokens", 30_000),
        Quota.bucket("output_tokens", 8_000),
    )
    request = chat_request("anthropic", x_input_tokens="500", x_output_tokens="80")
    answer = answered("anthropic", *quotas, request=request)
    assert answer.body["usage"]["input_tokens"] == 500
    assert answer.body["usage"]["output_tokens"] == 80
    start = "anthropic-ratelimit-"
    found = {name.removeprefix(start): v for name, v in answer.headers.items() if name.startswith(start)}
    soon = datetime.fromtimestamp(START_TIME + 2, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    once = datetime.fromtimestamp(START_TIME + 1, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert found == {
        "requests-limit": "50",
        "requests-remaining": "49",
        "requests-reset": soon,
        "input-tokens-limit": "30000",
        "input-tokens-remaining": "29500",
        "input-tokens-reset": once,
        "output-tokens-limit": "8000",
        "output-tokens-remaining": "7920",
        "output-tokens-reset": once,
    }


def test_anthropic_refuses_a_minute_with_a_hint_and_a_spend_cap_without() -> None:
    request = chat_request("anthropic", x_input_tokens="20000")
    answer = answered("anthropic", Quota.bucket("input_tokens", 30_000), calls=2, request=request)
    assert answer.status == 429
    assert answer.body["type"] == "error"
    assert answer.body["error"]["type"] == "rate_limit_error"
    assert answer.body["error"]["message"].startswith(
        "This request would exceed the rate limit for your organization of 30,000 input tokens per minute."
    )
    assert answer.headers["retry-after"] == "20"
    cap = troubled("anthropic", RefusalCause.SPEND_CAP)
    assert (cap.status, cap.body["error"]["type"]) == (429, "rate_limit_error")
    assert "retry-after" not in cap.headers


def test_anthropic_overload_is_not_our_quota() -> None:
    answer = troubled("anthropic", RefusalCause.OVERLOAD)
    assert answer.status == 529
    assert answer.body["error"] == {"type": "overloaded_error", "message": "Overloaded"}
    sharp = answered("anthropic", calls=2, acceleration=AccelerationLimit(free=1))
    assert (sharp.status, "retry-after" in sharp.headers) == (429, True)


def details(answer: SimulatorReply, kind: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = answer.body["error"]["details"]
    return next(one for one in found if one["@type"] == f"type.googleapis.com/google.rpc.{kind}")


def test_gemini_refuses_a_minute_in_the_body_and_has_no_headers() -> None:
    quotas = (Quota.rolling("requests", 1), Quota.rolling("input_tokens", 100))
    answer = answered("gemini", *quotas, calls=2, request=chat_request("gemini", x_input_tokens="60"))
    assert answer.status == answer.body["error"]["code"] == 429
    assert answer.body["error"]["status"] == "RESOURCE_EXHAUSTED"
    assert set(answer.headers) == {"content-type", "x-simulator"}
    dimensions = {"location": "global", "model": "gemini-2.5-flash"}
    assert details(answer, "QuotaFailure")["violations"] == [
        {
            "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_requests",
            "quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier",
            "quotaDimensions": dimensions,
            "quotaValue": "1",
        },
        {
            "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_input_token_count",
            "quotaId": "GenerateContentInputTokensPerModelPerMinute-FreeTier",
            "quotaDimensions": dimensions,
            "quotaValue": "100",
        },
    ]
    assert details(answer, "RetryInfo")["retryDelay"] == "60s"
    assert answer.body["error"]["message"].endswith("Please retry in 60s.")
    assert ", limit: 1, model: gemini-2.5-flash" in answer.body["error"]["message"]


def test_gemini_refuses_a_day_with_a_short_hint_or_the_true_one() -> None:
    quota = Quota.day("requests", 1, zone="America/Los_Angeles")
    answer = answered("gemini", quota, calls=2)
    (violation,) = details(answer, "QuotaFailure")["violations"]
    assert violation["quotaId"] == "GenerateRequestsPerDayPerProjectPerModel-FreeTier"
    assert details(answer, "RetryInfo")["retryDelay"] == "20.04s"
    assert "Please retry in 20.04s" in answer.body["error"]["message"]
    true = answered(GeminiDialect(day_hint=None), quota, calls=2)
    assert details(true, "RetryInfo")["retryDelay"] == f"{8 * 3600}s"  # it starts at midnight UTC


def test_gemini_says_limit_0_when_the_model_is_not_on_the_tier() -> None:
    for answer in (
        troubled("gemini", RefusalCause.NOT_ON_TIER),
        answered("gemini", Quota.rolling("requests", 0)),
    ):
        assert answer.status == 429
        assert "limit: 0" in answer.body["error"]["message"]
        assert details(answer, "QuotaFailure")["violations"][0]["quotaValue"] == "0"


def test_gemini_is_overloaded_with_503_and_out_of_money_without_details() -> None:
    answer = troubled("gemini", RefusalCause.OVERLOAD)
    assert (answer.status, answer.body["error"]["status"]) == (503, "UNAVAILABLE")
    assert "details" not in troubled("gemini", RefusalCause.SPEND_CAP).body["error"]


def test_gemini_embeds_one_and_many() -> None:
    one = answered(
        "gemini", request=SimulatorRequest(f"{GEMINI}:embedContent", {"content": {"parts": [{"text": "a"}]}})
    )
    several = [{"content": {"parts": [{"text": text}]}} for text in "ab"]
    many = answered("gemini", request=SimulatorRequest(f"{GEMINI}:batchEmbedContents", {"requests": several}))
    assert one.body["embedding"] == many.body["embeddings"][0] != many.body["embeddings"][1]


@pytest.mark.parametrize(
    ("reason", "status", "code"),
    [
        (RefusalCause.OVERLOAD, 429, "1305"),
        (RefusalCause.NO_CREDIT, 429, "1113"),
        (RefusalCause.PLAN_EXPIRED, 429, "1309"),
        (RefusalCause.NOT_ON_TIER, 429, "1311"),
        (RefusalCause.FAIR_USE, 429, "1313"),
        (RefusalCause.CONTENT, 429, "1301"),
        (RefusalCause.WRONG_KEY, 401, "1000"),
    ],
)
def test_glm_says_it_in_a_code(reason: RefusalCause, status: int, code: str) -> None:
    answer = troubled("glm", reason)
    assert (answer.status, answer.body["error"]["code"]) == (status, code)
    assert set(answer.headers) == {"content-type", "x-simulator"}


def test_glm_codes_of_quotas() -> None:
    def code(*quotas: Quota) -> str:
        return str(answered("glm", *quotas, calls=2).body["error"]["code"])

    assert code(Quota.rolling("requests", 1)) == "1303"
    assert code(Quota.rolling("requests", 1), Quota.day("requests", 1, zone="Asia/Shanghai")) == "1304"
    assert troubled(GlmDialect(overload="1312"), RefusalCause.OVERLOAD).body["error"]["code"] == "1312"

    async def two_at_once() -> list[SimulatorReply]:
        used = create_provider("glm", [Quota.concurrent(1)], latency=(1, 1))
        return list(await asyncio.gather(*(used.call(chat_request("glm")) for _ in range(2))))

    answers = run_virtual(two_at_once())
    assert [answer.status for answer in answers] == [200, 429]
    assert answers[1].body["error"]["code"] == "1302"


@pytest.mark.parametrize(("hours", "code"), [(5, "1308"), (7 * 24, "1310")])
def test_glm_states_the_reset_of_a_period_in_beijing_time(hours: int, code: str) -> None:
    answer = answered("glm", Quota.period("requests", 1, per=hours * 3600.0), calls=2)
    assert answer.body["error"]["code"] == code
    stated = re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", answer.body["error"]["message"])
    assert stated is not None
    moment = datetime.fromisoformat(f"{stated[0]}+08:00")
    assert moment.timestamp() == START_TIME + hours * 3600


def test_glm_embeds_as_openai_does() -> None:
    body = {"model": "embedding-3", "input": "tide"}
    answer = answered("glm", request=SimulatorRequest("/api/paas/v4/embeddings", body))
    assert len(answer.body["data"]) == 1


@pytest.mark.parametrize("name", ["openai", "anthropic", "gemini", "glm"])
def test_an_invalid_request_is_refused_and_not_counted(name: str) -> None:
    async def scenario() -> None:
        used = create_provider(name, [TEN])
        assert (await used.call(SimulatorRequest("/v2/nothing"))).status == 404
        assert (await used.call(SimulatorRequest(chat_request(name).path, {}))).status == 400
        assert used.request_log.arrivals == []

    run_virtual(scenario())


def test_a_reason_the_provider_does_not_know_is_refused_where_it_is_written() -> None:
    with pytest.raises(ValueError, match="gemini never refuses for: plan expired"):
        troubled("gemini", RefusalCause.PLAN_EXPIRED)
    with pytest.raises(ValueError, match="anthropic never refuses for: day"):
        answered("anthropic", Quota.day("requests", 1))


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("openai", {"metadata": {"job": "m-7"}}),
        ("anthropic", {"metadata": {"user_id": "m-7"}}),
        ("glm", {"request_id": "m-7"}),
    ],
)
def test_the_mark_may_come_in_the_body(name: str, body: dict[str, Any]) -> None:
    async def scenario() -> None:
        used = create_provider(name, [TEN])
        request = chat_request(name)
        await used.call(SimulatorRequest(request.path, request.body | body))
        assert [bill.mark for bill in used.request_log.bills] == ["m-7"]

    run_virtual(scenario())


def test_openai_speaks_labelled_audio() -> None:
    body = {"model": "tts-1", "voice": "alloy", "input": "潮水来了", "response_format": "wav"}
    answer = answered("openai", request=SimulatorRequest("/v1/audio/speech", body))
    assert (answer.headers["content-type"], answer.headers["x-simulator"]) == ("audio/wav", "tidemill")
    assert b"tidemill simulator" in answer.audio[:100]
    with wave.open(BytesIO(answer.audio)) as file:
        assert file.getnframes() / file.getframerate() == pytest.approx(4 * 0.24, abs=0.01)


def test_openai_speaks_wav_only_and_glm_not_at_all() -> None:
    body = {"model": "tts-1", "input": "text", "response_format": "opus"}
    request = SimulatorRequest("/v1/audio/speech", body)
    assert (answered("openai", request=request).status, answered("glm", request=request).status) == (400, 404)
