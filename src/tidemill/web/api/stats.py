"""Everything at a glance, and the last 24 hours of it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tidemill.contract.reader import Minute
from tidemill.inspect.views import Overview
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.api.queues import Since, since_of
from tidemill.web.asked import Asked

_COUNTED = tuple(name for name in Minute.__struct_fields__ if name != "at")


async def overview(asked: Asked) -> Overview:
    return await asked.inspect.overview(sparing=True)


async def history(asked: Asked) -> list[Minute]:
    since, store = await since_of(asked), await asked.app.client.store()
    return added([await store.history(queue.name, since) for queue in await store.queues()])


def added(queues: Iterable[Iterable[Minute]]) -> list[Minute]:
    """All queues together."""
    found: dict[float, Minute] = {}
    for minutes in queues:
        for minute in minutes:
            before = found.get(minute.at)
            found[minute.at] = minute if before is None else _sum(before, minute)
    return [found[at] for at in sorted(found)]


def _sum(one: Minute, other: Minute) -> Minute:
    both = {name: getattr(one, name) + getattr(other, name) for name in _COUNTED}
    return msgspec.structs.replace(one, **both)


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/stats",
        role=Role.VIEWER,
        handler=overview,
        says="Queues, pools, workers and the store at a glance.",
        answers=Overview,
    ),
    Route(
        method="GET",
        path="/api/v1/stats/history",
        role=Role.VIEWER,
        handler=history,
        says="What all queues did together, minute by minute, quiet ones left out.",
        query=Since,
        answers=list[Minute],
    ),
)
