"""Renders pages from Jinja templates, with the navigation that the user may see."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, StrictUndefined, Template
from starlette.requests import Request

from tidemill.app import Tidemill
from tidemill.http_routes.problems import Problem
from tidemill.http_routes.routes import ANONYMOUS, PageResponse, Role
from tidemill.web.request import RouteRequest
from tidemill.web.template_functions import TEMPLATE_FILTERS, template_globals


@dataclass(frozen=True)
class NavItem:
    """A link of the navigation. Users with `role` or a higher role see it.

    - `name`: its icon, and its label, which is the translation of `page.{name}`
    - `key`: pressing `g` and then this key opens the page"""

    name: str
    path: str
    key: str
    role: Role = Role.VIEWER


NAVIGATION: tuple[tuple[str, tuple[NavItem, ...]], ...] = (
    (
        "monitor",
        (
            NavItem("overview", "/", "o"),
            NavItem("queues", "/queues", "q"),
            NavItem("jobs", "/jobs", "j"),
            NavItem("dead_letters", "/dead-letters", "d"),
        ),
    ),
    (
        "plan",
        (
            NavItem("flows", "/flows", "f"),
            NavItem("schedules", "/schedules", "s"),
            NavItem("pools", "/pools", "p"),
            NavItem("plan", "/plan", "n"),
        ),
    ),
    (
        "operate",
        (
            NavItem("workers", "/workers", "w"),
            NavItem("alerts", "/alerts", "l"),
            NavItem("settings", "/settings", "t"),
            NavItem("tokens", "/tokens", "k", Role.ADMIN),
            NavItem("audit", "/audit", "a", Role.ADMIN),
        ),
    ),
)
"""Groups of links; `navigation.{name}` is the label of a group."""


def navigation_for(role: Role) -> list[tuple[str, list[NavItem]]]:
    """Returns (group name, links) for each group of the navigation, with only the links that `role` may
    open."""
    return [(group, [item for item in items if role.may(item.role)]) for group, items in NAVIGATION]


WEB_FOLDER = Path(__file__).parent


class Renderer:
    """Renders pages from templates, which escape every value. A page of the application can extend Tidemill's
    templates, but cannot replace them."""

    def __init__(self, app: Tidemill) -> None:
        self._entries = app.web.entries
        self._templates = _jinja_environment((WEB_FOLDER / "templates", *app.web.folders))
        self._globals = cache(partial(template_globals, self._templates))

    def page(self, request: Request, route_request: RouteRequest, page: PageResponse) -> str:
        return self._template(page).render(
            self._page_context(request, route_request, page) | dict(page.context)
        )

    def blocks(self, prefix: str, route_request: RouteRequest, page: PageResponse) -> dict[str, str]:
        """Returns the HTML of each live block by name. Live blocks are the template blocks that change while
        the page is open. `prefix` is the path at which the dashboard is mounted."""
        template = self._template(page)
        context = template.new_context(self._block_context(prefix, route_request) | dict(page.context))
        # Blocks use the imports at the top of their template, which run before the first text is rendered.
        next(iter(template.root_render_func(context)), None)
        return {name: "".join(template.blocks[name](context)) for name in page.live}

    def problem(self, request: Request, problem: Problem, *, language: str) -> str:
        globals_ = self._globals(request.scope.get("root_path", ""), language)
        context = {"problem": problem, "came_from": _referring_page(request)}
        return self._templates.get_template("problem.html").render(globals_ | context)

    def _template(self, page: PageResponse) -> Template:
        return self._templates.get_template(page.template)

    def _page_context(
        self, request: Request, route_request: RouteRequest, page: PageResponse
    ) -> dict[str, Any]:
        """Returns the template values of a whole page: values for its blocks and for the layout."""
        prefix = request.scope.get("root_path", "")
        path = request.url.path.removeprefix(prefix)
        return self._block_context(prefix, route_request) | {
            "path": path,
            "live_url": _live_url(request, prefix) if page.live else None,
            "notice": unquote(request.cookies.get("tidemill-notice", "")),
            "navigation": navigation_for(route_request.user.role),
            "can_sign_out": route_request.sign_in is not None,
            "entries": [entry for entry in self._entries if route_request.user.role.may(entry.role)],
            "csrf": request.scope.get("tidemill.csrf", ""),
        }

    def _block_context(self, prefix: str, route_request: RouteRequest) -> dict[str, Any]:
        role = route_request.user.role
        return self._globals(prefix, route_request.language) | {
            "user": None if route_request.user is ANONYMOUS else route_request.user,
            "may": lambda needed: role.may(Role(needed)),
            "now": route_request.app.clock.wall(),
        }


def _referring_page(request: Request) -> str | None:
    """Returns the path and query of the dashboard page from which a refused form was sent. Returns None if no
    page of this host sent a form."""
    page = urlsplit(request.headers.get("referer", ""))
    ours = page.netloc == request.headers.get("host") and page.path.startswith("/")
    if request.method != "POST" or not ours or page.path.startswith("//"):
        return None
    return urlunsplit(("", "", page.path, page.query, ""))


@cache
def _jinja_environment(folders: tuple[Path, ...]) -> Environment:
    """Returns the Jinja environment for these template folders. All dashboards of a process share it."""
    environment = Environment(
        loader=ChoiceLoader([FileSystemLoader(folder) for folder in folders]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(TEMPLATE_FILTERS)
    return environment


def _live_url(request: Request, prefix: str) -> str:
    """Returns the address of the event stream for the page. The path stays percent-encoded, because a path
    parameter may contain a slash."""
    raw_path = request.scope.get("raw_path", request.url.path.encode()).decode("ascii").partition("?")[0]
    path = raw_path.removeprefix(prefix)
    query = f"?{request.url.query}" if request.url.query else ""
    return f"{prefix}/live{path if path != '/' else '/overview'}{query}"
