"""I26 Stepped and wrong clocks break nothing: most of it is that every other invariant holds in
histories whose clocks go wrong. Here: no history lasts a day, so nothing has waited for one."""

from __future__ import annotations

from tests.simulation.trace import Violation
from tests.simulation.watch import Event
from tidemill.core.states import State
from tidemill.core.transitions import UNKNOWN_TASK


class Clocks:
    def see(self, event: Event) -> None:
        for id_, (before, after) in event.changes.items():
            if before is None or after is None or before.state is after.state:
                continue
            if after.state is State.FAILED and after.reason == UNKNOWN_TASK:
                raise Violation(
                    "I26", f"{id_} failed as unknown for a day, {event.boot:.0f} s into the history"
                )
