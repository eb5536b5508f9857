"""Test kit: run jobs in memory, in virtual time, with reproducible randomness.

Choose the tool by what you test:

- `kit` replaces the application's store by an empty one in memory. The test decides when jobs run.
- `inline` runs each job in the call that enqueues it. Use it if jobs are not the subject of the test.
- `run_virtual` runs a coroutine in virtual time. A sleep of a day takes milliseconds.
- `ManualClock` is a clock for tests without an event loop.
- `tidemill.testing.simulator` simulates the APIs of providers, with quotas, refusals and bills.
- `tidemill.testing.conformance` is the test suite that every store must pass.

The package includes a pytest plugin. The mark `@pytest.mark.tidemill` runs an async test in virtual time, and
the fixture `tidemill_kit` returns a kit.
"""

from __future__ import annotations

from tidemill.testing.clocks import ManualClock, SeededEntropy, VirtualClock
from tidemill.testing.inline_mode import inline
from tidemill.testing.kit import AsyncKit, Kit, UnexpectedFailure, kit
from tidemill.testing.kit_environment import JobNotRun
from tidemill.testing.virtual_loop import (
    START_TIME,
    UnsupportedInVirtualTime,
    VirtualDeadlock,
    VirtualLoop,
    VirtualStandstill,
    run_virtual,
)
from tidemill.testing.virtual_processes import VirtualProcess, current_process, kill_current_process

__all__ = [
    "START_TIME",
    "AsyncKit",
    "JobNotRun",
    "Kit",
    "ManualClock",
    "SeededEntropy",
    "UnexpectedFailure",
    "UnsupportedInVirtualTime",
    "VirtualClock",
    "VirtualDeadlock",
    "VirtualLoop",
    "VirtualProcess",
    "VirtualStandstill",
    "current_process",
    "inline",
    "kill_current_process",
    "kit",
    "run_virtual",
]
