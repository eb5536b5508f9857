"""docs/how-to/dashboard.md names every page with its path and shortcut."""

from __future__ import annotations

import re

from tests.docs.pages import page
from tests.web.pages.page_client import PageClient
from tidemill import Tidemill
from tidemill.http_routes.routes import Role
from tidemill.web.asgi import page_routes
from tidemill.web.renderer import NAVIGATION

ROW = re.compile(r"^\| ([A-Z][\w ]+) \| `(/[\w-]*)` \| `g` `(\w)` \|", re.MULTILINE)
WAY = re.compile(r'<a href="(/[\w-]*)" data-key="(\w)"[^>]*>.*?</svg>([^<]+)</a>')


async def test_the_documented_pages_and_shortcuts_match_the_navigation() -> None:
    app = Tidemill("memory://")
    async with app:
        shown = await PageClient(app, Role.ADMIN).page("/workers")
    ways = {(name, path, key) for path, key, name in WAY.findall(shown)}
    assert ways == set(ROW.findall(page("how-to/dashboard.md")))
    assert len({key for _, _, key in ways}) == len(ways)


def test_every_role_may_open_the_links_it_sees() -> None:
    roles = {route.path: route.role for route in page_routes() if not route.writes}
    assert {way.path: way.role for _, ways in NAVIGATION for way in ways}.items() <= roles.items()


async def test_the_shortcut_help_has_the_same_keys() -> None:
    app = Tidemill("memory://")
    async with app:
        shown = await PageClient(app, Role.ADMIN).page("/workers")
    keys = re.findall(r"<kbd>g</kbd> <kbd>(\w)</kbd></dt><dd>([^<]+)</dd>", shown)
    assert {(name, key) for key, name in keys} == {(name, key) for _, key, name in WAY.findall(shown)}
