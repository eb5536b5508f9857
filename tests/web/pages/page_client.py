"""A client that loads pages and submits forms in this process."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlencode

from tests.web.asgi_client import HOST, ClientResponse, send_request
from tidemill import Tidemill
from tidemill.web import Role, User, dashboard

FORM = "application/x-www-form-urlencoded"


class PageClient:
    """Authenticated by the application's hook. `notice` is the message shown on the last page."""

    def __init__(
        self, app: Tidemill, role: Role = Role.OPERATOR, language: str = "en", *, referer: str = ""
    ) -> None:
        async def auth(_: object) -> User:
            return User("ann", role)

        self._served = dashboard(app, auth=auth)
        self._headers = {
            "accept": "text/html",
            "accept-language": language,
            "origin": f"http://{HOST}",
            "referer": referer,
        }
        self._cookies: dict[str, str] = {}
        self._csrf = ""
        self.notice = ""

    async def get(self, path: str) -> ClientResponse:
        return self._kept(await send_request(self._served, "GET", path, headers=self._brought()))

    async def page(self, path: str) -> str:
        shown = await self.get(path)
        assert shown.status == 200, (path, shown.status, shown.text)
        return shown.text

    async def send(
        self, path: str, form: list[tuple[str, str]] | dict[str, str] | None = None
    ) -> ClientResponse:
        headers = {**self._headers, "content-type": FORM, "authorization": "Bearer of-a-program"}
        answer = await send_request(
            self._served, "POST", path, headers=headers, body=urlencode(form or {}).encode()
        )
        notice = re.search(r"tidemill-notice=([^;]*)", answer.headers.get("set-cookie", ""))
        self.notice = unquote(notice[1]).strip('"') if notice else ""
        return answer

    async def does(self, path: str, form: list[tuple[str, str]] | dict[str, str] | None = None) -> str:
        """Submits a form and returns the path of the redirect."""
        answer = await self.send(path, form)
        assert answer.status == 303, (path, answer.status, answer.text)
        return answer.headers["location"]

    def _brought(self) -> dict[str, str]:
        return {
            **self._headers,
            "cookie": "; ".join(f"{name}={value}" for name, value in self._cookies.items()),
        }

    def _kept(self, answer: ClientResponse) -> ClientResponse:
        for line in filter(None, answer.headers.get("set-cookie", "").split("\n")):
            name, _, value = line.partition(";")[0].partition("=")
            if "notice" not in name:
                self._cookies[name] = value
        return answer


def visible_text(text: str) -> str:
    """Returns the visible words of a page, separated by single spaces."""
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())
