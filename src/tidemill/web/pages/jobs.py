"""Jobs by state, found by what is known of them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tidemill.contract.reader import Page as Found
from tidemill.core.filters import Filter
from tidemill.core.states import State
from tidemill.inspect.views import Count
from tidemill.seam.answers import Page
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.api.fields import Cursor, Name, Sentence
from tidemill.web.asked import Asked

SHOWN = 50
WITHIN = {"hour": 3600.0, "day": 86_400.0, "week": 604_800.0}
Field = Annotated[str, Meta(pattern="^[^=]+=", max_length=1000)]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Every part that is given must match; `field` is a path into the payload and the value there,
    `within` how long ago they were made at most."""

    state: State | None = None
    queue: Name | None = None
    task: Name | None = None
    key: Name | None = None
    tag: Name | None = None
    flow: Name | None = None
    id: Name | None = None
    text: Sentence | None = None
    field: Field | None = None
    within: Literal["hour", "day", "week"] | None = None

    def filter(self, now: float) -> Filter:
        path, _, value = (self.field or "").partition("=")
        return Filter(
            states=None if self.state is None else (self.state,),
            queue=self.queue,
            task=self.task,
            key=self.key,
            tag=self.tag,
            flow=self.flow,
            id_prefix=self.id,
            text=self.text,
            fields=((path, value),) if self.field else (),
            since=None if self.within is None else now - WITHIN[self.within],
        )

    @property
    def plain(self) -> bool:
        """Counted at once, and cheap to look at again and again."""
        return self == Wanted(state=self.state, queue=self.queue)

    @property
    def narrowed(self) -> bool:
        """By more than the fields that are always in sight."""
        return self != Wanted(state=self.state, queue=self.queue, text=self.text)

    def given(self, *, without: str = "") -> dict[str, str]:
        return {
            name: str(value)
            for name, value in msgspec.structs.asdict(self).items()
            if value and name != without
        }


class Search(Wanted, frozen=True, kw_only=True):
    cursor: Cursor | None = None


async def jobs(asked: Asked) -> Page:
    said: Search = asked.query
    wanted = Wanted(**{name: getattr(said, name) for name in Wanted.__struct_fields__})
    asks = wanted.filter(asked.app.clock.wall())
    found = await asked.inspect.find(asks, limit=SHOWN, cursor=said.cursor)
    counts = await asked.inspect.counts()
    meant = counts.values() if wanted.queue is None else [counts.get(wanted.queue, {})]
    shows = {
        "wanted": wanted,
        "found": found,
        "first": said.cursor is None,
        "matching": await _matching(asked, found, asks, said.cursor),
        "counts": {state: sum(states.get(state, 0) for states in meant) for state in State},
        "queues": sorted(counts),
        "states": list(State),
    }
    return Page("jobs.html", shows, live=("tabs", "list") if wanted.plain and said.cursor is None else ())


async def _matching(asked: Asked, found: Found, asks: Filter, cursor: int | None) -> Count:
    """Without counting when all of them are on the page."""
    if cursor is None and found.cursor is None:
        return Count(len(found.jobs))
    return await asked.inspect.count(asks)


ROUTES = (
    Route(
        method="GET",
        path="/jobs",
        role=Role.VIEWER,
        handler=jobs,
        says="Jobs, by state and search.",
        query=Search,
    ),
)
