"""What an application adds to the API and the dashboard: `app.web`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tidemill.core.names import problem_with_name
from tidemill.errors import ConfigurationError
from tidemill.seam.refusals import Told
from tidemill.seam.roles import Role
from tidemill.seam.routes import Handler, Method, Route
from tidemill.seam.settings import OwnSetting, Read, Write

Handles = TypeVar("Handles", bound=Handler)

RESERVED = ("/api/v1", "/static", "/live", "/sign-in", "/sign-out", "/healthz", "/readyz", "/metrics")


Title = str | Mapping[str, str]
"""In one language, or by the names of several: `{"en": "Music", "zh": "音乐"}`."""


def first_of(title: Title) -> str:
    return title if isinstance(title, str) else next(iter(title.values()))


@dataclass(frozen=True)
class Entry:
    """A line of the navigation. Its title may be given by language; the first is for all others."""

    title: Title
    path: str
    role: Role

    def title_in(self, language: str) -> str:
        if isinstance(self.title, str):
            return self.title
        return self.title.get(language) or first_of(self.title)


class Web:
    """Routes, pages and navigation of an application's own. Its API is below `/api/{name}`, a page wherever
    it says; both under the same sign-in, roles and checks as Tidemill's."""

    def __init__(self) -> None:
        self.routes: list[Route] = []
        self.entries: list[Entry] = []
        self.folders: list[Path] = []
        self.settings: dict[str, OwnSetting] = {}

    def route(
        self,
        method: Method,
        path: str,
        *,
        role: Role,
        says: str,
        takes: Any = None,
        query: Any = None,
        answers: Any = None,
        status: int = 200,
        audited: bool | Callable[[Any], bool] = True,
        problem: Told | None = None,
    ) -> Callable[[Handles], Handles]:
        """`@app.web.route("POST", "/api/music/start", role=Role.OPERATOR, says="Begin.", takes=Start)` above
        an async function of one `Asked`. It says no by raising `Refused`; whatever goes wrong is sent as
        what `problem` makes of it, such as `lambda problem: {"status": False, "message": problem.detail}`."""

        def add(handler: Handles) -> Handles:
            self._add(
                Route(
                    method=method,
                    path=path,
                    role=role,
                    handler=handler,
                    says=says,
                    takes=takes,
                    query=query,
                    answers=answers,
                    status=status,
                    audited=audited,
                    problem=problem,
                )
            )
            return handler

        return add

    def page(
        self, path: str, *, title: Title, role: Role = Role.VIEWER, query: Any = None, listed: bool = True
    ) -> Callable[[Handles], Handles]:
        """`@app.web.page("/music", title="Music")` above an async function of one `Asked` that answers a
        `Page`. It is `listed` in the navigation unless its path has parameters; there the title may be in the
        reader's language: `title={"en": "Music", "zh": "音乐"}`."""
        if not title:
            raise ConfigurationError(f"title: page {path!r} has none; give it one")

        def add(handler: Handles) -> Handles:
            route = Route(
                method="GET", path=path, role=role, handler=handler, says=first_of(title), query=query
            )
            self._add(route)
            if listed and not route.parameters:
                self.entries.append(Entry(title, path, role))
            return handler

        return add

    def setting(self, name: str, type: Any, *, says: str, read: Read, write: Write) -> None:  # noqa: A002 - the word for it
        """A setting that admins see and change beside Tidemill's: `app.web.setting("queue_batch_size",
        Annotated[int, Meta(ge=1)], says="songs in one call", read=…, write=…)`."""
        if problem := problem_with_name("name", name):
            raise ConfigurationError(problem)
        if name in self.settings:
            raise ConfigurationError(f"setting {name!r} is added twice; remove one of them")
        self.settings[name] = OwnSetting(name, type, says, read, write)

    def templates(self, folder: str | Path) -> None:
        """Where the templates of the pages are. They may extend `shell.html`, and use its macros."""
        found = Path(folder)
        if not found.is_dir():
            raise ConfigurationError(f"templates: there is no folder {found}; name one that is there")
        self.folders.append(found)

    def _add(self, route: Route) -> None:
        if route.path == "/" or route.path.startswith(RESERVED):
            raise ConfigurationError(f"path: {route.path!r} is Tidemill's own; choose another")
        if any((route.method, route.path) == (other.method, other.path) for other in self.routes):
            raise ConfigurationError(f"{route.method} {route.path} is added twice; remove one of them")
        self.routes.append(route)
