"""What happens to flows, each told by the client or the worker that did it."""

from __future__ import annotations

from typing import ClassVar

from tidemill.telemetry.base import Event, Level


class FlowBegun(Event, frozen=True, kw_only=True):
    """The store accepted a flow of this client; `existing`: one with its key was there already."""

    level: ClassVar[Level] = "debug"
    sentence: ClassVar[str] = "flow begun"

    flow: str
    name: str
    steps: int
    existing: bool


class FlowEnded(Event, frozen=True, kw_only=True):
    """A flow is done, failed or cancelled, `seconds` after it began. Taken up again, it ends again."""

    level: ClassVar[Level] = "debug"
    sentence: ClassVar[str] = "flow ended"

    flow: str
    name: str
    state: str
    seconds: float
    reason: str | None
