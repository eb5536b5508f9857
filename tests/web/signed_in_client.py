"""A dashboard with its sign-in, and a browser that stores its cookies."""

from __future__ import annotations

import re
from urllib.parse import urlencode

from tests.web.asgi_client import HOST, ClientResponse, send_request
from tidemill import Tidemill
from tidemill.http_routes.routes import Role
from tidemill.web.asgi import Dashboard

FORM = "application/x-www-form-urlencoded"


class CookieClient:
    """Sends Origin and Sec-Fetch headers as browsers do."""

    def __init__(self, server: Dashboard, address: str = "127.0.0.1") -> None:
        self._server, self._address = server, address
        self.cookies: dict[str, str] = {}

    async def get(self, path: str, **headers: str) -> ClientResponse:
        sent = {"accept": "text/html", "sec-fetch-site": "none", **headers}
        return await self._ask("GET", path, sent, b"")

    async def post(self, path: str, form: dict[str, str] | None = None, **headers: str) -> ClientResponse:
        own = {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin", "accept": "text/html"}
        return await self._ask(
            "POST", path, {**own, "content-type": FORM, **headers}, urlencode(form or {}).encode()
        )

    async def csrf(self) -> str:
        found = re.search(r'<meta name="csrf" content="([^"]*)"', (await self.get("/")).text)
        assert found is not None
        return found[1]

    async def sign_in(self, token: str, **more: str) -> ClientResponse:
        return await self.post("/sign-in", {"token": token, **more})

    async def _ask(self, method: str, path: str, headers: dict[str, str], body: bytes) -> ClientResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookies:
            named["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        answer = await send_request(
            self._server.starlette, method, path, headers=named, body=body, address=self._address
        )
        for cookie in answer.headers.get("set-cookie", "").splitlines():
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
            if "Max-Age=0" in cookie:
                del self.cookies[name]
        return answer


async def create_token(app: Tidemill, role: Role, name: str = "ann") -> str:
    return (await app.auth.tokens.create(name, role)).secret


async def call_with_token(
    server: Dashboard, method: str, path: str, token: str = "", **headers: str
) -> ClientResponse:
    """Sends a request with a token, as a program does."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if token:
        named["authorization"] = f"Bearer {token}"
    return await send_request(server.starlette, method, path, headers=named)
