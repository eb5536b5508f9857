"""The OpenAI API, as OpenAI and many others speak it: GLM, DeepSeek, Gemini's compatible endpoint, servers on
this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tidemill_apps.common.providers.account import Account
from tidemill_apps.common.providers.calls import AnswerUnusable, Calls, decoded
from tidemill_apps.common.providers.chat import Completed
from tidemill_apps.common.providers.embeddings import Embedded, checked


class Message(msgspec.Struct, frozen=True):
    content: str | None = None
    refusal: str | None = None


class Choice(msgspec.Struct, frozen=True):
    message: Message = Message()
    finish_reason: str | None = None


class Answered(msgspec.Struct, frozen=True):
    choices: tuple[Choice, ...] = ()


class Row(msgspec.Struct, frozen=True):
    index: int | None = None
    embedding: list[float] | None = None


class Vectors(msgspec.Struct, frozen=True):
    data: tuple[Row, ...]


class OpenAIChat:
    def __init__(self, account: Account) -> None:
        self._calls, self._account = _calls(account), account

    async def complete(self, system: str, user: str, schema: dict[str, Any], *, mark: str) -> Completed:
        body = {"model": self._account.model} | self._asked(system, user, schema)
        response = await self._calls.post("/chat/completions", body, mark)
        return Completed(_text(decoded(response, Answered), response), response)

    async def close(self) -> None:
        await self._calls.close()

    def _asked(self, system: str, user: str, schema: dict[str, Any]) -> dict[str, Any]:
        wanted: dict[str, Any] = {"type": "json_object"}
        if self._account.structured == "json_schema":
            named = {"name": "answer", "strict": True, "schema": _closed(schema)}
            wanted = {"type": "json_schema", "json_schema": named}
        else:
            system = f"{system}\n\nAnswer as JSON by this schema:\n{msgspec.json.encode(schema).decode()}"
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        return {"messages": messages, "response_format": wanted}


class OpenAIEmbeddings:
    def __init__(self, account: Account) -> None:
        self._calls, self._account = _calls(account), account

    @property
    def dimensions(self) -> int | None:
        return self._account.dimensions

    async def embed(self, texts: Sequence[str], *, mark: str) -> Embedded:
        body: dict[str, Any] = {"model": self._account.model, "input": list(texts)}
        if self._account.dimensions:
            body["dimensions"] = self._account.dimensions
        response = await self._calls.post("/embeddings", body, mark)
        vectors = _aligned(decoded(response, Vectors).data, len(texts), response)
        return Embedded(checked(vectors, self._account.dimensions, response), response)

    async def close(self) -> None:
        await self._calls.close()


def _calls(account: Account) -> Calls:
    return Calls(account, {"authorization": f"Bearer {account.key}"} if account.key else {})


def _closed(schema: Any) -> Any:
    """With `strict` OpenAI takes no schema in which an object does not say that nothing else is in it."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(value) for name, value in schema.items()}
    return {**closed, "additionalProperties": False} if schema.get("type") == "object" else closed


def _text(answer: Answered, response: object) -> str:
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


def _aligned(rows: Sequence[Row], count: int, response: object) -> list[list[float] | None]:
    """By their index, in whatever order they came; None for those that are missing."""
    if len(rows) == count and all(row.index is None for row in rows):
        return [row.embedding for row in rows]
    vectors: dict[int, list[float] | None] = {}
    for row in rows:
        if row.index is None or not 0 <= row.index < count or row.index in vectors:
            raise AnswerUnusable(f"a vector has the index {row.index}, for {count} texts", response)
        vectors[row.index] = row.embedding
    return [vectors.get(index) for index in range(count)]
