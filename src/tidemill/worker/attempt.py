"""One attempt in this worker: a claimed job, from its claim until the store has answered its settlement."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

import msgspec

from tidemill.contract.reader import LOG_LINES_PER_ATTEMPT
from tidemill.core.claims import ClaimedJob, Settlement
from tidemill.core.outcomes import Outcome
from tidemill.tasks.definition import TaskDefinition
from tidemill.tasks.pools import Classifiers, classifiers_of
from tidemill.tasks.usage import UsageMeter
from tidemill.worker.usage import AttemptEnvironment, AttemptUsage

if TYPE_CHECKING:
    from tidemill.tasks.context import JobTransaction
    from tidemill.tasks.steps import StepRunner
    from tidemill.worker.checkpoints import WorkerCheckpoints


_CHECKPOINTS_LOCK = threading.Lock()
CLEANUP_SECONDS = 5.0
"""Seconds an attempt may clean up after its timeout or cancellation; the worker renews its lease meanwhile.
"""


class CancelReason(Enum):
    """Why the worker cancelled a running attempt."""

    TIMEOUT = "timeout"
    LOST = "lost"
    DRAIN = "drain"


class PendingReport(msgspec.Struct, eq=False):
    """Progress and log lines of an attempt that were not sent to the store yet.

    - `lines`: new log lines, each with its boot-clock time. During a long outage the oldest lines are
      dropped.
    - `progress`: a pair of fraction and note; None if there is nothing new.
    - `unsent`, `sending`: what a heartbeat tried to send. Only the heartbeat uses them.
    - `note`: the handler's last note."""

    lines: deque[tuple[float, str]]
    unsent: deque[tuple[float, str]]
    progress: tuple[float | None, str | None] | None = None
    sending: tuple[float | None, str | None] | None = None
    note: str | None = None

    @property
    def pending(self) -> bool:
        return bool(self.lines or self.unsent or self.progress is not None)

    def take(self) -> tuple[float | None, str | None] | None:
        """Moves new log lines to `unsent`. Returns the progress to send as a pair of fraction and note; None
        if there is nothing new."""
        while self.lines:
            self.unsent.append(self.lines.popleft())
        self.sending = self.progress
        return self.sending

    def sent(self) -> None:
        self.unsent.clear()
        if self.progress is self.sending:
            self.progress = None


class Attempt(msgspec.Struct, eq=False):
    """A claimed job and the state of its run.

    - `notify`: wakes the heartbeat after a new report.
    - `boot`: returns the boot-clock time.
    - `begun`: True once the asyncio task of the attempt runs.
    - `leased_until`: the boot-clock time until which the lease certainly lasts.
    - `expired`: True if the attempt was not started because its lease had ended.
    - `stop`: the reason why the worker cancelled the attempt.
    - `outcome`: is set once. From then on the attempt has ended for the store, even if its code still runs.
    - `charged`: a second outcome, which costs an attempt. The store uses it if the provider was overloaded
      too often.
    - `committed`: the outcome that `ctx.transaction()` wrote. It takes precedence over any later outcome.
    - `thread_running`: True while the handler's thread continues after the outcome. The attempt keeps its
      slot.
    - `report`: progress and log lines that were not sent yet.
    - `usage`: None if the attempt uses no pools.
    - `checkpoint_store`: None if the attempt has no steps.
    - `batch`: the batch attempt to which this attempt belongs."""

    is_batch: ClassVar[bool] = False

    job: ClaimedJob
    definition: TaskDefinition | None
    notify: Callable[[], None]
    boot: Callable[[], float]
    environment: AttemptEnvironment
    task: asyncio.Task[None] | None = None
    begun: bool = False
    started: float = 0.0
    ended: float = 0.0
    deadline: float = math.inf
    leased_until: float = math.inf
    expired: bool = False
    stop: CancelReason | None = None
    outcome: Outcome | None = None
    charged: Outcome | None = None
    thread_running: bool = False
    report: PendingReport | None = None
    usage: AttemptUsage | None = None
    batch: Attempt | None = None
    checkpoint_store: WorkerCheckpoints | None = None
    committed: Outcome | None = None

    @property
    def timeout(self) -> float:
        assert self.definition is not None  # noqa: S101 - an unknown task is never started
        return self.job.timeout or self.definition.timeout

    @property
    def has_report(self) -> bool:
        return self.report is not None and self.report.pending

    @property
    def is_leased(self) -> bool:
        """True until the lease ends on this worker's boot clock. After that another worker may hold the
        job."""
        return self.boot() <= self.leased_until

    def conclude(self, outcome: Outcome) -> None:
        self.outcome = self.committed or outcome
        if self.usage is not None:
            self.usage.end()

    def to_settle(self) -> Sequence[Attempt]:
        """Returns the attempts to settle when this attempt has ended. For a batch these are the members that
        have an outcome."""
        return (self,)

    def seconds(self, now: float) -> float:
        """Returns how many seconds the attempt ran, or has run until the event-loop time `now`. Returns 0 if
        it has not begun."""
        return (self.ended or now) - self.started if self.begun else 0.0

    def progress(self, fraction: float, note: str | None) -> None:
        report = self._pending_report()
        if note is not None:
            report.note = note = replace_unstorable(note)
        report.progress = (fraction, note)
        self.notify()

    def show_wait(self, note: str | None) -> None:
        """Shows `note` instead of the handler's own note while the attempt waits. None shows the handler's
        note again."""
        report = self._pending_report()
        fraction = None if report.progress is None else report.progress[0]
        report.progress = (fraction, note if note is not None else report.note or "")
        self.notify()

    def log(self, line: str) -> None:
        self._pending_report().lines.append((self.boot(), replace_unstorable(line)))
        self.notify()

    def cancelled(self) -> bool:
        return self.stop is not None

    def usage_sink(self) -> AttemptUsage:
        """Returns the usage record of the attempt. For a job without pools the first call creates it."""
        if self.usage is None:
            self.usage = AttemptUsage(
                self.environment, self.job, lambda: self.deadline, made=True, classifiers=self.classifiers
            )
        return self.usage

    def meter(self) -> UsageMeter:
        return self.usage_sink().meter

    def checkpoints(self) -> WorkerCheckpoints:
        """Returns the object that reads and writes this attempt's checkpoints. All threads of a handler share
        it."""
        if self.checkpoint_store is None:
            from tidemill.worker.checkpoints import WorkerCheckpoints

            with _CHECKPOINTS_LOCK:
                self.checkpoint_store = self.checkpoint_store or WorkerCheckpoints(self.environment, self.job)
        return self.checkpoint_store

    def steps(self) -> StepRunner:
        if self.definition is not None and self.definition.batch is not None:
            from tidemill.tasks.steps import no_steps_in_batch_error

            raise no_steps_in_batch_error()
        return self.checkpoints().steps

    def transaction(self) -> AbstractAsyncContextManager[JobTransaction]:
        from tidemill.worker.transactional_settle import WorkerTransactionEnd, settle_in_transaction

        assert self.definition is not None  # noqa: S101 - an unknown task is never started
        return settle_in_transaction(
            self.environment.store, self.job, self.definition, WorkerTransactionEnd(self)
        )

    def start_usage(self, sent: float) -> None:
        """Creates the usage record for a job whose claim reserved units. `sent` is the earliest event-loop
        time of this reservation."""
        start_by = self.environment.start_by(self.job, sent)
        self.usage = AttemptUsage(
            self.environment,
            self.job,
            lambda: self.deadline,
            start_by=start_by,
            classifiers=self.classifiers,
        )

    @property
    def classifiers(self) -> Classifiers | None:
        return None if self.definition is None else classifiers_of(self.definition.pools)

    def settlement(self, outcome: Outcome) -> Settlement:
        job, usage = self.job, self.usage
        spent = None if usage is None else usage.spent(outcome)
        return Settlement(job.id, job.fence, job.claim, outcome, spent, self.charged)

    def _pending_report(self) -> PendingReport:
        if self.report is None:
            self.report = PendingReport(
                deque(maxlen=LOG_LINES_PER_ATTEMPT), deque(maxlen=LOG_LINES_PER_ATTEMPT)
            )
        return self.report


def replace_unstorable(text: str) -> str:
    """Returns the text with lone surrogates and NUL characters replaced, because some stores cannot store
    them."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")
