"""Whatever stands in a field is shown as it stands there, on some page. That no page does what it says is
seen in a browser (`tests/browser/test_pages.py`)."""

from __future__ import annotations

import json
from html import unescape

from tests.browser.harm import harmful
from tests.web.asgi import ask
from tests.web.world import FIELDS, World
from tidemill.seam.roles import Role
from tidemill.web.serving import Server
from tidemill.web.table import page_routes


async def test_every_field_is_on_a_page() -> None:
    world = World("memory://", harmful)
    async with world.app:
        await world.begin()
        running = await world.run()
        admin = await world.token(Role.ADMIN)
        paths = [path for route in page_routes() if not route.writes for path in world.paths(route.path)]
        server = Server(world.app).starlette
        answers = [await ask(server, "GET", path, headers=admin) for path in (*paths, f"/jobs/{running}")]
    shown = "\n".join(unescape(answer.text) for answer in answers)
    assert [field for field in FIELDS if not is_in(shown, harmful(field))] == []
    assert not [answer for answer in answers if harmful("error") in answer.text]


def is_in(shown: str, text: str) -> bool:
    """As it is, or as JSON writes it."""
    return text in shown or json.dumps(text)[1:-1] in shown
