"""Windows: how much of a limit is left, calculated from a small stored state.

Units are counted at the claim, and the call reaches the provider up to `jitter` seconds later. Units
therefore count for the length of the window plus the jitter. So the limit is kept, no matter how late each
call is.

A refund is subtracted where its units were counted, and these units are free at once. A debt is counted when
it becomes known, and may exceed the limit."""

from __future__ import annotations

from tidemill.core.calendars import Calendar
from tidemill.core.limits import Limit, Shape
from tidemill.core.windows.base import SEND_SHARE, Guards, Instant, Window
from tidemill.core.windows.bucket import BucketWindow
from tidemill.core.windows.calendar_window import CalendarWindow
from tidemill.core.windows.concurrent_window import ConcurrentWindow
from tidemill.core.windows.rolling_window import PacedWindow, RollingWindow

WindowState = RollingWindow | BucketWindow | PacedWindow | CalendarWindow | ConcurrentWindow
"""The stored state of one limit."""

_SHAPES: dict[Shape, type[RollingWindow | BucketWindow | PacedWindow]] = {
    Shape.ROLLING: RollingWindow,
    Shape.BUCKET: BucketWindow,
    Shape.PACED: PacedWindow,
}


def new_window(limit: Limit) -> WindowState:
    """Returns an unused window of the kind that the limit needs."""
    if limit.per is None:
        return ConcurrentWindow()
    if isinstance(limit.per, Calendar):
        return CalendarWindow()
    return _SHAPES[limit.shape]()


def fits_limit(window: WindowState, limit: Limit) -> bool:
    """True if the stored window has the kind that the limit needs. If not, the stored window is useless."""
    return type(window) is type(new_window(limit))


__all__ = ["SEND_SHARE", "Guards", "Instant", "Window", "WindowState", "fits_limit", "new_window"]
