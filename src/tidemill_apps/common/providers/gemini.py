"""The Gemini API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tidemill_apps.common.providers.account import Account
from tidemill_apps.common.providers.calls import AnswerUnusable, Calls, decoded
from tidemill_apps.common.providers.chat import Completed
from tidemill_apps.common.providers.embeddings import Embedded, checked


class Part(msgspec.Struct, frozen=True):
    text: str = ""
    thought: bool = False


class Content(msgspec.Struct, frozen=True):
    parts: tuple[Part, ...] = ()


class Candidate(msgspec.Struct, frozen=True, rename="camel"):
    content: Content = Content()
    finish_reason: str | None = None


class Feedback(msgspec.Struct, frozen=True, rename="camel"):
    block_reason: str | None = None


class Answered(msgspec.Struct, frozen=True, rename="camel"):
    candidates: tuple[Candidate, ...] = ()
    prompt_feedback: Feedback = Feedback()


class Vector(msgspec.Struct, frozen=True):
    values: list[float] | None = None


class Vectors(msgspec.Struct, frozen=True):
    embeddings: tuple[Vector | None, ...] = ()


class GeminiChat:
    def __init__(self, account: Account) -> None:
        self._calls = _calls(account)
        self._path = f"/v1beta/models/{account.model}:generateContent"

    async def complete(self, system: str, user: str, schema: dict[str, Any], *, mark: str) -> Completed:
        body = {
            "systemInstruction": {"parts": [{"text": system}]},
            "contents": [{"role": "user", "parts": [{"text": user}]}],
            "generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": schema},
        }
        response = await self._calls.post(self._path, body, mark)
        return Completed(_text(decoded(response, Answered), response), response)

    async def close(self) -> None:
        await self._calls.close()


class GeminiEmbeddings:
    def __init__(self, account: Account) -> None:
        self._calls, self._account = _calls(account), account
        self._path = f"/v1beta/models/{account.model}:batchEmbedContents"

    @property
    def dimensions(self) -> int | None:
        return self._account.dimensions

    async def embed(self, texts: Sequence[str], *, mark: str) -> Embedded:
        body = {"requests": [self._request(text) for text in texts]}
        response = await self._calls.post(self._path, body, mark)
        found = decoded(response, Vectors).embeddings
        if len(found) != len(texts):
            # They have no index: with one left out nobody knows whose the others are.
            raise AnswerUnusable(f"{len(found)} vectors came for {len(texts)} texts", response)
        values = [one.values if one is not None else None for one in found]
        return Embedded(checked(values, self._account.dimensions, response), response)

    async def close(self) -> None:
        await self._calls.close()

    def _request(self, text: str) -> dict[str, Any]:
        request: dict[str, Any] = {"model": f"models/{self._account.model}"}
        request["content"] = {"parts": [{"text": text}]}
        if self._account.dimensions:
            request["outputDimensionality"] = self._account.dimensions
        return request


def _calls(account: Account) -> Calls:
    return Calls(account, {"x-goog-api-key": account.key})


def _text(answer: Answered, response: object) -> str:
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
