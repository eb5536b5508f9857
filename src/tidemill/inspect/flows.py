"""Finding flows."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidemill.contract.store import Store
from tidemill.core.courses import Kind
from tidemill.core.graph_state import FlowState
from tidemill.errors import ConfigurationError
from tidemill.flows.views import FlowView, view_of

MOST_AT_ONCE = 1000


class FlowPage(msgspec.Struct, frozen=True):
    """`cursor` continues where this page ends; None when it is the last."""

    flows: tuple[FlowView, ...]
    cursor: str | None


async def find(
    store: Store, name: str | None, states: Sequence[str] | None, limit: int, cursor: str | None
) -> FlowPage:
    if not 1 <= limit <= MOST_AT_ONCE:
        raise ConfigurationError(f"limit: must lie between 1 and {MOST_AT_ONCE}, is {limit}")
    for state in states or ():
        if state not in tuple(FlowState):
            raise ConfigurationError(f"states: there is no state {state!r}; there are {', '.join(FlowState)}")
    page = await store.find_courses(Kind.FLOW, name=name, states=states, limit=limit, cursor=cursor)
    return FlowPage(tuple(view_of(course) for course in page.courses), page.cursor)
