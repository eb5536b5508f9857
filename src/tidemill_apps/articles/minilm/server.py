"""`POST /v1/embeddings`, as OpenAI has it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tidemill_apps.articles.minilm.model import DIMENSIONS, NAME, MiniLM

MOST_TEXTS = 2048
MOST_BYTES = 32 * 1024 * 1024

Text = Annotated[str, msgspec.Meta(min_length=1)]
Texts = Annotated[list[Text], msgspec.Meta(min_length=1, max_length=MOST_TEXTS)]


class Wanted(msgspec.Struct, frozen=True):
    """What a client sends; what else it says, such as a user, is not looked at."""

    input: Text | Texts
    model: str = NAME
    dimensions: int | None = None
    encoding_format: str = "float"

    def problem(self) -> str | None:
        if self.dimensions not in (None, DIMENSIONS):
            return f"dimensions: {NAME} makes {DIMENSIONS} numbers, not {self.dimensions}; leave it out"
        if self.encoding_format != "float":
            return f"encoding_format: is {self.encoding_format!r}, and only 'float' is there"
        return None


class Refused(Exception):
    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def served(model: MiniLM) -> Starlette:
    """One call after the other goes to the model, beside the loop; whoever asks meanwhile waits in turn."""
    turn = asyncio.Lock()

    async def embed(request: Request) -> Response:
        try:
            wanted = _read(await _body(request))
        except Refused as refused:
            return _json(
                {"error": {"message": str(refused), "type": "invalid_request_error"}}, refused.status
            )
        texts = [wanted.input] if isinstance(wanted.input, str) else wanted.input
        async with turn:
            vectors, tokens = await asyncio.to_thread(model.embed, texts)
        return _json(_answer(vectors, tokens))

    async def about(_: Request) -> Response:
        return _json({"model": NAME, "dimensions": DIMENSIONS, "trained on": "English"})

    return Starlette(routes=[Route("/v1/embeddings", embed, methods=["POST"]), Route("/", about)])


async def _body(request: Request) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            raise Refused(413, f"the body is over {MOST_BYTES // 2**20} MB; send fewer texts at once")
        parts.append(part)
    return b"".join(parts)


def _read(body: bytes) -> Wanted:
    try:
        wanted = msgspec.json.decode(body, type=Wanted)
    except msgspec.MsgspecError as error:
        raise Refused(400, f"the body cannot be read: {error}") from None
    if problem := wanted.problem():
        raise Refused(400, problem)
    return wanted


def _answer(vectors: list[list[float]], tokens: int) -> Mapping[str, Any]:
    data = [
        {"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "model": NAME, "data": data, "usage": usage}


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
