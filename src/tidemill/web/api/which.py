"""Which jobs are meant: the filter of `core.filters`, as a query and as a body."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from tidemill.core.filters import Filter
from tidemill.core.states import State
from tidemill.errors import ConfigurationError
from tidemill.inspect.queue_views import require
from tidemill.web.api.fields import Body, Cursor, Limit, Name, Query, Sentence, Time
from tidemill.web.asked import Asked

Field = Annotated[
    str,
    Meta(
        pattern="^[^=]+=",
        max_length=1000,
        description="A path into the payload and the value there: feed.host=a.example.",
    ),
]


class Find(Query, frozen=True, kw_only=True):
    """Every parameter that is given must match. `since` and `until` are about `time`. There are up to 20
    fields."""

    ids: list[Name] | None = field(default=None, name="id")
    id_prefix: Name | None = None
    queue: Name | None = None
    states: list[State] | None = field(default=None, name="state")
    task: Name | None = None
    key: Name | None = None
    tag: Name | None = None
    flow: Name | None = None
    since: Time | None = None
    until: Time | None = None
    time: Literal["created", "due", "finished"] = "created"
    text: Sentence | None = None
    fields: list[Field] = field(default_factory=list, name="field")


class FindPage(Find, frozen=True, kw_only=True):
    limit: Limit = 100
    cursor: Cursor | None = None


class Which(Body, frozen=True, kw_only=True):
    """Every field that is given must match. `fields` are up to 20 pairs of a path into the payload and
    the value there."""

    ids: list[Name] | None = None
    id_prefix: Name | None = None
    queue: Name | None = None
    states: list[State] | None = None
    task: Name | None = None
    key: Name | None = None
    tag: Name | None = None
    flow: Name | None = None
    since: Time | None = None
    until: Time | None = None
    time: Literal["created", "due", "finished"] = "created"
    text: Sentence | None = None
    fields: list[tuple[Name, Name]] = field(default_factory=list)


async def filter_of(asked: Asked, said: Find | Which, states: tuple[State, ...] | None = None) -> Filter:
    """`states` are meant where none were said. A queue nobody knows is a mistake, not an empty one."""
    if said.queue is not None and all(task.queue != said.queue for task in asked.app.tasks.values()):
        await require(await asked.app.client.store(), said.queue)
    return Filter(
        ids=None if said.ids is None else tuple(said.ids),
        id_prefix=said.id_prefix,
        queue=said.queue,
        states=states if said.states is None else tuple(said.states),
        task=said.task,
        key=said.key,
        tag=said.tag,
        flow=said.flow,
        since=said.since,
        until=said.until,
        time=said.time,
        text=said.text,
        fields=tuple(map(_pair, said.fields)),
    )


def require_some(said: Which) -> None:
    """Nothing said must never mean every job."""
    if said in (Which(), Which(time=said.time)):
        raise ConfigurationError("queue: say which jobs are meant, such as a queue, states or ids")


def _pair(said: str | tuple[str, str]) -> tuple[str, str]:
    if isinstance(said, tuple):
        return said
    path, _, value = said.partition("=")
    return path, value
