"""The OpenAI API: `x-ratelimit-*` headers with the time until the quota is full again, `Retry-After`, and
error codes in the body."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

from tidemill.testing.simulator.account import QuotaStatus
from tidemill.testing.simulator.dialects.base import Dialect, ReplyContext, extract_texts, positive_or_zero
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

RATE_LIMIT_HELP = "Visit https://platform.openai.com/account/rate-limits to learn more."
UNIT_ABBREVIATIONS = {"requests": "R", "tokens": "T", "input_tokens": "T", "output_tokens": "T"}
FINISH_REASONS = {"stop": "stop", "length": "length", "blocked": "content_filter"}
WINDOW_ABBREVIATIONS = {
    60.0: ("min", "PM"),
    86_400.0: ("day", "PD"),
    3600.0: ("hour", "PH"),
    1.0: ("sec", "PS"),
}


CallKind = Literal["chat", "embed", "speech"]


class OpenAIDialect(Dialect):
    name: ClassVar[str] = "openai"
    supported_causes: ClassVar[frozenset[RefusalCause]] = frozenset(
        {
            RefusalCause.RATE,
            RefusalCause.DAY,
            RefusalCause.TOO_LARGE,
            RefusalCause.ACCELERATION,
            RefusalCause.OVERLOAD,
            RefusalCause.NO_CREDIT,
            RefusalCause.WRONG_KEY,
        }
    )
    chat = "/v1/chat/completions"
    embeddings = "/v1/embeddings"
    speech = "/v1/audio/speech"

    def read(self, request: SimulatorRequest, default_output_tokens: int) -> SimulatorCall:
        kinds: dict[str, CallKind] = {self.chat: "chat", self.embeddings: "embed", self.speech: "speech"}
        if request.path not in kinds:
            raise InvalidSimulatorRequest(
                SimulatorReply(
                    404,
                    {},
                    error_reply(f"Invalid URL ({request.method} {request.path})", "invalid_request_error"),
                )
            )
        kind, body = kinds[request.path], request.body
        _require_fields(body, ("model", "messages" if kind == "chat" else "input"))
        texts = extract_texts(body["messages" if kind == "chat" else "input"])
        most = positive_or_zero(body.get("max_completion_tokens")) or positive_or_zero(body.get("max_tokens"))
        if kind == "speech" and body.get("response_format") != "wav":
            message = "the simulator speaks wav only"
            raise InvalidSimulatorRequest(SimulatorReply(400, {}, error_reply(message, "simulator")))
        return SimulatorCall(
            kind=kind,
            model=body["model"],
            key=read_api_key(request),
            mark=read_job_mark(request),
            texts=texts,
            input_tokens=count_input_tokens(texts, request),
            output_tokens=count_output_tokens(request, default_output_tokens, most) if kind == "chat" else 0,
            max_tokens=most if kind == "chat" else 0,
            dimensions=positive_or_zero(body.get("dimensions")),
            speed=float(body.get("speed") or 1.0),
        )

    def answer(self, call: SimulatorCall, context: ReplyContext) -> SimulatorReply:
        headers = rate_limit_headers(context)
        if call.kind == "speech":
            return SimulatorReply(200, headers | {"content-type": "audio/wav"}, {}, context.content.audio)
        return SimulatorReply(200, headers, completion_body(call, context))

    def refuse(self, call: SimulatorCall, context: ReplyContext) -> SimulatorReply:
        match context.verdict.reason:
            case RefusalCause.NO_CREDIT:
                text = (
                    "You exceeded your current quota, please check your plan and billing details. For more "
                    "information on this error, read the docs: "
                    "https://platform.openai.com/docs/guides/error-codes/api-errors."
                )
                return SimulatorReply(429, {}, error_reply(text, "insufficient_quota", "insufficient_quota"))
            case RefusalCause.WRONG_KEY:
                text = "Incorrect API key provided. You can find your API key in your account settings."
                return SimulatorReply(401, {}, error_reply(text, "invalid_request_error", "invalid_api_key"))
            case RefusalCause.OVERLOAD:
                text = "The engine is currently overloaded, please try again later."
                return SimulatorReply(503, {}, error_reply(text, "server_error"))
            case RefusalCause.ACCELERATION:
                text = "Slow down: your request rate has risen too fast. Reduce it and raise it gradually."
                return SimulatorReply(503, {}, error_reply(text, "server_error", "slow_down"))
            case _:
                return _rate_limit_reply(call, context)


def _require_fields(body: dict[str, Any], fields: tuple[str, ...]) -> None:
    for field in fields:
        if field not in body or (field == "model" and not isinstance(body[field], str)):
            message, code = f"Missing required parameter: '{field}'.", "missing_required_parameter"
            raise InvalidSimulatorRequest(
                SimulatorReply(400, {}, error_reply(message, "invalid_request_error", code, field))
            )


def _rate_limit_reply(call: SimulatorCall, context: ReplyContext) -> SimulatorReply:
    worst = context.worst()
    if worst is None:  # reasons without a quota are handled above
        raise ValueError(f"{context.verdict.reason}: this dialect has no words for it")
    unit = "requests" if worst.quota.unit == "requests" else "tokens"
    word, short = (
        ("day", "PD")
        if worst.quota.shape == "day"
        else WINDOW_ABBREVIATIONS.get(worst.quota.per, ("window", "PW"))
    )
    short = f"{UNIT_ABBREVIATIONS[worst.quota.unit]}{short}"
    where = f"for {call.model} in organization org-simulated on {unit} per {word} ({short})"
    if context.verdict.reason is RefusalCause.TOO_LARGE:
        text = (
            f"Request too large {where}: Limit {worst.amount}, Requested {worst.needed}. The input or output "
            f"tokens must be reduced in order to run successfully. {RATE_LIMIT_HELP}"
        )
        return SimulatorReply(
            429, rate_limit_headers(context), error_reply(text, unit, "rate_limit_exceeded")
        )
    wait = context.wait() or 0.0
    used = worst.amount - worst.left
    text = (
        f"Rate limit reached {where}: Limit {worst.amount}, Used {used}, Requested {worst.needed}. "
        f"Please try again in {format_go_duration(wait)}. {RATE_LIMIT_HELP}"
    )
    hints = {"retry-after": str(math.ceil(wait)), "retry-after-ms": str(math.ceil(wait * 1000))}
    return SimulatorReply(
        429, rate_limit_headers(context) | hints, error_reply(text, unit, "rate_limit_exceeded")
    )


def rate_limit_headers(context: ReplyContext) -> dict[str, str]:
    """Returns the rate-limit headers, for `requests` and for `tokens`. If several quotas count the same unit,
    the headers describe the first of them."""
    found: dict[str, QuotaStatus] = {}
    for quota_status in context.verdict.quota_statuses:
        unit = "requests" if quota_status.quota.unit == "requests" else "tokens"
        if quota_status.quota.shape != "concurrent":
            found.setdefault(unit, quota_status)
    made = {"x-request-id": f"req_simulated{context.number:08d}"}
    for unit, quota_status in found.items():
        made[f"x-ratelimit-limit-{unit}"] = str(quota_status.amount)
        made[f"x-ratelimit-remaining-{unit}"] = str(max(0, quota_status.left))
        made[f"x-ratelimit-reset-{unit}"] = format_go_duration(context.seconds(quota_status.full))
    return made


def format_go_duration(seconds: float) -> str:
    """Formats a duration like Go: `12ms`, `8.64s`, `6m0s`, `1h2m3s`."""
    thousandths = math.ceil(round(seconds * 1000, 3))
    if thousandths < 1000:  # noqa: PLR2004 - one second
        return f"{thousandths}ms"
    minutes, rest = divmod(thousandths, 60_000)
    hours, minutes = divmod(minutes, 60)
    context = f"{rest / 1000:g}s"
    if hours:
        return f"{hours}h{minutes}m{context}"
    return f"{minutes}m{context}" if minutes else context


def error_reply(message: str, kind: str, code: str | None = None, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def completion_body(call: SimulatorCall, context: ReplyContext) -> dict[str, Any]:
    if call.kind == "embed":
        rows = [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in context.content.vectors
        ]
        usage = {"prompt_tokens": call.input_tokens, "total_tokens": call.input_tokens}
        return {"object": "list", "data": rows, "model": call.model, "usage": usage}
    message = {"role": "assistant", "content": context.content.text, "refusal": None}
    return {
        "id": f"chatcmpl-simulated{context.number:08d}",
        "object": "chat.completion",
        "created": int(context.wall),
        "model": call.model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": FINISH_REASONS[context.content.finish],
            }
        ],
        "usage": {
            "prompt_tokens": call.input_tokens,
            "completion_tokens": call.output_tokens,
            "total_tokens": call.input_tokens + call.output_tokens,
        },
    }
