"""For tests: time that is computed, randomness that can be replayed, and the suite every store must pass.

`run_virtual` runs a whole application in virtual time: a handler that sleeps for a day, a
retry after an hour, a lease that runs out, all in milliseconds. `ManualClock` is for tests
without an event loop. `tidemill.testing.conformance` is imported by the tests of a store.
"""

from __future__ import annotations

from tidemill.testing.manual import ManualClock, SeededEntropy
from tidemill.testing.virtual import (
    VirtualClock,
    VirtualDeadlock,
    VirtualLoop,
    VirtualStandstill,
    run_virtual,
)
from tidemill.testing.virtual_processes import Process, current_process, die

__all__ = [
    "ManualClock",
    "Process",
    "SeededEntropy",
    "VirtualClock",
    "VirtualDeadlock",
    "VirtualLoop",
    "VirtualStandstill",
    "current_process",
    "die",
    "run_virtual",
]
