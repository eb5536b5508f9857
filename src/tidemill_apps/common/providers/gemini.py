"""The Gemini API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemill_apps.common.providers.account import Account
from tidemill_apps.common.providers.calls import AnswerUnusable, Calls, decoded
from tidemill_apps.common.providers.chat import Completed
from tidemill_apps.common.providers.embeddings import Embedded, checked


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
        return Completed(_text(decoded(response), response), response)

    async def close(self) -> None:
        await self._calls.close()


class GeminiEmbeddings:
    def __init__(self, account: Account) -> None:
        self._calls, self._account = _calls(account), account
        self._path = f"/v1beta/models/{account.model}:batchEmbedContents"

    async def embed(self, texts: Sequence[str], *, mark: str) -> Embedded:
        body = {"requests": [self._request(text) for text in texts]}
        response = await self._calls.post(self._path, body, mark)
        found = decoded(response).get("embeddings")
        if not isinstance(found, list) or len(found) != len(texts):
            # They have no index: with one left out nobody knows whose the others are.
            count = len(found) if isinstance(found, list) else "no"
            raise AnswerUnusable(f"{count} vectors came for {len(texts)} texts", response)
        values = [one.get("values") if isinstance(one, dict) else one for one in found]
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


def _text(body: dict[str, Any], response: object) -> str:
    candidates = body.get("candidates")
    if not isinstance(candidates, list) or not candidates:
        why = (body.get("promptFeedback") or {}).get("blockReason")
        problem = f"the question was blocked ({why})" if why else "there is no candidate in the answer"
        raise AnswerUnusable(problem, response)
    first = candidates[0]
    match first.get("finishReason"):
        case "STOP" | None:
            pass
        case "MAX_TOKENS":
            raise AnswerUnusable("the answer was cut off (MAX_TOKENS); ask for less at once", response)
        case reason:
            raise AnswerUnusable(f"the answer was blocked ({reason})", response)
    parts = (first.get("content") or {}).get("parts") or []
    text = "".join(part.get("text", "") for part in parts if not part.get("thought"))
    if not text:
        raise AnswerUnusable("the answer has no text", response)
    return text
