"""The worker: one actor per file.

    store ◀── pump ── settler     one trip at a time settles what ended and claims what comes next
                │ └── producer    how many jobs, of which queues; pace: how far ahead
                ▼
             executor ── runners  one task per attempt: on the loop, in a thread, in a process
                │ └── deadlines   one timer for all timeouts
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
