"""Tells who listens that a flow has ended. Of those who advance it one did that, and that one tells."""

from __future__ import annotations

from tidemill.core.courses import Course
from tidemill.core.graph import decode
from tidemill.core.graph_state import ENDED
from tidemill.flows.views import why_ended
from tidemill.telemetry.flow_events import FlowEnded
from tidemill.telemetry.signals import Signals


def tell_ended(signals: Signals, before: Course | None, after: Course) -> None:
    """`before` is None for one that ended as it began, because it has nothing to do."""
    was = None if before is None else before.state
    if after.state in ENDED and was != after.state and signals.wants(FlowEnded):
        signals.emit(
            FlowEnded(
                flow=after.id,
                name=after.name,
                state=after.state,
                seconds=(after.finished or after.created) - after.created,
                reason=why_ended(decode(after.record)),
            )
        )
