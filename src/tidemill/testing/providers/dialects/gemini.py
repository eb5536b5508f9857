"""The Gemini API: no headers; `QuotaFailure` and `RetryInfo` in the body of a 429."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from tidemill.testing.providers.account import Standing
from tidemill.testing.providers.asked import (
    Answer,
    Asked,
    BadRequest,
    Request,
    key_of,
    mark_of,
    tokens_in,
    tokens_out,
)
from tidemill.testing.providers.dialects.dialect import Dialect, Told, positive, texts_in
from tidemill.testing.providers.options import Reason

PATH = re.compile(
    r"/v1(?:beta)?/models/([^/:]+):(generateContent|streamGenerateContent|embedContent|batchEmbedContents)"
)
CHAT = ("generateContent", "streamGenerateContent")
FINISHED = {"stop": "STOP", "length": "MAX_TOKENS", "blocked": "SAFETY"}
ABOUT = "https://ai.google.dev/gemini-api/docs/rate-limits"
RPC = "type.googleapis.com/google.rpc."


class Gemini(Dialect):
    """day_hint: what `RetryInfo` says when the day's quota is gone. The real one has been seen to say
    something short there, which waits for nothing; None says the truth."""

    name: ClassVar[str] = "gemini"
    speaks: ClassVar[frozenset[Reason]] = frozenset(
        {
            Reason.RATE,
            Reason.DAY,
            Reason.TOO_LARGE,
            Reason.NOT_ON_TIER,
            Reason.OVERLOAD,
            Reason.SPEND_CAP,
            Reason.WRONG_KEY,
        }
    )

    def __init__(self, *, day_hint: float | None = 20.04) -> None:
        self._day_hint = day_hint

    def read(self, request: Request, usual_output: int) -> Asked:
        found = PATH.fullmatch(request.path.partition("?")[0])
        if found is None:
            raise BadRequest(Answer(404, {}, _error(404, "NOT_FOUND", "Requested entity was not found.")))
        model, verb = found.groups()
        body = request.body
        match verb:
            case "generateContent" | "streamGenerateContent":
                texts = texts_in(body.get("systemInstruction")) + texts_in(body.get("contents"))
            case "embedContent":
                texts = texts_in(body.get("content"))
            case _:
                texts = texts_in([one.get("content") for one in body.get("requests", [])])
        if not texts:
            text = "* GenerateContentRequest.contents: contents is not specified\n"
            raise BadRequest(Answer(400, {}, _error(400, "INVALID_ARGUMENT", text)))
        most = positive(body.get("generationConfig", {}).get("maxOutputTokens"))
        chat = verb in CHAT
        return Asked(
            kind="chat" if chat else "embed",
            model=model,
            key=key_of(request),
            mark=mark_of(request),
            texts=texts,
            input_tokens=tokens_in(texts, request),
            output_tokens=tokens_out(request, usual_output, most) if chat else 0,
            max_tokens=most if chat else 0,
            single=verb == "embedContent",
            dimensions=0 if chat else _dimensions(verb, body),
        )

    def answer(self, asked: Asked, told: Told) -> Answer:
        if asked.kind == "embed":
            vectors = [{"values": vector} for _, vector in told.content.vectors]
            if asked.single:
                return Answer(200, {}, {"embedding": vectors[0]} if vectors else {})
            return Answer(200, {}, {"embeddings": vectors})
        usage = {
            "promptTokenCount": asked.input_tokens,
            "candidatesTokenCount": asked.output_tokens,
            "totalTokenCount": asked.input_tokens + asked.output_tokens,
        }
        body = {
            "candidates": [_candidate(told)],
            "usageMetadata": usage,
            "modelVersion": asked.model,
            "responseId": f"simulated{told.number:08d}",
        }
        return Answer(200, {}, body)

    def refuse(self, asked: Asked, told: Told) -> Answer:
        match told.verdict.reason:
            case Reason.OVERLOAD:
                text = "The model is overloaded. Please try again later."
                return Answer(503, {}, _error(503, "UNAVAILABLE", text))
            case Reason.WRONG_KEY:
                text = "API key not valid. Please pass a valid API key."
                info = {"@type": f"{RPC}ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}
                return Answer(400, {}, _error(400, "INVALID_ARGUMENT", text, info))
            case Reason.SPEND_CAP:
                text = "Your project has exceeded its spending cap. Please go to AI Studio to manage it."
                return Answer(429, {}, _error(429, "RESOURCE_EXHAUSTED", text))
            case _:
                return self._quota(asked, told)

    def _quota(self, asked: Asked, told: Told) -> Answer:
        never = told.verdict.reason is Reason.NOT_ON_TIER
        broken = told.verdict.violated or told.verdict.standings
        violations = [_violation(asked, one, 0 if never else one.amount) for one in broken]
        lines = [
            f"\n* Quota exceeded for metric: {one['quotaMetric']}, limit: {one['quotaValue']}, "
            f"model: {asked.model}"
            for one in violations
        ]
        wait = self._hint(told)
        text = (
            "You exceeded your current quota, please check your plan and billing details. For more "
            f"information on this error, head to: {ABOUT}. {''.join(lines)}\nPlease retry in {wait:.9g}s."
        )
        help_ = {
            "@type": f"{RPC}Help",
            "links": [{"description": "Learn more about Gemini API quotas", "url": ABOUT}],
        }
        failure = {"@type": f"{RPC}QuotaFailure", "violations": violations}
        retry = {"@type": f"{RPC}RetryInfo", "retryDelay": f"{wait:.9g}s"}
        return Answer(429, {}, _error(429, "RESOURCE_EXHAUSTED", text, help_, failure, retry))

    def _hint(self, told: Told) -> float:
        """The real one gives a delay even where no waiting helps."""
        short = told.verdict.reason in (Reason.DAY, Reason.NOT_ON_TIER, Reason.TOO_LARGE)
        if short and self._day_hint is not None:
            return round(self._day_hint / told.scale, 9)
        return round(told.wait() or 0.0, 9)


def _candidate(told: Told) -> dict[str, Any]:
    """A blocked one has no content."""
    said = {"content": {"parts": [{"text": told.content.text}], "role": "model"}} if told.content.text else {}
    return said | {"finishReason": FINISHED[told.content.finish], "index": 0}


def _dimensions(verb: str, body: dict[str, Any]) -> int:
    requests = [body] if verb == "embedContent" else body.get("requests", [])
    return max((positive(one.get("outputDimensionality")) for one in requests), default=0)


def _violation(asked: Asked, standing: Standing, amount: int) -> dict[str, Any]:
    verb = "GenerateContent" if asked.kind == "chat" else "EmbedContent"
    metric = "generate_content" if asked.kind == "chat" else "embed_content"
    window = "Day" if standing.quota.shape == "day" or standing.quota.per > 3600 else "Minute"  # noqa: PLR2004
    if standing.quota.unit == "requests":
        start = "GenerateRequests" if asked.kind == "chat" else "EmbedContentRequests"
        counted, name = "requests", f"{start}Per{window}PerProjectPerModel-FreeTier"
    else:
        counted, name = "input_token_count", f"{verb}InputTokensPerModelPer{window}-FreeTier"
    return {
        "quotaMetric": f"generativelanguage.googleapis.com/{metric}_free_tier_{counted}",
        "quotaId": name,
        "quotaDimensions": {"location": "global", "model": asked.model},
        "quotaValue": str(amount),
    }


def _error(code: int, status: str, message: str, *details: dict[str, Any]) -> dict[str, Any]:
    inside: dict[str, Any] = {"code": code, "message": message, "status": status}
    if details:
        inside["details"] = list(details)
    return {"error": inside}
