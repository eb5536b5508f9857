"""The server's wall clock and boot clock, for workers on many machines. The wall clocks of workers do not
matter.

PostgreSQL has no boot clock. The SQL function `read_clock` computes one: the server's wall time minus a
stored number. When the server's wall clock is set, the function corrects this number, so the boot clock does
not jump."""

from __future__ import annotations

from tidemill.clock import Clock, SystemClock
from tidemill.contract.jobs import ClockReading

ClockArguments = tuple[float | None, float | None, int | None]
"""Arguments of `tidemill.read_clock`: wall, boot, epoch."""


class PostgresClock:
    """The server's clocks, as one store object last read them. `injected` is the clock of a test, which
    replaces the server's clocks."""

    def __init__(self, injected: Clock | None) -> None:
        self._injected = injected
        self._process_clock: Clock = injected or SystemClock()
        self._last_reading: tuple[float, float, int] | None = None
        self._boot_id = ""

    @property
    def boot_id(self) -> str:
        """Returns the id of the current boot: the id stored in the schema, which never changes. A test's
        clock has its own id."""
        return self._boot_id if self._injected is None else self._injected.boot_id

    @boot_id.setter
    def boot_id(self, schema_boot_id: str) -> None:
        self._boot_id = schema_boot_id

    def process_time(self) -> float:
        """Returns the boot time of this process in seconds, for measuring durations."""
        return self._process_clock.boot()

    def arguments(self) -> ClockArguments:
        if self._injected is not None:
            return self._injected.wall(), self._injected.boot(), None
        if self._last_reading is None:
            return None, None, None
        boot, process_time, epoch = self._last_reading
        return None, boot + self._process_clock.boot() - process_time, epoch

    def update(self, wall: float, boot: float, epoch: int | None) -> ClockReading:
        """Stores a reading of the server's clocks and returns it. `epoch`: how often the boot clock was
        corrected so far. A reading with an old `epoch` is not stored."""
        if epoch is not None and (self._last_reading is None or epoch >= self._last_reading[2]):
            self._last_reading = boot, self._process_clock.boot(), epoch
        return ClockReading(wall, boot)

    def injected_reading(self) -> ClockReading | None:
        return None if self._injected is None else ClockReading(self._injected.wall(), self._injected.boot())
