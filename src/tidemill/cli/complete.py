"""What a shell offers for an argument. Whatever goes wrong, it offers nothing and says nothing."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable
from typing import Any

import click

from tidemill.cli.target import Target


def tasks(ctx: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    return _starting(begun, lambda: _target(ctx).application().tasks)


def queues(ctx: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    async def names(app: Any) -> list[str]:
        return [info.name for info in await app.store.queues()]

    return _starting(begun, lambda: _target(ctx).run(names))


def pools(ctx: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    async def names(app: Any) -> list[str]:
        return [view.name for view in await app.store.pools() if view.key is None]

    return _starting(begun, lambda: _target(ctx).run(names))


def schedules(ctx: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    async def names(app: Any) -> list[str]:
        return [view.name for view in (await app.schedules.list(limit=1000)).schedules]

    return _starting(begun, lambda: _target(ctx).run(names))


def webhooks(ctx: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    async def names(app: Any) -> list[str]:
        return [view.name for view in await app.webhooks.list()]

    return _starting(begun, lambda: _target(ctx).run(names))


def _target(ctx: click.Context) -> Target:
    """What the line says so far, from the command or the group above it."""
    above = ctx.parent.params if ctx.parent else {}
    return Target(ctx.params.get("app") or above.get("app"), ctx.params.get("url") or above.get("url"))


def _starting(begun: str, names: Callable[[], Iterable[str]]) -> list[str]:
    with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
        return [name for name in names() if name.startswith(begun)]
    return []
