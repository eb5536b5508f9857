"""A request as it comes over the wire, and what a dialect understands of it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

CHARACTERS_A_TOKEN = 4


class Request(msgspec.Struct, frozen=True):
    """Header names in small letters."""

    path: str
    body: dict[str, Any] = msgspec.field(default_factory=dict)
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    method: str = "POST"


class Answer(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: dict[str, Any]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """max_tokens and dimensions are 0 when the caller named none. mark: the `x-job` header or the metadata of
    the request; it has no meaning to the provider but to tell calls for the same thing."""

    kind: Literal["chat", "embed"]
    model: str
    key: str = ""
    mark: str | None = None
    texts: tuple[str, ...] = ()
    input_tokens: int
    output_tokens: int = 0
    max_tokens: int = 0
    single: bool = False
    dimensions: int = 0


class BadRequest(Exception):
    """The dialect's answer to what it cannot read."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"HTTP {answer.status}")
        self.answer = answer


def tokens_in(texts: tuple[str, ...], request: Request) -> int:
    """A test that needs an exact size sends it as `x-input-tokens`."""
    if said := request.headers.get("x-input-tokens"):
        return int(said)
    return max(1, -(-sum(map(len, texts)) // CHARACTERS_A_TOKEN))


def tokens_out(request: Request, usual: int, max_tokens: int) -> int:
    """As `x-output-tokens` says, or the usual number; never more than was allowed."""
    wanted = int(request.headers.get("x-output-tokens") or usual)
    return min(wanted, max_tokens) if max_tokens else wanted


def mark_of(request: Request) -> str | None:
    if mark := request.headers.get("x-job"):
        return mark
    metadata = request.body.get("metadata")
    found = metadata if isinstance(metadata, dict) else {}
    mark = found.get("job") or found.get("user_id") or request.body.get("request_id")
    return None if mark is None else str(mark)


def key_of(request: Request) -> str:
    headers = request.headers
    bearer = headers.get("authorization", "").removeprefix("Bearer ")
    return headers.get("x-api-key") or headers.get("x-goog-api-key") or bearer
