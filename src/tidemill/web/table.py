"""Every route there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from pkgutil import iter_modules

from tidemill.app import Tidemill
from tidemill.errors import ConfigurationError
from tidemill.seam.routes import Route
from tidemill.web import api, pages


def routes_of(app: Tidemill) -> tuple[Route, ...]:
    """Tidemill's, then the application's own."""
    found = (*api_routes(), *page_routes(), *app.web.routes)
    _refuse_doubles(found)
    return found


def api_routes() -> tuple[Route, ...]:
    return tuple(_routes_in(api))


def page_routes() -> tuple[Route, ...]:
    return tuple(_routes_in(pages))


def _routes_in(package: object) -> Iterator[Route]:
    """Every file of the package has its own, in `ROUTES`."""
    path, name = package.__path__, package.__name__  # type: ignore[attr-defined]
    for module in sorted(info.name for info in iter_modules(path)):
        yield from getattr(import_module(f"{name}.{module}"), "ROUTES", ())


def _refuse_doubles(routes: Sequence[Route]) -> None:
    seen: set[tuple[str, str]] = set()
    for route in routes:
        if (route.method, route.path) in seen:
            raise ConfigurationError(f"{route.method} {route.path} is there twice; remove one of them")
        seen.add((route.method, route.path))
