"""A stream of what changes: whole values, whenever one is another than before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from tidemill.inspect.queue_views import require
from tidemill.seam.answers import Events
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.api import flows, jobs, queues, stats
from tidemill.web.api.fields import Name, Query
from tidemill.web.asked import Asked


class Watched(Query, frozen=True, kw_only=True):
    """One of each kind at most; without any it is everything at a glance."""

    job: Name | None = None
    flow: Name | None = None
    queue: Name | None = None


Look = Callable[[Asked], Awaitable[Any]]

_LOOKS: dict[str, Look] = {"job": jobs.get, "flow": flows.get, "queue": queues.info}


async def follow(asked: Asked) -> Events:
    """What is not there is told before the stream begins."""
    watched = {name: of for name in _LOOKS if (of := getattr(asked.query, name)) is not None}
    anyone = _of_nobody(asked, watched)

    async def make() -> dict[str, str]:
        if not watched:
            return {"overview": _written(await stats.overview(anyone))}
        return {name: _written(await _LOOKS[name](anyone)) for name in watched}

    await _require(asked, watched)
    of = ("events", *sorted(watched.items()))
    return Events(asked.looks.watch(of, make, asked.headers.get("last-event-id")))


async def _require(asked: Asked, watched: dict[str, str]) -> None:
    if "job" in watched:
        await asked.inspect.job(watched["job"])
    if "flow" in watched:
        await asked.inspect.flow(watched["flow"])
    if "queue" in watched:
        await require(await asked.app.client.store(), watched["queue"])


def _of_nobody(asked: Asked, watched: dict[str, str]) -> Asked:
    """All who watch the same share what is made for one of them."""
    return Asked(app=asked.app, inspect=asked.inspect, looks=asked.looks, path=watched)


def _written(value: Any) -> str:
    return msgspec.json.encode(value).decode()


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/events",
        role=Role.VIEWER,
        handler=follow,
        says="Server-sent events named overview, queue, job and flow: each is the whole value as its own "
        "route answers it, sent at once and whenever it has changed. Whoever comes back with Last-Event-ID "
        "and has the newest is sent nothing.",
        query=Watched,
        answers=Events,
        headers={"Last-Event-ID": "The id of the last event that was seen."},
    ),
)
