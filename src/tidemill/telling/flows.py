"""That a flow has ended is told in the very step that ends it: its deliveries come of the flow itself."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tidemill.core.courses import Advance, Course, Made
from tidemill.core.graph_state import ENDED
from tidemill.telling import bodies, deliveries
from tidemill.telling.webhook import OWN_QUEUE, Kept


def with_deliveries(webhooks: Sequence[Kept], before: Course, advance: Advance) -> Advance:
    """The same advance, with what is to be told if the flow ends with it."""
    after = advance.next
    if not webhooks or after is None or after.state not in ENDED or after.state == before.state:
        return advance
    told = f"{before.id} {after.state} {advance.expected + 1}"
    made = tuple(
        Made(OWN_QUEUE, deliveries.of_flow(one.webhook, told, bodies.of_flow(before, after.state)))
        for one in webhooks
        if one.webhook.wanted.wants_flow(before.name)
    )
    return replace(advance, jobs=(*advance.jobs, *made)) if made else advance
