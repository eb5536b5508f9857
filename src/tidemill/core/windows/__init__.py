"""How much of a limit is left: pure arithmetic on a small state, one shape per file.

A *take* is entered at the moment the store decides. The call reaches the provider up to `guard`
seconds later, so a take is counted for its window and the guard. Then no arrival pattern passes the
limit: what arrives within any W was decided within W + guard, and at most `amount` ever is.

What comes back (a refund) leaves the place it was entered in and is free at once. What comes on top
(a debt) is entered when it is known and may pass the limit: it has been spent.
"""

from __future__ import annotations

from tidemill.core.calendars import Calendar
from tidemill.core.limits import Limit, Shape
from tidemill.core.windows.bucket import Bucket
from tidemill.core.windows.calendar import CalendarCount
from tidemill.core.windows.concurrent import Concurrent
from tidemill.core.windows.paced import Paced
from tidemill.core.windows.rolling import Rolling
from tidemill.core.windows.window import LEAVE_SHARE, Guards, Instant, Window

Kept = Rolling | Bucket | Paced | CalendarCount | Concurrent
"""What a store keeps for a limit: one of these, as data."""

_SHAPES: dict[Shape, type[Rolling | Bucket | Paced]] = {
    Shape.ROLLING: Rolling,
    Shape.BUCKET: Bucket,
    Shape.PACED: Paced,
}


def fresh(limit: Limit) -> Kept:
    """Nothing has been taken yet, as for a pool that was just declared."""
    if limit.per is None:
        return Concurrent()
    if isinstance(limit.per, Calendar):
        return CalendarCount()
    return _SHAPES[limit.shape]()


def fits(window: Kept, limit: Limit) -> bool:
    """False when the limit's kind was changed: what was kept means nothing to it."""
    return type(window) is type(fresh(limit))


__all__ = ["LEAVE_SHARE", "Guards", "Instant", "Kept", "Window", "fits", "fresh"]
