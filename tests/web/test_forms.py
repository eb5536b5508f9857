"""What a form says, as a route is given it."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

import msgspec
import pytest

from tests.web.asgi import ask
from tests.web.signed import FORM
from tidemill import Tidemill
from tidemill.web import Asked, Role, Text, Who, dashboard


class Note(msgspec.Struct):
    text: Annotated[str, msgspec.Meta(max_length=7)]


@pytest.mark.parametrize(
    ("sent", "given"),
    [("潮\r\n\r\n磨", "潮\n\n磨"), ("a\rb", "a\nb"), ("a\nb", "a\nb"), ("\r\n\r\n\r\n1234", "\n\n\n1234")],
)
async def test_lines_end_as_they_do_elsewhere(sent: str, given: str) -> None:
    app = Tidemill("memory://")

    async def auth(_: object) -> Who:
        return Who("ann", Role.VIEWER)

    @app.web.route("POST", "/note", role=Role.VIEWER, says="A note.", takes=Note)
    async def note(asked: Asked) -> Text:
        return Text(repr(asked.body.text))

    async with app:
        headers = {"content-type": FORM, "authorization": "Bearer vouched"}
        body = urlencode({"text": sent}).encode()
        answer = await ask(dashboard(app, auth=auth), "POST", "/note", headers=headers, body=body)
    assert answer.text == repr(given)
