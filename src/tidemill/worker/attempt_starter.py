"""Turns claimed jobs into attempts and passes them to the executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tidemill.core.claims import ClaimedJob, ClaimResult
from tidemill.core.outcomes import JobRelease
from tidemill.tasks.definition import TaskDefinition
from tidemill.telemetry.events import UnknownTaskReleased
from tidemill.worker.attempt import Attempt
from tidemill.worker.batch_attempt import group_batches
from tidemill.worker.claim_planner import ClaimPlanner
from tidemill.worker.event_emitter import EventEmitter
from tidemill.worker.executor import Executor
from tidemill.worker.in_flight import InFlight
from tidemill.worker.metrics import WorkerStats
from tidemill.worker.outbox import Outbox, ReportBuffer
from tidemill.worker.usage import AttemptEnvironment


class AttemptStarter:
    """Turns claimed jobs into attempts and passes them to the executor. Releases jobs of unknown tasks.

    - `own_tasks`: the tasks that Tidemill itself defines, such as webhook deliveries.
    - `lease`: the length of a lease in seconds.
    - `boot`: returns the boot-clock time."""

    def __init__(
        self,
        in_flight: InFlight,
        executor: Executor,
        outbox: Outbox,
        planner: ClaimPlanner,
        emitter: EventEmitter,
        *,
        tasks: Mapping[str, TaskDefinition],
        own_tasks: Mapping[str, TaskDefinition],
        environment: AttemptEnvironment,
        reports: ReportBuffer,
        stats: WorkerStats,
        boot: Callable[[], float],
        lease: float,
    ) -> None:
        self._in_flight, self._executor, self._outbox = in_flight, executor, outbox
        self._planner, self._emitter, self._stats = planner, emitter, stats
        self._tasks, self._own_tasks, self._environment = tasks, own_tasks, environment
        self._notify, self._boot, self._lease = reports.notify, boot, lease
        self._reported_tasks: set[str] = set()

    def accept(self, claims: ClaimResult, sent: float, sent_boot: float) -> None:
        """Makes attempts of the jobs that a claim returned, and passes them to the executor.

        - `sent`: the earliest event-loop time at which the store may have reserved the units.
        - `sent_boot`: the boot-clock time when the request was sent."""
        ready: list[Attempt] = []
        leased_until = sent_boot + self._lease
        for attempt in group_batches(self._make_attempts(claims.jobs, sent, leased_until), sent):
            job = attempt.job
            if attempt.definition is None:
                self._emit_unknown_task(job)
                self._release(attempt, JobRelease(unknown=True))
            elif attempt.is_batch or not job.call or job.call == job.id:
                ready.append(attempt)
            else:  # no longer a batch task: only the lead of the batch may use its reservation
                self._release(attempt, JobRelease())
        self._stats.claimed += len(claims.jobs)
        self._executor.submit(ready)

    def _make_attempts(
        self, jobs: Sequence[ClaimedJob], sent: float, leased_until: float
    ) -> Iterator[Attempt]:
        in_flight, tasks, notify, boot = self._in_flight, self._tasks, self._notify, self._boot
        environment, held, own = self._environment, in_flight.held, self._own_tasks
        for job in jobs:
            attempt = Attempt(job, tasks.get(job.task) or own.get(job.task), notify, boot, environment)
            attempt.leased_until = leased_until
            if job.needs and (not job.call or job.call == job.id):
                attempt.start_usage(sent)
                self._planner.note_pools()
            if job.deferred_needs:
                self._planner.note_pools()
            if job.id in held:
                if in_flight.knows(job):
                    continue
                self._executor.lose([held[job.id]])  # claimed again, so the older claim is over
            held[job.id] = attempt
            yield attempt

    def _emit_unknown_task(self, job: ClaimedJob) -> None:
        """Emits an event about an unknown task, once per task."""
        if job.task not in self._reported_tasks:
            self._reported_tasks.add(job.task)
            known = tuple(sorted(self._tasks))
            self._emitter.worker_event(UnknownTaskReleased, task=job.task, queue=job.queue, known=known)

    def _release(self, attempt: Attempt, outcome: JobRelease) -> None:
        attempt.conclude(outcome)
        self._outbox.put_unstarted(attempt)
