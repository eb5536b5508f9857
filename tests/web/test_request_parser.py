"""Forms as a handler receives them."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

import msgspec
import pytest

from tests.web.asgi_client import send_request
from tests.web.signed_in_client import FORM
from tidemill import Tidemill
from tidemill.web import Role, RouteRequest, TextResponse, User, dashboard


class Note(msgspec.Struct):
    text: Annotated[str, msgspec.Meta(max_length=7)]


@pytest.mark.parametrize(
    ("sent", "given"),
    [("潮\r\n\r\n磨", "潮\n\n磨"), ("a\rb", "a\nb"), ("a\nb", "a\nb"), ("\r\n\r\n\r\n1234", "\n\n\n1234")],
)
async def test_line_breaks_of_a_form_are_normalised(sent: str, given: str) -> None:
    app = Tidemill("memory://")

    async def auth(_: object) -> User:
        return User("ann", Role.VIEWER)

    @app.web.route("POST", "/note", role=Role.VIEWER, summary="A note.", body=Note)
    async def note(asked: RouteRequest) -> TextResponse:
        return TextResponse(repr(asked.body.text))

    async with app:
        headers = {"content-type": FORM, "authorization": "Bearer vouched"}
        body = urlencode({"text": sent}).encode()
        answer = await send_request(dashboard(app, auth=auth), "POST", "/note", headers=headers, body=body)
    assert answer.text == repr(given)
