"""No request causes a server error, and every response matches the OpenAPI document.

Schemathesis generates valid and invalid requests from the document; half of them use existing names.
TIDEMILL_FUZZ is the number of requests of each kind per route."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from requests import Request
from schemathesis import Case, Response
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.openapi import from_dict
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.web.asgi_client import HOST, ClientResponse, send_request
from tests.web.populated_store import PopulatedStore
from tidemill.http_routes.routes import Role
from tidemill.web.api.openapi import openapi_document
from tidemill.web.asgi import Dashboard, api_routes

EXAMPLES = int(os.environ.get("TIDEMILL_FUZZ", "4"))
LOOSE = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize="TIDEMILL_FUZZ" not in os.environ,
    suppress_health_check=[*HealthCheck],
    phases=[Phase.generate],
)


class Target:
    """An application with its own event loop; requests run one after the other."""

    def __init__(self, file: Path) -> None:
        self._runner = asyncio.Runner()
        self.world = PopulatedStore(f"sqlite:///{file}")
        self._server = Dashboard(self.world.app)

    def __enter__(self) -> Self:
        self._runner.run(self.world.app.__aenter__())
        self._runner.run(self.world.populate())
        self._admin = self._runner.run(self.world.token(Role.ADMIN))
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self.world.app.close())
        self._runner.close()

    def ask(self, case: Case[Any]) -> ClientResponse:
        headers = {name: str(value) for name, value in (case.headers or {}).items()} | self._admin
        body = b""
        if case.media_type:
            headers["content-type"] = case.media_type
            body = case.body if isinstance(case.body, bytes) else json.dumps(case.body, default=repr).encode()
        path = f"{case.formatted_path}?{urlencode(case.query or {}, doseq=True)}"
        return self._runner.run(
            send_request(self._server.starlette, case.method, path, headers=headers, body=body)
        )


def as_answered(case: Case[Any], answer: ClientResponse) -> Response:
    request = Request(case.method, f"http://{HOST}{case.formatted_path}").prepare()
    headers = {name: [value] for name, value in answer.headers.items()}
    return Response(answer.status, headers, answer.body, request, elapsed=0.0, verify=False)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TIDEMILL_WEB_RATE", "1000000")
        with Target(tmp_path_factory.mktemp("fuzz") / "world.db") as target:
            yield target


Operation = APIOperation[Any, Any, Any, Any]
OPERATIONS = {
    each.ok().label: each.ok()
    for each in from_dict(openapi_document(api_routes())).get_all_operations()
    if isinstance(each, Ok)
}
REFUSABLE = [label for label, each in OPERATIONS.items() if each.body or [*each.iter_parameters()]]
"""The other routes have nothing that could be invalid."""
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.mark.parametrize("label", OPERATIONS)
def test_valid_requests_are_accepted(label: str, target: Target) -> None:
    _send_many(target, OPERATIONS[label], GenerationMode.POSITIVE)


@pytest.mark.parametrize("label", REFUSABLE)
def test_invalid_requests_are_refused(label: str, target: Target) -> None:
    _send_many(target, OPERATIONS[label], GenerationMode.NEGATIVE)


def _send_many(target: Target, operation: Operation, mode: GenerationMode) -> None:
    @LOOSE
    @given(case=operation.as_strategy(generation_mode=mode), there=st.booleans())
    def send(case: Case[Any], there: bool) -> None:
        if there:
            case.path_parameters = {
                name: target.world.path_values[name][0] for name in case.path_parameters or {}
            }
        case.validate_response(as_answered(case, target.ask(case)), checks=CHECKS)

    send()
