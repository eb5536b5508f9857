"""Applications by name: what installed packages offer in the entry point group `tidemill.applications`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from tidemill.cli.nearest import instead_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "tidemill.applications"


def find(name: str) -> EntryPoint:
    found = [offer for offer in _offers() if offer.name == name]
    if not found:
        raise click.UsageError(_nothing_named(name))
    if len({offer.value for offer in found}) > 1:
        ways = " or ".join(sorted(offer.value for offer in found))
        raise click.UsageError(f"app: {name!r} is the name of several applications; write {ways}")
    return found[0]


def remedy(offer: EntryPoint, missing: str | None) -> str | None:
    """What to install when the application imports in vain: a package that an extra of the same name as
    the application brings. A module of its own that is missing is another matter."""
    package = offer.dist
    own = offer.module.partition(".")[0]
    if package is None or missing is None or missing.partition(".")[0] == own:
        return None
    if offer.name not in (package.metadata.get_all("Provides-Extra") or ()):
        return None
    return (
        f"app: {offer.name} needs the package of the module {missing!r}, which is not installed; "
        f"pip install '{package.name}[{offer.name}]'"
    )


def offered(_ctx: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """To a shell that completes."""
    return sorted({offer.name for offer in _offers() if offer.name.startswith(begun)})


def _offers() -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


def _nothing_named(name: str) -> str:
    like = f"{name}:app" if name.replace(".", "_").isidentifier() else "myproject.jobs:app"
    names = {offer.name for offer in _offers()}
    return (
        f"app: no installed package has an application named {name!r}: {instead_of(name, names)}; "
        f"one of your own is written module:app, such as {like}"
    )
