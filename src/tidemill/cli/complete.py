"""What a shell offers for an argument. Whatever goes wrong, it offers nothing and says nothing."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable
from typing import Any

import click

from tidemill.cli.target import Target

OFFERED = 20
LOOKED_AT = 500


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


def tokens(ctx: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """By user, and by id for one of several."""

    async def names(app: Any) -> list[str]:
        found = await app.access.tokens.list()
        return [*dict.fromkeys(token.name for token in found), *(token.id for token in found)]

    return _starting(begun, lambda: _target(ctx).run(names))


def jobs(ctx: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """The newest that begin so."""

    async def names(app: Any) -> list[str]:
        from tidemill.core.filters import Filter

        return [job.id for job in (await app.inspect.find(Filter(id_prefix=begun), limit=OFFERED)).jobs]

    return _starting(begun, lambda: _target(ctx).run(names))


def flows(ctx: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    async def names(app: Any) -> list[str]:
        return [flow.id for flow in (await app.inspect.flows(limit=LOOKED_AT)).flows]

    return _starting(begun, lambda: _target(ctx).run(names))


def flow_names(ctx: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    async def names(app: Any) -> list[str]:
        return sorted({flow.name for flow in (await app.inspect.flows(limit=LOOKED_AT)).flows})

    return _starting(begun, lambda: _target(ctx).run(names))


def arguments(ctx: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """Of the task that stands before them, without those that were written."""

    def names() -> Iterable[str]:
        from tidemill.cli.payloads import parameters

        written = {word.partition("=")[0] for word in ctx.params.get("words") or ()}
        task = _target(ctx).application().tasks[ctx.params["task"]]
        return [f"{each.name}=" for each in parameters(task) if each.name not in written]

    return _starting(begun, names)


def _target(ctx: click.Context) -> Target:
    """What the line says so far, from the command or the group above it."""
    above = ctx.parent.params if ctx.parent else {}
    return Target(ctx.params.get("app") or above.get("app"), ctx.params.get("url") or above.get("url"))


def _starting(begun: str, names: Callable[[], Iterable[str]]) -> list[str]:
    """A name with control characters is not offered: the shell would print them."""
    with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
        return [name for name in names() if name.startswith(begun) and name.isprintable()]
    return []
