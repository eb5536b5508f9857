"""Two clocks of one server, for workers on many machines.

Without a clock of its own (which only tests bring) a store goes by the server's: wall time is
`clock_timestamp()`, and boot time is that less a `shift` kept in the schema. A server's wall clock can be
stepped; what tells is that boot time is not where a handle expects it: where it last was, and on by as much
as the handle's own boot clock. `read_clock` then corrects the shift. So leases and windows outlive steps of
the server's clock, and the wall clocks of workers never matter.
"""

from __future__ import annotations

from tidemill.clock import Clock, SystemClock
from tidemill.contract.jobs import Reading

Asked = tuple[float | None, float | None, int | None]
"""What `tidemill.read_clock` takes: wall, boot, epoch."""


class StoreClock:
    """What one handle knows of the server's clocks. `given` is a test's own clock."""

    def __init__(self, given: Clock | None) -> None:
        self._given = given
        self._own: Clock = given or SystemClock()
        self._heard: tuple[float, float, int] | None = None
        self._boot_id = ""

    @property
    def boot_id(self) -> str:
        """A test's clock may boot again."""
        return self._boot_id if self._given is None else self._given.boot_id

    @boot_id.setter
    def boot_id(self, of_schema: str) -> None:
        self._boot_id = of_schema

    def own(self) -> float:
        """Boot time of this process's own clock, for durations."""
        return self._own.boot()

    def asked(self) -> Asked:
        if self._given is not None:
            return self._given.wall(), self._given.boot(), None
        if self._heard is None:
            return None, None, None
        boot, own, epoch = self._heard
        return None, boot + self._own.boot() - own, epoch

    def heard(self, wall: float, boot: float, epoch: int | None) -> Reading:
        """What the server answered. Answers may overtake each other: what is known of a correction stays."""
        if epoch is not None and (self._heard is None or epoch >= self._heard[2]):
            self._heard = boot, self._own.boot(), epoch
        return Reading(wall, boot)

    def given(self) -> Reading | None:
        return None if self._given is None else Reading(self._given.wall(), self._given.boot())
