"""An API with a form of its own says no in it, whatever goes wrong."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from msgspec import Struct

from tests.web.asgi import HOST, Answer, ask
from tests.web.signed import token_of
from tidemill import Tidemill
from tidemill.errors import ConfigurationError, JobNotFound, StoreUnavailable
from tidemill.testing import ManualClock
from tidemill.web import Asked, Problem, Refused, Role
from tidemill.web.openapi import document
from tidemill.web.reading import MOST_BYTES
from tidemill.web.serving import Server

PATH = "/api/article/{id}/embed"


class Wanted(Struct, forbid_unknown_fields=True):
    ids: list[int] = []


def told(problem: Problem) -> dict[str, Any]:
    return {"status": False, "message": problem.detail, "code": problem.status, "field": problem.field}


RAISED: dict[str, Exception] = {
    "missing": Refused(404, "没有这篇文章 7"),
    "long": Refused(413, "content: is over 20000 characters; shorten it", field="content"),
    "often": Refused(429, "too often; wait", headers={"retry-after": "7"}),
    "full": Refused(503, "the queue is full; try later"),
    "wrong": ConfigurationError("ids: must not be empty"),
    "gone": JobNotFound("there is no job 7"),
    "down": StoreUnavailable("the store cannot be reached"),
    "mistake": ZeroDivisionError("ours"),
}
STATUS = {"missing": 404, "long": 413, "often": 429, "full": 503, "wrong": 422, "gone": 404, "down": 503}


@pytest.fixture
async def app(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tidemill]:
    monkeypatch.setenv("TIDEMILL_WEB_RATE", "60")
    async with Tidemill("memory://", clock=ManualClock()) as made:
        yield made


def add(app: Tidemill, problem: Callable[[Problem], Any] | None = told) -> Server:
    @app.web.route("POST", PATH, role=Role.OPERATOR, says="Embed.", takes=Wanted, problem=problem)
    async def embed(asked: Asked) -> dict[str, Any]:
        if (error := RAISED.get(asked.path["id"])) is not None:
            raise error
        return {"status": True, "data": asked.body.ids}

    return Server(app)


async def post(server: Server, id_: str, token: str = "", *, method: str = "POST", **headers: str) -> Answer:
    body = headers.pop("body", "{}").encode()
    sent = {"content-type": "application/json", "authorization": f"Bearer {token}", **headers}
    if not token:
        del sent["authorization"]
    return await ask(server.starlette, method, PATH.replace("{id}", id_), headers=sent, body=body)


def own(answer: Answer, status: int) -> str:
    """The sentence of an answer in the route's own form."""
    assert answer.headers["content-type"] == "application/json"
    assert (answer.status, answer.json["status"], answer.json["code"]) == (status, False, status), answer.text
    return str(answer.json["message"])


async def test_what_the_gate_says(app: Tidemill) -> None:
    server = add(app)
    operator, viewer = await token_of(app, Role.OPERATOR), await token_of(app, Role.VIEWER, "bo")
    nobody = await post(server, "1")
    assert "authorization: is missing" in own(nobody, 401)
    assert nobody.headers["www-authenticate"] == "Bearer"
    assert "needs operator" in own(await post(server, "1", viewer), 403)
    assert "another site's" in own(await post(server, "1", operator, origin="https://elsewhere.example"), 403)
    other = await post(server, "1", operator, method="DELETE")
    assert "it takes POST" in own(other, 405)
    assert other.headers["allow"] == "POST"


async def test_what_the_body_is_wrong_about(app: Tidemill) -> None:
    server, token = add(app), await token_of(app, Role.OPERATOR)
    wrong = await post(server, "1", token, body='{"ids": ["x"]}')
    assert own(wrong, 422).startswith("ids[0]: ")
    assert wrong.json["field"] == "ids[0]"
    own(await post(server, "1", token, body="{"), 400)
    own(await post(server, "1", token, body="{}" + " " * MOST_BYTES), 413)
    own(await post(server, "1", token, **{"content-type": "text/plain"}), 415)
    assert (await post(server, "1", token, body='{"ids": [3]}')).json == {"status": True, "data": [3]}


@pytest.mark.parametrize("id_", STATUS)
async def test_what_the_handler_refuses(app: Tidemill, id_: str) -> None:
    refused = await post(add(app), id_, await token_of(app, Role.OPERATOR))
    assert own(refused, STATUS[id_]) == str(RAISED[id_])
    assert refused.headers.get("retry-after") == ("7" if id_ == "often" else None)


async def test_too_many_requests(app: Tidemill) -> None:
    server, token = add(app), await token_of(app, Role.OPERATOR)
    for _ in range(60):
        assert (await post(server, "1", token)).status == 200
    refused = await post(server, "1", token)
    assert "60 times a minute" in own(refused, 429)
    assert int(refused.headers["retry-after"]) > 0
    assert "ratelimit" in refused.headers


async def test_a_mistake_of_ours_tells_nothing_of_it(app: Tidemill, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "tidemill"):
        said = own(await post(add(app), "mistake", await token_of(app, Role.OPERATOR)), 500)
    assert "ours" not in said
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("problem", [lambda problem: problem.nothing, lambda _: object()])
async def test_one_that_fails_is_told_and_replaced(
    app: Tidemill, problem: Callable[[Problem], Any], caplog: pytest.LogCaptureFixture
) -> None:
    server, token = add(app, problem), await token_of(app, Role.OPERATOR)
    with caplog.at_level(logging.ERROR, "tidemill"):
        refused = await post(server, "missing", token)
    assert (refused.status, refused.json["detail"]) == (404, "没有这篇文章 7")
    assert refused.headers["content-type"] == "application/problem+json"
    assert "its problem= could not say what went wrong" in caplog.text


async def test_others_are_told_in_documents(app: Tidemill) -> None:
    server = add(app)
    for path, status in (("/api/v1/queues", 401), ("/api/article/1", 404)):
        answer = await ask(server.starlette, "GET", path)
        assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")
    elsewhere = await post(server, "1", host=HOST.replace("127.0.0.1", "elsewhere.example"))
    assert (elsewhere.status, elsewhere.headers["content-type"]) == (421, "application/problem+json")


async def test_the_description_says_so(app: Tidemill) -> None:
    described = document(add(app).routes)["paths"][PATH]["post"]["responses"]
    assert set(described["404"]["content"]) == set(described["default"]["content"]) == {"application/json"}


@pytest.mark.parametrize("status", [0, 999])
def test_a_status_that_is_none(status: int) -> None:
    with pytest.raises(ValueError, match="HTTPStatus"):
        Refused(status, "no")
