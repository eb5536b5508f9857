"""An application behind its API, and a client for it."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request

from tests.web.asgi_client import HOST, ClientResponse, send_request
from tidemill import Context, Limit, Retry, Tidemill
from tidemill.http_routes.routes import Role, User
from tidemill.web.asgi import Dashboard


def shop_app(url: str, **parts: Any) -> Tidemill:
    app = Tidemill(url, **parts)
    app.queue("mail")
    pool = app.pool("model", Limit.requests(5, per="minute"))
    site = app.pool("site", Limit.requests(1, per="second"), keyed=True)

    @app.task(name="send", queue="mail", retry=Retry(attempts=1))
    async def send(ctx: Context, to: str, copies: int = 1) -> str:
        ctx.log(f"to {to}")
        if to == "nobody":
            raise ConnectionError("nobody home")
        return f"{copies} to {to}"

    @app.task(name="anything", queue="mail")
    async def anything(what: Any) -> Any:
        return what

    @app.task(name="describe", queue="texts", pool=pool)
    async def describe(text: str) -> str:
        return text

    @app.task(name="refresh", queue="feeds", pool=site.by(lambda feed: feed))
    async def refresh(feed: str) -> None: ...

    return app


class ApiClient:
    """A header names the user, because the sign-in has its own tests."""

    def __init__(self, app: Tidemill) -> None:
        self.app, self.server = app, Dashboard(app, _who)

    async def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> ClientResponse:
        """Sends a request below `/api/v1`, unless `path` starts elsewhere. Header names have underscores."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        sent |= {"origin": f"http://{HOST}", "authorization": "Bearer of a name"}
        if body is not None:
            sent.setdefault("content-type", "application/json")
        written = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        whole = path if path.startswith("/api/") else f"/api/v1{path}"
        return await send_request(self.server.starlette, method, whole, headers=sent, body=written)

    async def get(self, path: str) -> Any:
        return await self.ok("GET", path)

    async def ok(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        answer = await self(method, path, body, **headers)
        assert answer.status in (200, 201), answer.text
        return answer.json

    async def refused(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str, str]:
        """Returns the status, the field and the detail of a refusal."""
        answer = await self(method, path, body, **headers)
        assert 400 <= answer.status < 500, (answer.status, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
        return answer.status, answer.json.get("field", ""), answer.json["detail"]

    async def sent(self, to: str = "ann", **options: Any) -> str:
        answer = await self.ok("POST", "/jobs", {"task": "send", "payload": {"to": to}, **options})
        return str(answer["id"])

    async def work(self) -> None:
        await self.app.worker(until_idle=True, concurrency=2).run()


async def _who(request: Request) -> User:
    return User(request.headers.get("user", "ann"), Role.ADMIN)
