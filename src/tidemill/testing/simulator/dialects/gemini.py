"""The Gemini API: it sends no rate-limit headers. The body of a 429 has `QuotaFailure` and `RetryInfo`."""

from __future__ import annotations

import re
from typing import Any, ClassVar

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

PATH_PATTERN = re.compile(
    r"/v1(?:beta)?/models/([^/:]+):(generateContent|streamGenerateContent|embedContent|batchEmbedContents)"
)
CHAT_VERBS = ("generateContent", "streamGenerateContent")
FINISH_REASONS = {"stop": "STOP", "length": "MAX_TOKENS", "blocked": "SAFETY"}
RATE_LIMIT_HELP_URL = "https://ai.google.dev/gemini-api/docs/rate-limits"
RPC_TYPE_PREFIX = "type.googleapis.com/google.rpc."


class GeminiDialect(Dialect):
    """The Gemini API. `day_hint` is the retry delay in seconds after the daily quota is used up. The real API
    sends a delay that is too short; with `day_hint=None` the simulator sends the correct one."""

    name: ClassVar[str] = "gemini"
    supported_causes: ClassVar[frozenset[RefusalCause]] = frozenset(
        {
            RefusalCause.RATE,
            RefusalCause.DAY,
            RefusalCause.TOO_LARGE,
            RefusalCause.NOT_ON_TIER,
            RefusalCause.OVERLOAD,
            RefusalCause.SPEND_CAP,
            RefusalCause.WRONG_KEY,
        }
    )

    def __init__(self, *, day_hint: float | None = 20.04) -> None:
        self._day_hint = day_hint

    def read(self, request: SimulatorRequest, default_output_tokens: int) -> SimulatorCall:
        found = PATH_PATTERN.fullmatch(request.path.partition("?")[0])
        if found is None:
            raise InvalidSimulatorRequest(
                SimulatorReply(404, {}, _error_reply(404, "NOT_FOUND", "Requested entity was not found."))
            )
        model, verb = found.groups()
        body = request.body
        match verb:
            case "generateContent" | "streamGenerateContent":
                texts = extract_texts(body.get("systemInstruction")) + extract_texts(body.get("contents"))
            case "embedContent":
                texts = extract_texts(body.get("content"))
            case _:
                texts = extract_texts([part.get("content") for part in body.get("requests", [])])
        if not texts:
            text = "* GenerateContentRequest.contents: contents is not specified\n"
            raise InvalidSimulatorRequest(
                SimulatorReply(400, {}, _error_reply(400, "INVALID_ARGUMENT", text))
            )
        most = positive_or_zero(body.get("generationConfig", {}).get("maxOutputTokens"))
        chat = verb in CHAT_VERBS
        return SimulatorCall(
            kind="chat" if chat else "embed",
            model=model,
            key=read_api_key(request),
            mark=read_job_mark(request),
            texts=texts,
            input_tokens=count_input_tokens(texts, request),
            output_tokens=count_output_tokens(request, default_output_tokens, most) if chat else 0,
            max_tokens=most if chat else 0,
            single=verb == "embedContent",
            dimensions=0 if chat else _read_dimensions(verb, body),
        )

    def answer(self, call: SimulatorCall, context: ReplyContext) -> SimulatorReply:
        if call.kind == "embed":
            vectors = [{"values": vector} for _, vector in context.content.vectors]
            if call.single:
                return SimulatorReply(200, {}, {"embedding": vectors[0]} if vectors else {})
            return SimulatorReply(200, {}, {"embeddings": vectors})
        usage = {
            "promptTokenCount": call.input_tokens,
            "candidatesTokenCount": call.output_tokens,
            "totalTokenCount": call.input_tokens + call.output_tokens,
        }
        body = {
            "candidates": [_build_candidate(context)],
            "usageMetadata": usage,
            "modelVersion": call.model,
            "responseId": f"simulated{context.number:08d}",
        }
        return SimulatorReply(200, {}, body)

    def refuse(self, call: SimulatorCall, context: ReplyContext) -> SimulatorReply:
        match context.verdict.reason:
            case RefusalCause.OVERLOAD:
                text = "The model is overloaded. Please try again later."
                return SimulatorReply(503, {}, _error_reply(503, "UNAVAILABLE", text))
            case RefusalCause.WRONG_KEY:
                text = "API key not valid. Please pass a valid API key."
                info = {
                    "@type": f"{RPC_TYPE_PREFIX}ErrorInfo",
                    "reason": "API_KEY_INVALID",
                    "domain": "googleapis.com",
                }
                return SimulatorReply(400, {}, _error_reply(400, "INVALID_ARGUMENT", text, info))
            case RefusalCause.SPEND_CAP:
                text = "Your project has exceeded its spending cap. Please go to AI Studio to manage it."
                return SimulatorReply(429, {}, _error_reply(429, "RESOURCE_EXHAUSTED", text))
            case _:
                return self._quota(call, context)

    def _quota(self, call: SimulatorCall, context: ReplyContext) -> SimulatorReply:
        never = context.verdict.reason is RefusalCause.NOT_ON_TIER
        broken = context.verdict.violated or context.verdict.quota_statuses
        violations = [
            _build_violation(call, violation, 0 if never else violation.amount) for violation in broken
        ]
        lines = [
            f"\n* Quota exceeded for metric: {violation['quotaMetric']}, limit: {violation['quotaValue']}, "
            f"model: {call.model}"
            for violation in violations
        ]
        wait = self._hint(context)
        text = (
            "You exceeded your current quota, please check your plan and billing details. For more "
            f"information on this error, head to: {RATE_LIMIT_HELP_URL}. {''.join(lines)}\n"
            f"Please retry in {wait:.9g}s."
        )
        help_ = {
            "@type": f"{RPC_TYPE_PREFIX}Help",
            "links": [{"description": "Learn more about Gemini API quotas", "url": RATE_LIMIT_HELP_URL}],
        }
        failure = {"@type": f"{RPC_TYPE_PREFIX}QuotaFailure", "violations": violations}
        retry = {"@type": f"{RPC_TYPE_PREFIX}RetryInfo", "retryDelay": f"{wait:.9g}s"}
        return SimulatorReply(429, {}, _error_reply(429, "RESOURCE_EXHAUSTED", text, help_, failure, retry))

    def _hint(self, context: ReplyContext) -> float:
        """Returns the retry delay. The real API sends one even if waiting does not help."""
        short = context.verdict.reason in (RefusalCause.DAY, RefusalCause.NOT_ON_TIER, RefusalCause.TOO_LARGE)
        if short and self._day_hint is not None:
            return round(self._day_hint / context.scale, 9)
        return round(context.wait() or 0.0, 9)


def _build_candidate(context: ReplyContext) -> dict[str, Any]:
    """Builds one candidate (Gemini's word for an answer of the model). A blocked candidate has no content."""
    text = (
        {"content": {"parts": [{"text": context.content.text}], "role": "model"}}
        if context.content.text
        else {}
    )
    return text | {"finishReason": FINISH_REASONS[context.content.finish], "index": 0}


def _read_dimensions(verb: str, body: dict[str, Any]) -> int:
    requests = [body] if verb == "embedContent" else body.get("requests", [])
    return max((positive_or_zero(request.get("outputDimensionality")) for request in requests), default=0)


def _build_violation(call: SimulatorCall, quota_status: QuotaStatus, amount: int) -> dict[str, Any]:
    verb = "GenerateContent" if call.kind == "chat" else "EmbedContent"
    metric = "generate_content" if call.kind == "chat" else "embed_content"
    window = "Day" if quota_status.quota.shape == "day" or quota_status.quota.per > 3600 else "Minute"  # noqa: PLR2004
    if quota_status.quota.unit == "requests":
        start = "GenerateRequests" if call.kind == "chat" else "EmbedContentRequests"
        counted, name = "requests", f"{start}Per{window}PerProjectPerModel-FreeTier"
    else:
        counted, name = "input_token_count", f"{verb}InputTokensPerModelPer{window}-FreeTier"
    return {
        "quotaMetric": f"generativelanguage.googleapis.com/{metric}_free_tier_{counted}",
        "quotaId": name,
        "quotaDimensions": {"location": "global", "model": call.model},
        "quotaValue": str(amount),
    }


def _error_reply(code: int, status: str, message: str, *details: dict[str, Any]) -> dict[str, Any]:
    inside: dict[str, Any] = {"code": code, "message": message, "status": status}
    if details:
        inside["details"] = list(details)
    return {"error": inside}
