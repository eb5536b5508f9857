"""The page on the dashboard names every page there is, where it is and by which keys."""

from __future__ import annotations

import re

from tests.docs.pages import page
from tests.web.pages.visitor import Visitor
from tidemill import Tidemill
from tidemill.seam.roles import Role
from tidemill.web.table import page_routes
from tidemill.web.ways import WAYS

ROW = re.compile(r"^\| ([A-Z][\w ]+) \| `(/[\w-]*)` \| `g` `(\w)` \|", re.MULTILINE)
WAY = re.compile(r'<a href="(/[\w-]*)" data-key="(\w)"[^>]*>.*?</svg>([^<]+)</a>')


async def test_pages_and_keys_are_those_of_the_navigation() -> None:
    app = Tidemill("memory://")
    async with app:
        shown = await Visitor(app, Role.ADMIN).page("/workers")
    ways = {(name, path, key) for path, key, name in WAY.findall(shown)}
    assert ways == set(ROW.findall(page("how-to/dashboard.md")))
    assert len({key for _, _, key in ways}) == len(ways)


def test_whoever_is_shown_a_way_may_go_it() -> None:
    roles = {route.path: route.role for route in page_routes() if not route.writes}
    assert {way.path: way.role for _, ways in WAYS for way in ways}.items() <= roles.items()


async def test_the_help_names_the_same_keys() -> None:
    app = Tidemill("memory://")
    async with app:
        shown = await Visitor(app, Role.ADMIN).page("/workers")
    keys = re.findall(r"<kbd>g</kbd> <kbd>(\w)</kbd></dt><dd>([^<]+)</dd>", shown)
    assert {(name, key) for key, name in keys} == {(name, key) for _, key, name in WAY.findall(shown)}
