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


class OpenAIChat:
    def __init__(self, account: Account) -> None:
        self._calls, self._account = _calls(account), account

    async def complete(self, system: str, user: str, schema: dict[str, Any], *, mark: str) -> Completed:
        body = {"model": self._account.model} | self._asked(system, user, schema)
        response = await self._calls.post("/chat/completions", body, mark)
        return Completed(_text(decoded(response), response), response)

    async def close(self) -> None:
        await self._calls.close()

    def _asked(self, system: str, user: str, schema: dict[str, Any]) -> dict[str, Any]:
        wanted: dict[str, Any] = {"type": "json_object"}
        if self._account.structured == "json_schema":
            named = {"name": "answer", "strict": True, "schema": schema}
            wanted = {"type": "json_schema", "json_schema": named}
        else:
            system = f"{system}\n\nAnswer as JSON by this schema:\n{msgspec.json.encode(schema).decode()}"
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        return {"messages": messages, "response_format": wanted}


class OpenAIEmbeddings:
    def __init__(self, account: Account) -> None:
        self._calls, self._account = _calls(account), account

    async def embed(self, texts: Sequence[str], *, mark: str) -> Embedded:
        body: dict[str, Any] = {"model": self._account.model, "input": list(texts)}
        if self._account.dimensions:
            body["dimensions"] = self._account.dimensions
        response = await self._calls.post("/embeddings", body, mark)
        vectors = _aligned(decoded(response).get("data"), len(texts), response)
        return Embedded(checked(vectors, self._account.dimensions, response), response)

    async def close(self) -> None:
        await self._calls.close()


def _calls(account: Account) -> Calls:
    return Calls(account, {"authorization": f"Bearer {account.key}"} if account.key else {})


def _text(body: dict[str, Any], response: object) -> str:
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        raise AnswerUnusable("there is no choice in the answer", response)
    message = choices[0].get("message") or {}
    match choices[0].get("finish_reason"):
        case "length":
            raise AnswerUnusable("the answer was cut off (length); ask for less at once", response)
        case "content_filter":
            raise AnswerUnusable("the answer was blocked (content_filter)", response)
    if message.get("refusal"):
        raise AnswerUnusable(f"the model refused: {message['refusal']}", response)
    if not isinstance(message.get("content"), str) or not message["content"]:
        raise AnswerUnusable("the answer has no text", response)
    return str(message["content"])


def _aligned(rows: Any, count: int, response: object) -> list[Any]:
    """By their index, in whatever order they came; None for those that are missing."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise AnswerUnusable("there is no list of vectors in the answer", response)
    if all("index" not in row for row in rows) and len(rows) == count:
        return [row.get("embedding") for row in rows]
    vectors: dict[int, Any] = {}
    for row in rows:
        index = row.get("index")
        if not isinstance(index, int) or not 0 <= index < count or index in vectors:
            raise AnswerUnusable(f"a vector has the index {index!r}, for {count} texts", response)
        vectors[index] = row.get("embedding")
    return [vectors.get(index) for index in range(count)]
