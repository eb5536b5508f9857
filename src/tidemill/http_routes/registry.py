"""The registry behind `app.web`: routes, pages, navigation, templates and settings of an application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tidemill.core.validation import problem_with_name
from tidemill.errors import ConfigurationError
from tidemill.http_routes.problems import ProblemFormatter
from tidemill.http_routes.routes import Handler, Method, Role, Route

ReadSetting = Callable[[], Awaitable[Any]]
WriteSetting = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True)
class AppSetting:
    """A setting that the application defines and stores itself. `read` is an async function that returns the
    value; `write` is an async function that saves a new value."""

    name: str
    type: Any
    summary: str
    read: ReadSetting
    write: WriteSetting

    def value_of(self, value: Any) -> Any:
        """Converts a form text or a JSON value to the setting's type. Raises ConfigurationError if this is
        not possible."""
        try:
            return msgspec.convert(value, self.type, strict=not isinstance(value, str))
        except msgspec.ValidationError as error:
            sentence = str(error)
            raise ConfigurationError(
                f"{self.name}: {sentence[:1].lower()}{sentence[1:]}; {self.summary}"
            ) from None


HandlerT = TypeVar("HandlerT", bound=Handler)

RESERVED_PATHS = ("/api/v1", "/static", "/live", "/sign-in", "/sign-out", "/healthz", "/readyz", "/metrics")


Title = str | Mapping[str, str]
"""One text, or one per language: `{"en": "Music", "zh": "音乐"}`."""


def default_title(title: Title) -> str:
    return title if isinstance(title, str) else next(iter(title.values()))


@dataclass(frozen=True)
class NavigationEntry:
    """A link in the navigation to a page of the application. Users with `role` or a higher role see it.
    `title` is one text, or one text per language."""

    title: Title
    path: str
    role: Role

    def title_in(self, language: str) -> str:
        if isinstance(self.title, str):
            return self.title
        return self.title.get(language) or default_title(self.title)


class WebRegistry:
    """Routes, pages, navigation and settings that an application adds.

    API routes are below `/api/{name}`; a page may have any path that is not reserved."""

    def __init__(self) -> None:
        self.routes: list[Route] = []
        self.entries: list[NavigationEntry] = []
        self.folders: list[Path] = []
        self.settings: dict[str, AppSetting] = {}

    def route(
        self,
        method: Method,
        path: str,
        *,
        role: Role,
        summary: str,
        body: Any = None,
        query: Any = None,
        response: Any = None,
        status: int = 200,
        audited: bool | Callable[[Any], bool] = True,
        problem: ProblemFormatter | None = None,
    ) -> Callable[[HandlerT], HandlerT]:
        """Returns a decorator that adds a route. The handler is an async function that takes one
        `RouteRequest`:

            @app.web.route("POST", "/api/music/start", role=Role.OPERATOR, summary="Start.", body=Start)

        The handler raises `HTTPError` to refuse a request. `problem` replaces the problem document of an
        error, for example by `lambda problem: {"status": False, "message": problem.detail}`. `Route` explains
        the other parameters."""

        def add(handler: HandlerT) -> HandlerT:
            self._add(
                Route(
                    method=method,
                    path=path,
                    role=role,
                    handler=handler,
                    summary=summary,
                    body=body,
                    query=query,
                    response=response,
                    status=status,
                    audited=audited,
                    problem=problem,
                )
            )
            return handler

        return add

    def page(
        self, path: str, *, title: Title, role: Role = Role.VIEWER, query: Any = None, listed: bool = True
    ) -> Callable[[HandlerT], HandlerT]:
        """Returns a decorator that adds a page. The handler is an async function that takes one
        `RouteRequest` and returns a `PageResponse`:

            @app.web.page("/music", title={"en": "Music", "zh": "音乐"})

        `listed=True`: the navigation shows the page, unless its path has parameters."""
        if not title:
            raise ConfigurationError(f"title: page {path!r} has none; give it one")

        def add(handler: HandlerT) -> HandlerT:
            route = Route(
                method="GET", path=path, role=role, handler=handler, summary=default_title(title), query=query
            )
            self._add(route)
            if listed and not route.parameters:
                self.entries.append(NavigationEntry(title, path, role))
            return handler

        return add

    def setting(self, name: str, type: Any, *, summary: str, read: ReadSetting, write: WriteSetting) -> None:  # noqa: A002 - the word for it
        """Adds a setting of the application to the settings page, where admins can change it:

            app.web.setting("batch_size", int, summary="songs in one call", read=…, write=…)

        `read` and `write` are async functions that return and save the value."""
        if problem := problem_with_name("name", name):
            raise ConfigurationError(problem)
        if name in self.settings:
            raise ConfigurationError(f"setting {name!r} is added twice; remove one of them")
        self.settings[name] = AppSetting(name, type, summary, read, write)

    def templates(self, folder: str | Path) -> None:
        """Adds a folder of page templates. They may extend `layout.html` and use its macros."""
        found = Path(folder)
        if not found.is_dir():
            raise ConfigurationError(f"templates: there is no folder {found}; name one that is there")
        self.folders.append(found)

    def _add(self, route: Route) -> None:
        if route.path == "/" or route.path.startswith(RESERVED_PATHS):
            raise ConfigurationError(f"path: {route.path!r} is Tidemill's own; choose another")
        if any((route.method, route.path) == (other.method, other.path) for other in self.routes):
            raise ConfigurationError(f"{route.method} {route.path} is added twice; remove one of them")
        self.routes.append(route)
