"""Chat and embedding models of the Gemini API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tidemill_apps.common.model_clients import (
    AnswerUnusable,
    Completion,
    EmbeddingResult,
    ProviderAccount,
    ProviderHttpClient,
    check_vectors,
    decode_body,
)


class GeminiPart(msgspec.Struct, frozen=True):
    text: str = ""
    thought: bool = False


class GeminiContent(msgspec.Struct, frozen=True):
    parts: tuple[GeminiPart, ...] = ()


class GeminiCandidate(msgspec.Struct, frozen=True, rename="camel"):
    content: GeminiContent = GeminiContent()
    finish_reason: str | None = None


class GeminiPromptFeedback(msgspec.Struct, frozen=True, rename="camel"):
    block_reason: str | None = None


class GeminiChatReply(msgspec.Struct, frozen=True, rename="camel"):
    candidates: tuple[GeminiCandidate, ...] = ()
    prompt_feedback: GeminiPromptFeedback = GeminiPromptFeedback()


class GeminiVector(msgspec.Struct, frozen=True):
    values: list[float] | None = None


class GeminiVectors(msgspec.Struct, frozen=True):
    embeddings: tuple[GeminiVector | None, ...] = ()


class GeminiChat:
    def __init__(self, account: ProviderAccount) -> None:
        self._calls = _create_client(account)
        self._path = f"/v1beta/models/{account.model}:generateContent"

    async def complete(self, system: str, user: str, schema: dict[str, Any], *, call_id: str) -> Completion:
        body = {
            "systemInstruction": {"parts": [{"text": system}]},
            "contents": [{"role": "user", "parts": [{"text": user}]}],
            "generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": schema},
        }
        response = await self._calls.post(self._path, body, call_id)
        return Completion(_reply_text(decode_body(response, GeminiChatReply), response), response)

    async def close(self) -> None:
        await self._calls.close()


class GeminiEmbeddings:
    def __init__(self, account: ProviderAccount) -> None:
        self._calls, self._account = _create_client(account), account
        self._path = f"/v1beta/models/{account.model}:batchEmbedContents"

    @property
    def dimensions(self) -> int | None:
        return self._account.dimensions

    async def embed(self, texts: Sequence[str], *, call_id: str) -> EmbeddingResult:
        body = {"requests": [self._request(text) for text in texts]}
        response = await self._calls.post(self._path, body, call_id)
        found = decode_body(response, GeminiVectors).embeddings
        if len(found) != len(texts):
            # The vectors have no index, so a missing one makes the others ambiguous.
            raise AnswerUnusable(f"{len(found)} vectors came for {len(texts)} texts", response)
        values = [one.values if one is not None else None for one in found]
        return EmbeddingResult(check_vectors(values, self._account.dimensions, response), response)

    async def close(self) -> None:
        await self._calls.close()

    def _request(self, text: str) -> dict[str, Any]:
        request: dict[str, Any] = {"model": f"models/{self._account.model}"}
        request["content"] = {"parts": [{"text": text}]}
        if self._account.dimensions:
            request["outputDimensionality"] = self._account.dimensions
        return request


def _create_client(account: ProviderAccount) -> ProviderHttpClient:
    return ProviderHttpClient(account, {"x-goog-api-key": account.key})


def _reply_text(answer: GeminiChatReply, response: object) -> str:
    if not answer.candidates:
        why = answer.prompt_feedback.block_reason
        problem = f"the question was blocked ({why})" if why else "there is no candidate in the answer"
        raise AnswerUnusable(problem, response)
    first = answer.candidates[0]
    match first.finish_reason:
        case "STOP" | None:
            pass
        case "MAX_TOKENS":
            raise AnswerUnusable("the answer was cut off (MAX_TOKENS); ask for less at once", response)
        case reason:
            raise AnswerUnusable(f"the answer was blocked ({reason})", response)
    text = "".join(part.text for part in first.content.parts if not part.thought)
    if not text:
        raise AnswerUnusable("the answer has no text", response)
    return text
