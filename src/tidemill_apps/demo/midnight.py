"""A day ends while somebody watches: the demo's clock is set to shortly before the provider's midnight."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from tidemill import Tidemill

ZONE = "America/Los_Angeles"


class BeforeMidnight:
    """The machine's clock, set back to `seconds` before the last midnight in Los Angeles. Back and not
    forward: what the demo leaves behind then lies in the past of whoever looks at it.

    It is a boot of its own. Within one boot, a wall clock that jumps is one that somebody has set, and
    nothing would be taken around midnight by either of its times."""

    def __init__(self, seconds: float) -> None:
        self._real = Tidemill("memory://").clock
        self.boot_id = f"before midnight {self._real.boot_id}"
        self.midnight = _last_midnight(self._real.wall())
        self._behind = self._real.wall() - (self.midnight - seconds)

    def wall(self) -> float:
        return self._real.wall() - self._behind

    def boot(self) -> float:
        return self._real.boot()


def _last_midnight(wall: float) -> float:
    today = datetime.fromtimestamp(wall, ZoneInfo(ZONE)).date()
    return datetime(today.year, today.month, today.day, tzinfo=ZoneInfo(ZONE)).timestamp()
