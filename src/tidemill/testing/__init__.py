"""For tests: time that is computed, randomness that can be replayed, and the suite every store must pass.

`kit` puts an application on a fresh store in memory for a test and runs its jobs by hand; `inline` runs
each job where it is enqueued. The pytest plugin (`@pytest.mark.tidemill`, the fixture `tidemill_kit`)
is installed with the package.

`run_virtual` runs a whole application in virtual time: a handler that sleeps for a day, a
retry after an hour, a lease that runs out, all in milliseconds. `ManualClock` is for tests
without an event loop. `tidemill.testing.conformance` is imported by the tests of a store.
"""

from __future__ import annotations

from tidemill.testing.inlining import inline
from tidemill.testing.kits import AsyncKit, Kit, UnexpectedFailure, kit
from tidemill.testing.manual import ManualClock, SeededEntropy
from tidemill.testing.place import NotRun
from tidemill.testing.refusals import NotInVirtualTime
from tidemill.testing.virtual import (
    START,
    VirtualClock,
    VirtualDeadlock,
    VirtualLoop,
    VirtualStandstill,
    run_virtual,
)
from tidemill.testing.virtual_processes import Process, current_process, die

__all__ = [
    "START",
    "AsyncKit",
    "Kit",
    "ManualClock",
    "NotInVirtualTime",
    "NotRun",
    "Process",
    "SeededEntropy",
    "UnexpectedFailure",
    "VirtualClock",
    "VirtualDeadlock",
    "VirtualLoop",
    "VirtualStandstill",
    "current_process",
    "die",
    "inline",
    "kit",
    "run_virtual",
]
