"""Somebody who looks at pages and uses their forms, in this process."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlencode

from tests.web.asgi import HOST, Answer, ask
from tidemill import Tidemill
from tidemill.web import Role, Who, dashboard

FORM = "application/x-www-form-urlencoded"


class Visitor:
    """Vouched for by the application. `told` is the sentence the last page it was led to shows."""

    def __init__(
        self, app: Tidemill, role: Role = Role.OPERATOR, language: str = "en", *, referer: str = ""
    ) -> None:
        async def auth(_: object) -> Who:
            return Who("ann", role)

        self._served = dashboard(app, auth=auth)
        self._headers = {
            "accept": "text/html",
            "accept-language": language,
            "origin": f"http://{HOST}",
            "referer": referer,
        }
        self._cookies: dict[str, str] = {}
        self._csrf = ""
        self.told = ""

    async def get(self, path: str) -> Answer:
        return self._kept(await ask(self._served, "GET", path, headers=self._brought()))

    async def page(self, path: str) -> str:
        shown = await self.get(path)
        assert shown.status == 200, (path, shown.status, shown.text)
        return shown.text

    async def send(self, path: str, form: list[tuple[str, str]] | dict[str, str] | None = None) -> Answer:
        headers = {**self._headers, "content-type": FORM, "authorization": "Bearer of-a-program"}
        answer = await ask(self._served, "POST", path, headers=headers, body=urlencode(form or {}).encode())
        notice = re.search(r"tidemill-notice=([^;]*)", answer.headers.get("set-cookie", ""))
        self.told = unquote(notice[1]).strip('"') if notice else ""
        return answer

    async def does(self, path: str, form: list[tuple[str, str]] | dict[str, str] | None = None) -> str:
        """Answers where it is led to."""
        answer = await self.send(path, form)
        assert answer.status == 303, (path, answer.status, answer.text)
        return answer.headers["location"]

    def _brought(self) -> dict[str, str]:
        return {
            **self._headers,
            "cookie": "; ".join(f"{name}={value}" for name, value in self._cookies.items()),
        }

    def _kept(self, answer: Answer) -> Answer:
        for line in filter(None, answer.headers.get("set-cookie", "").split("\n")):
            name, _, value = line.partition(";")[0].partition("=")
            if "notice" not in name:
                self._cookies[name] = value
        return answer


def plain(text: str) -> str:
    """What is read of a page: its words, one space between them."""
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())
