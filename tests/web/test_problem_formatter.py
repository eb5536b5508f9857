"""A route with its own error format uses it for every error."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from msgspec import Struct

from tests.web.asgi_client import HOST, ClientResponse, send_request
from tests.web.signed_in_client import create_token
from tidemill import Tidemill
from tidemill.errors import (
    AnswerUnavailable,
    ConfigurationError,
    DependencyUnavailable,
    JobNotFound,
    StoreUnavailable,
)
from tidemill.testing import ManualClock
from tidemill.web import HTTPError, Problem, Role, RouteRequest
from tidemill.web.api.openapi import openapi_document
from tidemill.web.asgi import Dashboard
from tidemill.web.request_parser import MAX_BODY_BYTES

PATH = "/api/article/{id}/embed"


class Wanted(Struct, forbid_unknown_fields=True):
    ids: list[int] = []


def problem_json(problem: Problem) -> dict[str, Any]:
    return {"status": False, "message": problem.detail, "code": problem.status, "field": problem.field}


RAISED: dict[str, Exception] = {
    "missing": HTTPError(404, "没有这篇文章 7"),
    "long": HTTPError(413, "content: is over 20000 characters; shorten it", field="content"),
    "often": HTTPError(429, "too often; wait", headers={"retry-after": "7"}),
    "full": HTTPError(503, "the queue is full; try later"),
    "wrong": ConfigurationError("ids: must not be empty"),
    "gone": JobNotFound("there is no job 7"),
    "down": StoreUnavailable("the store cannot be reached"),
    "away": DependencyUnavailable("Qdrant", "connection refused", retry_in=14.2),
    "late": AnswerUnavailable("no call is free", code="too_late", reason="full", retry_after=90.5),
    "closed": AnswerUnavailable("the pool: is closed", code="pool_closed", reason="closed"),
    "mistake": ZeroDivisionError("ours"),
}
STATUS = {
    "missing": 404,
    "long": 413,
    "often": 429,
    "full": 503,
    "wrong": 422,
    "gone": 404,
    "down": 503,
    "away": 503,
    "late": 503,
    "closed": 503,
}


@pytest.fixture
async def app(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tidemill]:
    monkeypatch.setenv("TIDEMILL_WEB_RATE", "60")
    async with Tidemill("memory://", clock=ManualClock()) as made:
        yield made


def add(app: Tidemill, problem: Callable[[Problem], Any] | None = problem_json) -> Dashboard:
    @app.web.route("POST", PATH, role=Role.OPERATOR, summary="Embed.", body=Wanted, problem=problem)
    async def embed(asked: RouteRequest) -> dict[str, Any]:
        if (error := RAISED.get(asked.path["id"])) is not None:
            raise error
        return {"status": True, "data": asked.body.ids}

    return Dashboard(app)


async def post(
    server: Dashboard, id_: str, token: str = "", *, method: str = "POST", **headers: str
) -> ClientResponse:
    body = headers.pop("body", "{}").encode()
    sent = {"content-type": "application/json", "authorization": f"Bearer {token}", **headers}
    if not token:
        del sent["authorization"]
    return await send_request(server.starlette, method, PATH.replace("{id}", id_), headers=sent, body=body)


def own(answer: ClientResponse, status: int) -> str:
    """Returns the message of an error response in the route's own format."""
    assert answer.headers["content-type"] == "application/json"
    assert (answer.status, answer.json["status"], answer.json["code"]) == (status, False, status), answer.text
    return str(answer.json["message"])


async def test_authentication_errors_use_the_format(app: Tidemill) -> None:
    server = add(app)
    operator, viewer = await create_token(app, Role.OPERATOR), await create_token(app, Role.VIEWER, "bo")
    anonymous = await post(server, "1")
    assert "authorization: is missing" in own(anonymous, 401)
    assert anonymous.headers["www-authenticate"] == "Bearer"
    assert "needs operator" in own(await post(server, "1", viewer), 403)
    assert "another site's" in own(await post(server, "1", operator, origin="https://elsewhere.example"), 403)
    other = await post(server, "1", operator, method="DELETE")
    assert "it takes POST" in own(other, 405)
    assert other.headers["allow"] == "POST"


async def test_body_errors_use_the_format(app: Tidemill) -> None:
    server, token = add(app), await create_token(app, Role.OPERATOR)
    wrong = await post(server, "1", token, body='{"ids": ["x"]}')
    assert own(wrong, 422).startswith("ids[0]: ")
    assert wrong.json["field"] == "ids[0]"
    own(await post(server, "1", token, body="{"), 400)
    own(await post(server, "1", token, body="{}" + " " * MAX_BODY_BYTES), 413)
    own(await post(server, "1", token, **{"content-type": "text/plain"}), 415)
    assert (await post(server, "1", token, body='{"ids": [3]}')).json == {"status": True, "data": [3]}


@pytest.mark.parametrize("id_", STATUS)
async def test_handler_errors_use_the_format(app: Tidemill, id_: str) -> None:
    refused = await post(add(app), id_, await create_token(app, Role.OPERATOR))
    assert own(refused, STATUS[id_]) == str(RAISED[id_])
    assert refused.headers.get("retry-after") == {"often": "7", "away": "15", "late": "91"}.get(id_)


async def test_too_many_requests(app: Tidemill) -> None:
    server, token = add(app), await create_token(app, Role.OPERATOR)
    for _ in range(60):
        assert (await post(server, "1", token)).status == 200
    refused = await post(server, "1", token)
    assert "60 times a minute" in own(refused, 429)
    assert int(refused.headers["retry-after"]) > 0
    assert "ratelimit" in refused.headers


async def test_an_internal_error_has_no_details(app: Tidemill, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "tidemill"):
        problem = own(await post(add(app), "mistake", await create_token(app, Role.OPERATOR)), 500)
    assert "ours" not in problem
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("problem", [lambda problem: problem.nothing, lambda _: object()])
async def test_a_failing_formatter_is_logged_and_replaced(
    app: Tidemill, problem: Callable[[Problem], Any], caplog: pytest.LogCaptureFixture
) -> None:
    server, token = add(app, problem), await create_token(app, Role.OPERATOR)
    with caplog.at_level(logging.ERROR, "tidemill"):
        refused = await post(server, "missing", token)
    assert (refused.status, refused.json["detail"]) == (404, "没有这篇文章 7")
    assert refused.headers["content-type"] == "application/problem+json"
    assert "its problem= formatter failed" in caplog.text


async def test_other_routes_send_problem_documents(app: Tidemill) -> None:
    server = add(app)
    for path, status in (("/api/v1/queues", 401), ("/api/article/1", 404)):
        answer = await send_request(server.starlette, "GET", path)
        assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")
    elsewhere = await post(server, "1", host=HOST.replace("127.0.0.1", "elsewhere.example"))
    assert (elsewhere.status, elsewhere.headers["content-type"]) == (421, "application/problem+json")


async def test_the_openapi_document_describes_the_format(app: Tidemill) -> None:
    described = openapi_document(add(app).routes)["paths"][PATH]["post"]["responses"]
    assert set(described["404"]["content"]) == set(described["default"]["content"]) == {"application/json"}


@pytest.mark.parametrize("status", [0, 999])
def test_an_invalid_status_is_refused(status: int) -> None:
    with pytest.raises(ValueError, match="HTTPStatus"):
        HTTPError(status, "no")
