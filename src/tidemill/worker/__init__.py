"""The worker: one actor per file.

    store ◀── pump ── settler     settles what ended and claims what comes next, in few trips
                │ └── producer    how many jobs, of which queues; pace: how far ahead
                ▼
             executor             one task per attempt
                │ ├── handling    other ways to call a handler; runners: threads and processes
                │ ├── judging     what becomes of an attempt that did not just return
                │ └── stopping    timeouts and lost claims; deadlines: one timer for all of them
                ▼
              hands ◀── heartbeat renews all that is held, from a thread of its own

Beside them: bell (sleeping until there is work), drain (stopping), admitter, reclaimer, pruner
(chores, shared out by leader), and supervisor (several workers under one parent). What happens is
told through the emitter; endings counts and tells how attempts ended. `crew` wires them, `worker`
is what an application sees.
"""

from tidemill.worker.options import WorkerOptions
from tidemill.worker.stats import Stats
from tidemill.worker.worker import Worker

__all__ = ["Stats", "Worker", "WorkerOptions"]
