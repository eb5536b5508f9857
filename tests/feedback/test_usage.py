"""The usage of a call, in each provider's format."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill.feedback import read_feedback

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("body", "usage"),
    [
        (
            {"usage": {"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21}},
            {"tokens": 21, "input_tokens": 9, "output_tokens": 12},
        ),
        ({"usage": {"prompt_tokens": 8, "total_tokens": 8}}, {"tokens": 8, "input_tokens": 8}),
        ({"usage": {"total_tokens": 10}}, {"tokens": 10}),
        (
            {"usage": {"input_tokens": 10, "cache_read_input_tokens": 500, "output_tokens": 7}},
            {"tokens": 17, "input_tokens": 10, "output_tokens": 7},
        ),
        (
            {"usage": {"input_tokens": 10, "cache_creation_input_tokens": 90, "output_tokens": 7}},
            {"tokens": 107, "input_tokens": 100, "output_tokens": 7},
        ),
        (
            {"type": "message_start", "message": {"usage": {"input_tokens": 10, "output_tokens": 1}}},
            {"tokens": 11, "input_tokens": 10, "output_tokens": 1},
        ),
        ({"usageMetadata": {"promptTokenCount": 8}}, {"tokens": 8, "input_tokens": 8}),
        (
            {
                "usageMetadata": {
                    "promptTokenCount": 8,
                    "toolUsePromptTokenCount": 2,
                    "candidatesTokenCount": 4,
                }
            },
            {"tokens": 14, "input_tokens": 10, "output_tokens": 4},
        ),
        ({"meta": {"billed_units": {"input_tokens": 5}}}, {"tokens": 5, "input_tokens": 5}),
        ({"usageMetadata": {"trafficType": "ON_DEMAND"}}, None),
        ({"usageMetadata": {"totalTokenCount": 9}}, {"tokens": 9}),
        ({"usage_metadata": {"candidates_token_count": 4}}, {"tokens": 4, "output_tokens": 4}),
        (
            {"usage_metadata": {"tool_use_prompt_token_count": 2, "thoughts_token_count": 3}},
            {"tokens": 5, "input_tokens": 2, "output_tokens": 3},
        ),
        (
            {
                "usageMetadata": {
                    "promptTokenCount": 8,
                    "candidatesTokenCount": 4,
                    "thoughtsTokenCount": 30,
                    "totalTokenCount": 50,
                }
            },
            {"tokens": 50, "input_tokens": 8, "output_tokens": 34},
        ),
        ({"usage": {"output_tokens": 7}}, {"tokens": 7, "output_tokens": 7}),
        ({"usage": {"cache_creation_input_tokens": 90}}, {"tokens": 90, "input_tokens": 90}),
        ({"usage": {"service_tier": "standard"}}, None),
        ({"response": {"usage": {"total_tokens": 6}}}, {"tokens": 6}),
        ({"usage": None}, None),
        ({"usage": {"total_tokens": -5}}, None),
        ({"usage": {"total_tokens": float("nan")}}, None),
        ({"usage": {"total_tokens": True}}, None),
        ({"usage": "much"}, None),
        ({"error": {"message": "no"}}, None),
        ({}, None),
    ],
)
def test_usage(body: dict[str, Any], usage: dict[str, float] | None) -> None:
    assert read_feedback((200, {}, body), now=NOW).usage == usage
    assert read_feedback(body, now=NOW).usage == usage
