"""Pages from templates."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, StrictUndefined, Template
from starlette.requests import Request

from tidemill.app import Tidemill
from tidemill.seam.answers import Page
from tidemill.seam.refusals import Problem
from tidemill.seam.roles import NOBODY, Role
from tidemill.web.asked import Asked
from tidemill.web.drawing import tools
from tidemill.web.formats import FILTERS
from tidemill.web.ways import ways_of

HERE = Path(__file__).parent


class Renderer:
    """Templates escape whatever they show. An application's own folders are looked into last: its pages
    extend ours, and never take their place."""

    def __init__(self, app: Tidemill) -> None:
        self._entries = app.web.entries
        self._templates = _environment((HERE / "templates", *app.web.folders))
        self._tools = cache(partial(tools, self._templates))

    def page(self, request: Request, asked: Asked, page: Page) -> str:
        return self._template(page).render(self._surroundings(request, asked, page) | dict(page.shows))

    def blocks(self, prefix: str, asked: Asked, page: Page) -> dict[str, str]:
        """Those that are live, each by itself."""
        template = self._template(page)
        context = template.new_context(self._around(prefix, asked) | dict(page.shows))
        # Blocks use what the template imports at its top, and that is run on the way to the first text.
        next(iter(template.root_render_func(context)), None)
        return {name: "".join(template.blocks[name](context)) for name in page.live}

    def problem(self, request: Request, problem: Problem, *, language: str) -> str:
        around = self._tools(request.scope.get("root_path", ""), language)
        shown = {"problem": problem, "came_from": _came_from(request)}
        return self._templates.get_template("problem.html").render(around | shown)

    def _template(self, page: Page) -> Template:
        return self._templates.get_template(page.template)

    def _surroundings(self, request: Request, asked: Asked, page: Page) -> dict[str, Any]:
        """What the shell needs beside what the parts of a page do."""
        prefix = request.scope.get("root_path", "")
        path = request.url.path.removeprefix(prefix)
        return self._around(prefix, asked) | {
            "path": path,
            "live_url": _live_url(request, prefix) if page.live else None,
            "notice": unquote(request.cookies.get("tidemill-notice", "")),
            "ways": ways_of(asked.who.role),
            "signs_out": asked.signing is not None,
            "entries": [entry for entry in self._entries if asked.who.role.may(entry.role)],
            "csrf": request.scope.get("tidemill.csrf", ""),
        }

    def _around(self, prefix: str, asked: Asked) -> dict[str, Any]:
        role = asked.who.role
        return self._tools(prefix, asked.language) | {
            "who": None if asked.who is NOBODY else asked.who,
            "may": lambda needed: role.may(Role(needed)),
            "now": asked.app.clock.wall(),
        }


def _came_from(request: Request) -> str | None:
    """The page of ours that a refused form was sent from."""
    page = urlsplit(request.headers.get("referer", ""))
    ours = page.netloc == request.headers.get("host") and page.path.startswith("/")
    if request.method != "POST" or not ours or page.path.startswith("//"):
        return None
    return urlunsplit(("", "", page.path, page.query, ""))


@cache
def _environment(folders: tuple[Path, ...]) -> Environment:
    """Templates are read and compiled once in a process, however many dashboards it has."""
    made = Environment(
        loader=ChoiceLoader([FileSystemLoader(folder) for folder in folders]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(FILTERS)
    return made


def _live_url(request: Request, prefix: str) -> str:
    """Of the same page, from its path as it was sent: a part may have a slash in it."""
    sent = request.scope.get("raw_path", request.url.path.encode()).decode("ascii").partition("?")[0]
    path = sent.removeprefix(prefix)
    query = f"?{request.url.query}" if request.url.query else ""
    return f"{prefix}/live{path if path != '/' else '/overview'}{query}"
