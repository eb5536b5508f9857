"""The worker: claims jobs, runs them and settles their outcomes.

A job passes through these modules, in this order:

- `dispatcher`: the main loop. `claim_planner` tells it how many jobs to claim, and from which queues.
- `settler`: sends the request that settles outcomes and claims jobs.
- `attempt_starter`: turns each claimed job into an attempt.
- `executor`: runs the attempt. `invocation` calls the handler.
- `outcomes`: turns a result or an error into an outcome. `cancellation` handles timeouts and lost claims.
- `outbox`: collects the outcome and wakes the dispatcher.

Beside them, `heartbeat` renews the leases of all claimed jobs (`in_flight`) from a separate thread.
`maintenance` runs the periodic work, for which `leadership` elects a worker. `drain` stops the worker.
`supervisor` runs several worker processes. `runtime` builds the parts. `worker` has the public class."""

from tidemill.worker.metrics import WorkerStats
from tidemill.worker.options import WorkerOptions
from tidemill.worker.worker import Worker

__all__ = ["Worker", "WorkerOptions", "WorkerStats"]
