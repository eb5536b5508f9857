"""Chat and embedding models of the OpenAI API, which GLM, DeepSeek, Gemini and local servers also offer."""

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


class OpenAIMessage(msgspec.Struct, frozen=True):
    content: str | None = None
    refusal: str | None = None


class OpenAIChoice(msgspec.Struct, frozen=True):
    message: OpenAIMessage = OpenAIMessage()
    finish_reason: str | None = None


class OpenAIChatReply(msgspec.Struct, frozen=True):
    choices: tuple[OpenAIChoice, ...] = ()


class OpenAIVector(msgspec.Struct, frozen=True):
    index: int | None = None
    embedding: list[float] | None = None


class OpenAIVectors(msgspec.Struct, frozen=True):
    data: tuple[OpenAIVector, ...]


class OpenAIChat:
    def __init__(self, account: ProviderAccount) -> None:
        self._calls, self._account = _create_client(account), account

    async def complete(self, system: str, user: str, schema: dict[str, Any], *, call_id: str) -> Completion:
        body = {"model": self._account.model} | self._asked(system, user, schema)
        response = await self._calls.post("/chat/completions", body, call_id)
        return Completion(_reply_text(decode_body(response, OpenAIChatReply), response), response)

    async def close(self) -> None:
        await self._calls.close()

    def _asked(self, system: str, user: str, schema: dict[str, Any]) -> dict[str, Any]:
        wanted: dict[str, Any] = {"type": "json_object"}
        if self._account.structured == "json_schema":
            named = {"name": "answer", "strict": True, "schema": _forbid_extra_properties(schema)}
            wanted = {"type": "json_schema", "json_schema": named}
        else:
            system = f"{system}\n\nAnswer as JSON by this schema:\n{msgspec.json.encode(schema).decode()}"
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        return {"messages": messages, "response_format": wanted}


class OpenAIEmbeddings:
    def __init__(self, account: ProviderAccount) -> None:
        self._calls, self._account = _create_client(account), account

    @property
    def dimensions(self) -> int | None:
        return self._account.dimensions

    async def embed(self, texts: Sequence[str], *, call_id: str) -> EmbeddingResult:
        body: dict[str, Any] = {"model": self._account.model, "input": list(texts)}
        if self._account.dimensions:
            body["dimensions"] = self._account.dimensions
        response = await self._calls.post("/embeddings", body, call_id)
        vectors = _align_vectors(decode_body(response, OpenAIVectors).data, len(texts), response)
        return EmbeddingResult(check_vectors(vectors, self._account.dimensions, response), response)

    async def close(self) -> None:
        await self._calls.close()


def _create_client(account: ProviderAccount) -> ProviderHttpClient:
    return ProviderHttpClient(account, {"authorization": f"Bearer {account.key}"} if account.key else {})


def _forbid_extra_properties(schema: Any) -> Any:
    """Returns a copy of the JSON schema with `additionalProperties: false` in every object. OpenAI's strict
    mode requires it."""
    if isinstance(schema, list):
        return [_forbid_extra_properties(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _forbid_extra_properties(value) for name, value in schema.items()}
    return {**closed, "additionalProperties": False} if schema.get("type") == "object" else closed


def _reply_text(answer: OpenAIChatReply, response: object) -> str:
    if not answer.choices:
        raise AnswerUnusable("there is no choice in the answer", response)
    first = answer.choices[0]
    match first.finish_reason:
        case "length":
            raise AnswerUnusable("the answer was cut off (length); ask for less at once", response)
        case "content_filter":
            raise AnswerUnusable("the answer was blocked (content_filter)", response)
    if first.message.refusal:
        raise AnswerUnusable(f"the model refused: {first.message.refusal}", response)
    if not first.message.content:
        raise AnswerUnusable("the answer has no text", response)
    return first.message.content


def _align_vectors(rows: Sequence[OpenAIVector], count: int, response: object) -> list[list[float] | None]:
    """Returns `count` vectors, one per text, in the order of the texts. A text without a vector gets None.
    Raises AnswerUnusable if an index is out of range or appears twice."""
    if len(rows) == count and all(row.index is None for row in rows):
        return [row.embedding for row in rows]
    vectors: dict[int, list[float] | None] = {}
    for row in rows:
        if row.index is None or not 0 <= row.index < count or row.index in vectors:
            raise AnswerUnusable(f"a vector has the index {row.index}, for {count} texts", response)
        vectors[row.index] = row.embedding
    return [vectors.get(index) for index in range(count)]
