"""Every field is shown as text on some page.

tests/browser/test_layout.py checks in a browser that no field runs as a script."""

from __future__ import annotations

import json
from html import unescape

from tests.browser.script_injection import script_value
from tests.web.asgi_client import send_request
from tests.web.populated_store import FIELDS, PopulatedStore
from tidemill.http_routes.routes import Role
from tidemill.web.asgi import Dashboard, page_routes


async def test_every_field_is_on_a_page() -> None:
    world = PopulatedStore("memory://", script_value)
    async with world.app:
        await world.populate()
        running = await world.run()
        admin = await world.token(Role.ADMIN)
        paths = [path for route in page_routes() if not route.writes for path in world.paths(route.path)]
        server = Dashboard(world.app).starlette
        answers = [
            await send_request(server, "GET", path, headers=admin) for path in (*paths, f"/jobs/{running}")
        ]
    shown = "\n".join(unescape(answer.text) for answer in answers)
    assert [field for field in FIELDS if not is_in(shown, script_value(field))] == []
    assert not [answer for answer in answers if script_value("error") in answer.text]


def is_in(shown: str, text: str) -> bool:
    """True if the page contains the text, escaped for HTML or as JSON."""
    return text in shown or json.dumps(text)[1:-1] in shown
