"""Calls to one account over HTTP, with errors that say who, what and why, and never the key."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import httpx2
import msgspec

from tidemill_apps.common.providers.account import Account

Form = TypeVar("Form", bound=msgspec.Struct)
LONGEST = 500  # characters of what a provider says


class AnswerUnusable(Exception):
    """The call was answered, and paid for, with something that cannot be used: cut off, blocked, empty or of
    another form. `response` has what it cost."""

    def __init__(self, problem: str, response: object) -> None:
        super().__init__(problem)
        self.response = response


class Calls:
    """A client per event loop: connections cannot change theirs."""

    def __init__(self, account: Account, headers: dict[str, str]) -> None:
        self.account, self._headers = account, headers
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx2.AsyncClient] = WeakKeyDictionary()

    async def post(self, path: str, body: dict[str, Any], mark: str) -> httpx2.Response:
        headers = {"x-job": mark} if self.account.simulator else {}
        try:
            response = await self._client().post(f"{self.account.address}{path}", json=body, headers=headers)
        except httpx2.TransportError as error:
            # The same kind of error, because the kind says whether the call can have been paid for.
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
        who = self.account.told
        match error:
            case httpx2.ConnectTimeout() | httpx2.ConnectError() | httpx2.UnsupportedProtocol():
                return f"{who} cannot be reached: {error}; is the address right, and the network up?"
            case httpx2.TimeoutException():
                return f"{who} did not answer within {self.account.timeout:g} s"
            case _:
                return f"{who} broke off before it answered: {error}"

    def _refused(self, response: httpx2.Response) -> str:
        said = _message(response)
        if self.account.key:
            said = said.replace(self.account.key, "***")
        return f"{self.account.told} answered {response.status_code}: {said[:LONGEST]}"


def decoded(response: httpx2.Response, kind: type[Form]) -> Form:
    """What was answered, if it has the form it should have."""
    try:
        return msgspec.json.decode(response.content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise AnswerUnusable(f"the answer has not the form it should have: {error}", response) from error


def _message(response: httpx2.Response) -> str:
    try:
        body = msgspec.json.decode(response.content)
        return str(body["error"]["message"])
    except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError):
        return response.text
