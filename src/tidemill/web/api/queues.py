"""Queues: what they hold and do, their pauses, and the settings people put over what code declared."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tidemill.contract.reader import Minute
from tidemill.core.queues import DAY
from tidemill.inspect.views import QueueView
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.api.fields import Answer, Body, Query, Seconds, Sentence, Time, Whole
from tidemill.web.asked import Asked

Setting = Literal[
    "weight",
    "concurrency",
    "key_concurrency",
    "max_length",
    "crash_limit",
    "keep_done",
    "keep_failed",
    "keep_cancelled",
]
Bound = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class NewPause(Body, frozen=True, kw_only=True):
    """Without `until` it lasts until somebody resumes it."""

    until: Time | None = None
    reason: Sentence | None = None


class Kept(Body, frozen=True, kw_only=True):
    """How long ended jobs stay: by age, by count, whichever is reached first; null is no bound."""

    age: Seconds | None = None
    count: Whole | None = None


class QueueOverride(Body, frozen=True, kw_only=True):
    """What is given joins the override that holds. `until` ends all of it; null takes an end away."""

    weight: Bound | UnsetType = UNSET
    concurrency: Bound | UnsetType | None = UNSET
    key_concurrency: Bound | UnsetType | None = UNSET
    max_length: Bound | UnsetType | None = UNSET
    crash_limit: Bound | UnsetType = UNSET
    keep_done: Kept | UnsetType = UNSET
    keep_failed: Kept | UnsetType = UNSET
    keep_cancelled: Kept | UnsetType = UNSET
    reason: Sentence | None = None
    until: Time | UnsetType | None = UNSET


class Names(Query, frozen=True, kw_only=True):
    """Without any, all of them."""

    names: list[Setting] = msgspec.field(default_factory=list, name="name")


class Empty(Body, frozen=True, kw_only=True):
    """`confirm` is the name of the queue once more."""

    confirm: str


class Emptied(Answer, frozen=True, kw_only=True):
    queue: str
    deleted: int


class Since(Query, frozen=True, kw_only=True):
    """The last 24 hours, unless it is said; eight days are kept."""

    since: Time | None = None


async def listing(asked: Asked) -> list[QueueView]:
    return await asked.inspect.queues(sparing=True)


async def info(asked: Asked) -> QueueView:
    return await asked.inspect.queue(asked.path["queue"], sparing=True)


async def pause(asked: Asked) -> QueueView:
    await asked.inspect.pause(asked.path["queue"], until=asked.body.until, reason=asked.body.reason)
    return await info(asked)


async def resume(asked: Asked) -> QueueView:
    await asked.inspect.resume(asked.path["queue"])
    return await info(asked)


async def override(asked: Asked) -> QueueView:
    said: QueueOverride = asked.body
    changes: Any = {
        name: msgspec.structs.asdict(value) if isinstance(value, Kept) else value
        for name in QueueOverride.__struct_fields__
        if name not in ("reason", "until") and (value := getattr(said, name)) is not UNSET
    }
    return await asked.inspect.override(
        asked.path["queue"], by=asked.who.name, reason=said.reason, until=said.until, **changes
    )


async def clear(asked: Asked) -> QueueView:
    return await asked.inspect.clear_override(asked.path["queue"], *asked.query.names)


async def empty(asked: Asked) -> Emptied:
    queue = asked.path["queue"]
    return Emptied(queue=queue, deleted=await asked.inspect.empty(queue, confirm=asked.body.confirm))


async def history(asked: Asked) -> list[Minute]:
    return await asked.inspect.history(asked.path["queue"], await since_of(asked))


async def since_of(asked: Asked) -> float:
    said: float | None = asked.query.since
    if said is not None:
        return said
    return (await (await asked.app.client.store()).read_clock()).wall - DAY


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/queues",
        role=Role.VIEWER,
        handler=listing,
        says="Every queue that was declared or has had a job.",
        answers=list[QueueView],
    ),
    Route(
        method="GET",
        path="/api/v1/queues/{queue}",
        role=Role.VIEWER,
        handler=info,
        says="What one queue holds, did and is set to.",
        answers=QueueView,
    ),
    Route(
        method="POST",
        path="/api/v1/queues/{queue}/pause",
        role=Role.OPERATOR,
        handler=pause,
        says="Running jobs go on; nothing new of the queue starts until a time, or until it is resumed.",
        takes=Annotated[
            NewPause, Meta(examples=[{"until": 1_790_000_000, "reason": "the provider is down"}])
        ],
        answers=QueueView,
    ),
    Route(
        method="POST",
        path="/api/v1/queues/{queue}/resume",
        role=Role.OPERATOR,
        handler=resume,
        says="End a pause; harmless when there is none.",
        answers=QueueView,
    ),
    Route(
        method="PATCH",
        path="/api/v1/queues/{queue}/settings",
        role=Role.ADMIN,
        handler=override,
        says="Put settings over those code declared; no deploy erases them.",
        takes=Annotated[QueueOverride, Meta(examples=[{"concurrency": 5, "reason": "month's end"}])],
        answers=QueueView,
    ),
    Route(
        method="DELETE",
        path="/api/v1/queues/{queue}/settings",
        role=Role.ADMIN,
        handler=clear,
        says="The named settings follow the code again; without names, all of them.",
        query=Names,
        answers=QueueView,
    ),
    Route(
        method="POST",
        path="/api/v1/queues/{queue}/empty",
        role=Role.ADMIN,
        handler=empty,
        says="Delete every job of the queue that does not run; its name has to be sent once more.",
        takes=Empty,
        answers=Emptied,
    ),
    Route(
        method="GET",
        path="/api/v1/queues/{queue}/history",
        role=Role.VIEWER,
        handler=history,
        says="What the queue did, minute by minute, quiet ones left out.",
        query=Since,
        answers=list[Minute],
    ),
)
