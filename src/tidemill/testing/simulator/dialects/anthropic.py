"""Anthropic: `anthropic-ratelimit-*` headers with the reset time, `retry-after`, and 529 for an overload.

A refusal because of the spend cap has no `retry-after`."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, ClassVar

from tidemill.testing.simulator.dialects.base import (
    Dialect,
    ReplyContext,
    extract_texts,
    format_window,
    positive_or_zero,
)
from tidemill.testing.simulator.http_messages import (
    InvalidSimulatorRequest,
    SimulatorCall,
    SimulatorReply,
    SimulatorRequest,
    count_input_tokens,
    count_output_tokens,
    read_api_key,
    read_job_mark,
)
from tidemill.testing.simulator.options import RefusalCause

STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "blocked": "refusal"}
UNIT_NAMES = {
    "requests": "requests",
    "tokens": "tokens",
    "input_tokens": "input-tokens",
    "output_tokens": "output-tokens",
}
RATE_LIMIT_HELP = "For details, refer to: https://docs.claude.com/en/api/rate-limits."


class AnthropicDialect(Dialect):
    name: ClassVar[str] = "anthropic"
    supported_causes: ClassVar[frozenset[RefusalCause]] = frozenset(
        {
            RefusalCause.RATE,
            RefusalCause.TOO_LARGE,
            RefusalCause.CONCURRENCY,
            RefusalCause.ACCELERATION,
            RefusalCause.OVERLOAD,
            RefusalCause.SPEND_CAP,
            RefusalCause.NO_CREDIT,
            RefusalCause.WRONG_KEY,
        }
    )

    def read(self, request: SimulatorRequest, default_output_tokens: int) -> SimulatorCall:
        if request.path != "/v1/messages":
            raise InvalidSimulatorRequest(
                SimulatorReply(404, {}, _error_body("not_found_error", "Not found", 0))
            )
        for field in ("model", "max_tokens", "messages"):
            if field not in request.body:
                text = f"{field}: Field required"
                raise InvalidSimulatorRequest(
                    SimulatorReply(400, {}, _error_body("invalid_request_error", text, 0))
                )
        texts = extract_texts(request.body.get("system")) + extract_texts(request.body["messages"])
        most = positive_or_zero(request.body["max_tokens"])
        return SimulatorCall(
            kind="chat",
            model=str(request.body["model"]),
            key=read_api_key(request),
            mark=read_job_mark(request),
            texts=texts,
            input_tokens=count_input_tokens(texts, request),
            output_tokens=count_output_tokens(request, default_output_tokens, most),
            max_tokens=most,
        )

    def answer(self, call: SimulatorCall, context: ReplyContext) -> SimulatorReply:
        body = {
            "id": f"msg_simulated{context.number:08d}",
            "type": "message",
            "role": "assistant",
            "model": call.model,
            "content": [{"type": "text", "text": context.content.text}],
            "stop_reason": STOP_REASONS[context.content.finish],
            "stop_sequence": None,
            "usage": {
                "input_tokens": call.input_tokens,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": call.output_tokens,
            },
        }
        return SimulatorReply(200, _rate_limit_headers(context), body)

    def refuse(self, call: SimulatorCall, context: ReplyContext) -> SimulatorReply:  # noqa: ARG002 - every call gets the same reply
        ours = _rate_limit_headers(context)
        match context.verdict.reason:
            case RefusalCause.OVERLOAD:
                return SimulatorReply(
                    529, _message_id(context), _error_body("overloaded_error", "Overloaded", context.number)
                )
            case RefusalCause.SPEND_CAP:
                text = "You have reached your organization's spend limit for this month."
                return SimulatorReply(
                    429, _message_id(context), _error_body("rate_limit_error", text, context.number)
                )
            case RefusalCause.NO_CREDIT:
                text = "Your credit balance is too low to access the Anthropic API."
                return SimulatorReply(
                    400, _message_id(context), _error_body("invalid_request_error", text, context.number)
                )
            case RefusalCause.WRONG_KEY:
                return SimulatorReply(
                    401,
                    _message_id(context),
                    _error_body("authentication_error", "invalid x-api-key", context.number),
                )
            case RefusalCause.ACCELERATION:
                text = f"Your usage has increased too sharply; please raise it gradually. {RATE_LIMIT_HELP}"
                return SimulatorReply(
                    429, ours | {"retry-after": "1"}, _error_body("rate_limit_error", text, context.number)
                )
            case _:
                return _rate_limit_reply(context)


def _rate_limit_reply(context: ReplyContext) -> SimulatorReply:
    """Builds a 429 with `retry-after`. A 429 without this header would mean a reached spend cap."""
    worst = context.worst()
    if worst is None:  # reasons without a quota are handled above
        raise ValueError(f"{context.verdict.reason}: this dialect has no words for it")
    if worst.quota.shape == "concurrent":
        text = "Number of concurrent connections has exceeded your rate limit. Please try again later."
    else:
        unit = worst.quota.unit.replace("_", " ")
        text = (
            f"This request would exceed the rate limit for your organization of {worst.amount:,} {unit} per "
            f"{format_window(worst)}. {RATE_LIMIT_HELP} You can see the response headers for current usage."
        )
    wait = context.wait()
    if wait is None:
        wait = context.seconds(worst.full)
    hint = {"retry-after": str(max(1, math.ceil(wait)))}
    return SimulatorReply(
        429, _rate_limit_headers(context) | hint, _error_body("rate_limit_error", text, context.number)
    )


def _rate_limit_headers(context: ReplyContext) -> dict[str, str]:
    """Returns the rate limit headers. `reset` is the time at which the whole quota is free again.

    If several quotas have the same unit, the headers describe the first one."""
    made = _message_id(context)
    for quota_status in reversed(context.verdict.quota_statuses):
        if quota_status.quota.unit in UNIT_NAMES:
            start = f"anthropic-ratelimit-{UNIT_NAMES[quota_status.quota.unit]}"
            made[f"{start}-limit"] = str(quota_status.amount)
            made[f"{start}-remaining"] = str(max(0, quota_status.left))
            made[f"{start}-reset"] = _format_time(context.until(quota_status.full))
    return made


def _format_time(wall: float) -> str:
    return datetime.fromtimestamp(math.ceil(wall), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _message_id(context: ReplyContext) -> dict[str, str]:
    return {"request-id": f"req_simulated{context.number:08d}"}


def _error_body(kind: str, message: str, number: int) -> dict[str, Any]:
    inside = {"type": kind, "message": message}
    return {"type": "error", "error": inside, "request_id": f"req_simulated{number:08d}"}
