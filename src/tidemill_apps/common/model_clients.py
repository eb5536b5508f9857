"""The provider account, its HTTP client, and the interfaces of chat and embedding models."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Annotated, Any, Literal, Protocol, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import httpx2
import msgspec
from msgspec import Meta

from tidemill import Secret
from tidemill_apps.common.settings import EnvironmentSettings

ProviderName = Literal["gemini", "openai"]
HttpUrl = Annotated[
    str,
    Meta(pattern=r"^(https?://[^\s?#@]+)?$", description="an address that begins with https:// or http://"),
]
TimeoutSeconds = Annotated[
    float, Meta(gt=0, le=3600, description="a number of seconds above 0, at most 3600")
]

BASE_URLS: dict[ProviderName, str] = {
    "gemini": "https://generativelanguage.googleapis.com",
    "openai": "https://api.openai.com/v1",
}


class ProviderAccount(EnvironmentSettings, frozen=True, kw_only=True):
    """An account at a provider, and how to call its API.

    - `provider`: the API; `openai` also fits many servers of other vendors.
    - `base_url`: the API address; empty for the provider's own.
    - `model`: the model's name; empty for the application's default.
    - `dimensions`: the length of vectors to request; None for the model's default.
    - `timeout`: seconds to wait for an answer.
    - `structured`: `json_object` for servers that do not accept a JSON schema.
    - `simulator`: True if `base_url` is the address of a simulator; calls then carry their job id.
    """

    provider: ProviderName = "gemini"
    key: Annotated[str, Secret] = ""
    base_url: HttpUrl = ""
    model: str = ""
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    timeout: TimeoutSeconds = 120.0
    structured: Literal["json_schema", "json_object"] = "json_schema"
    simulator: bool = False

    @property
    def address(self) -> str:
        return (self.base_url or BASE_URLS[self.provider]).rstrip("/")

    @property
    def needs_simulator(self) -> bool:
        """True if the account has neither a key nor an address, so that only a simulator can answer. An
        address without a key is valid, because some servers need no key."""
        return not self.key and not self.base_url

    @property
    def label(self) -> str:
        """Returns provider and host, for messages."""
        who = f"the simulator of {self.provider}" if self.simulator else self.provider
        return f"{who} ({urlsplit(self.address).netloc})"


BodyT = TypeVar("BodyT", bound=msgspec.Struct)
MAX_MESSAGE_CHARS = 500  # characters of a provider's message


class AnswerUnusable(Exception):
    """Raised if the provider charged for an answer that cannot be used: cut off, blocked, empty or malformed.
    Pass `response`, the HTTP response, to `ctx.used(…)`, because it contains the cost."""

    def __init__(self, problem: str, response: object) -> None:
        super().__init__(problem)
        self.response = response


class ProviderHttpClient:
    """Sends requests to a provider's API. It has one HTTP client per event loop, because connections belong
    to one loop."""

    def __init__(self, account: ProviderAccount, headers: dict[str, str]) -> None:
        self.account, self._headers = account, headers
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx2.AsyncClient] = WeakKeyDictionary()

    async def post(self, path: str, body: dict[str, Any], call_id: str) -> httpx2.Response:
        headers = {"x-job": call_id} if self.account.simulator else {}
        try:
            response = await self._client().post(f"{self.account.address}{path}", json=body, headers=headers)
        except httpx2.TransportError as error:
            # Keep the exception type: it tells whether the call may have been paid for.
            raise type(error)(self._unanswered(error)) from error
        if response.is_success:
            return response
        raise httpx2.HTTPStatusError(self._refused(response), request=response.request, response=response)

    async def close(self) -> None:
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    def _client(self) -> httpx2.AsyncClient:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            limits = httpx2.Limits(max_connections=None)
            self._clients[loop] = httpx2.AsyncClient(
                headers=self._headers, timeout=self.account.timeout, limits=limits
            )
        return self._clients[loop]

    def _unanswered(self, error: httpx2.TransportError) -> str:
        who = self.account.label
        match error:
            case httpx2.ConnectTimeout() | httpx2.ConnectError() | httpx2.UnsupportedProtocol():
                return f"{who} cannot be reached: {error}; is the address right, and the network up?"
            case httpx2.TimeoutException():
                return f"{who} did not answer within {self.account.timeout:g} s"
            case _:
                return f"{who} broke off before it answered: {error}"

    def _refused(self, response: httpx2.Response) -> str:
        said = _error_message(response)
        if self.account.key:
            said = said.replace(self.account.key, "***")
        return f"{self.account.label} answered {response.status_code}: {said[:MAX_MESSAGE_CHARS]}"


def decode_body(response: httpx2.Response, kind: type[BodyT]) -> BodyT:
    """Returns the response's JSON body as the type `kind`. Raises AnswerUnusable if the body does not fit."""
    try:
        return msgspec.json.decode(response.content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise AnswerUnusable(f"the answer has not the form it should have: {error}", response) from error


def _error_message(response: httpx2.Response) -> str:
    try:
        body = msgspec.json.decode(response.content)
        return str(body["error"]["message"])
    except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError):
        return response.text


class Completion(msgspec.Struct, frozen=True):
    """The answer of a chat model. `text` is the model's text; check it strictly, because models may ignore
    the schema. `response` is the HTTP response for `ctx.used(…)`."""

    text: str
    response: object


class ChatModel(Protocol):
    async def complete(self, system: str, user: str, schema: dict[str, Any], *, call_id: str) -> Completion:
        """Makes one paid call and returns the model's answer. `schema` is the JSON schema of the answer.
        `call_id` lets a simulator detect repeated calls. Raises httpx errors, or AnswerUnusable."""

    async def close(self) -> None:
        """Closes the connections of this event loop. The object can be used again."""


class EmbeddingResult(msgspec.Struct, frozen=True):
    """The answer of an embedding model. `vectors` has one vector per text, in the same order; None if it is
    missing or unusable. `response` is the HTTP response for `ctx.used(…)`."""

    vectors: list[list[float] | None]
    response: object


class EmbeddingModel(Protocol):
    @property
    def dimensions(self) -> int | None:
        """The length of the vectors that the account requests, or None if it does not set a length."""

    async def embed(self, texts: Sequence[str], *, call_id: str) -> EmbeddingResult:
        """Makes one paid call and returns one vector per text. `call_id` is sent to simulators only, so that
        they can detect repeated calls. Raises httpx errors, or AnswerUnusable."""

    async def close(self) -> None:
        """Closes the connections of this event loop. The object can be used again."""


def check_vectors(
    vectors: list[list[float] | None], dimensions: int | None, response: object
) -> list[list[float] | None]:
    """Returns the vectors, with None for each unusable one: empty, all zeros, not finite or of the wrong
    length. If `dimensions` is None, the length of most vectors is the right one. Raises AnswerUnusable if no
    usable vector has the right length."""
    found = [vector if vector and any(vector) and all(map(isfinite, vector)) else None for vector in vectors]
    lengths = Counter(len(vector) for vector in found if vector is not None)
    if not lengths:
        return found
    [(size, times)] = lengths.most_common(1)
    if dimensions is not None and dimensions not in lengths:
        raise AnswerUnusable(
            f"vectors have {_join_lengths(lengths)} dimensions, expected {dimensions}", response
        )
    if dimensions is None and 2 * times <= lengths.total():
        raise AnswerUnusable(f"vectors of one answer have {_join_lengths(lengths)} dimensions", response)
    size = dimensions or size
    return [vector if vector is not None and len(vector) == size else None for vector in found]


def _join_lengths(lengths: Iterable[int]) -> str:
    return " and ".join(map(str, sorted(lengths)))
