"""One claimed job in the worker's hands, from the claim to the store's answer."""

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

from tidemill.contract.reader import LOG_LINES
from tidemill.core.claims import Claimed, Settlement
from tidemill.core.outcomes import Outcome
from tidemill.tasks.classifiers import Classifiers
from tidemill.tasks.definition import TaskDefinition
from tidemill.tasks.metering import Meter
from tidemill.tasks.pools import classifiers_of
from tidemill.worker.spending import Metering, Spending

if TYPE_CHECKING:
    from tidemill.tasks.steps import Steps
    from tidemill.tasks.transactions import Transaction
    from tidemill.worker.stepping import Stepping

_FIRST_STEP = threading.Lock()
LINGER = 5.0
"""How long after its timeout or cancellation an attempt may take to clean up, its lease renewed."""


class Stop(Enum):
    """Why a running attempt was cancelled by its worker."""

    TIMEOUT = "timeout"
    LOST = "lost"
    DRAIN = "drain"


class News(msgspec.Struct, eq=False):
    """What a handler said about its attempt and the store has not heard yet.

    Handlers write from any thread, the heartbeat takes: a bounded deque needs no lock for that.
    `unsent` and `sending` belong to the heartbeat alone, which keeps them until a beat got through;
    in a long outage the oldest lines go, as they would in the store. A line is kept with the boot
    time it was said at. `note` is the handler's latest, which a wait hides until it is over.
    """

    lines: deque[tuple[float, str]]
    unsent: deque[tuple[float, str]]
    progress: tuple[float | None, str | None] | None = None
    sending: tuple[float | None, str | None] | None = None
    note: str | None = None

    @property
    def pending(self) -> bool:
        return bool(self.lines or self.unsent or self.progress is not None)

    def take(self) -> tuple[float | None, str | None] | None:
        """Everything said so far; the lines are in `unsent`."""
        while self.lines:
            self.unsent.append(self.lines.popleft())
        self.sending = self.progress
        return self.sending

    def sent(self) -> None:
        self.unsent.clear()
        if self.progress is self.sending:
            self.progress = None


class Attempt(msgspec.Struct, eq=False):
    """`outcome` is set once: from then on the attempt is over for the store, whatever its code does.
    `charged` becomes of its job instead when the pool has no patience left for overloads.

    `lingers` marks an attempt whose thread goes on after its outcome (it cannot be killed): it
    keeps its slot until the thread ends. `begun` marks one whose task has taken its first step:
    a task cancelled before that never runs at all, and would never give its slot back.
    An attempt is the reporter its `Context` talks to; `notify` tells the heartbeat of news, `boot` is
    the clock that dates its lines. `spending` is about its pools, and None while it has to do with none.
    `stepping` about its steps, likewise.
    `call` is the call of a batch task it is a member of: that is what runs, and what is stopped.
    `committed` is the outcome that went to the store in a transaction of the handler's: it stands, whatever
    the handler does after it.
    `leased_until` is how long the store lets the worker hold the job at least, by the boot clock. `expired`
    marks an attempt that was not started because that time was over.
    """

    shared: ClassVar[bool] = False

    job: Claimed
    definition: TaskDefinition | None
    notify: Callable[[], None]
    boot: Callable[[], float]
    metering: Metering
    task: asyncio.Task[None] | None = None
    begun: bool = False
    started: float = 0.0
    ended: float = 0.0
    deadline: float = math.inf
    leased_until: float = math.inf
    expired: bool = False
    stop: Stop | None = None
    outcome: Outcome | None = None
    charged: Outcome | None = None
    lingers: bool = False
    news: News | None = None
    spending: Spending | None = None
    call: Attempt | None = None
    stepping: Stepping | None = None
    committed: Outcome | None = None

    @property
    def timeout(self) -> float:
        assert self.definition is not None  # noqa: S101 - an unknown task is never started
        return self.job.timeout or self.definition.timeout

    @property
    def has_news(self) -> bool:
        return self.news is not None and self.news.pending

    @property
    def is_leased(self) -> bool:
        """False when another worker may have the job: this one was stopped, or could not renew its lease."""
        return self.boot() <= self.leased_until

    def conclude(self, outcome: Outcome) -> None:
        self.outcome = self.committed or outcome
        if self.spending is not None:
            self.spending.end()

    def settles(self) -> Sequence[Attempt]:
        """Whose outcomes go to the store with this one's."""
        return (self,)

    def seconds(self, now: float) -> float:
        """How long it ran, or has been running."""
        return (self.ended or now) - self.started if self.begun else 0.0

    def progress(self, fraction: float, note: str | None) -> None:
        news = self._news()
        if note is not None:
            news.note = note = storable(note)
        news.progress = (fraction, note)
        self.notify()

    def show_wait(self, note: str | None) -> None:
        """Put the note of a wait in the place of the handler's; None puts the handler's back."""
        news = self._news()
        fraction = None if news.progress is None else news.progress[0]
        news.progress = (fraction, note if note is not None else news.note or "")
        self.notify()

    def log(self, line: str) -> None:
        self._news().lines.append((self.boot(), storable(line)))
        self.notify()

    def cancelled(self) -> bool:
        return self.stop is not None

    def tally(self) -> Spending:
        """A job without pools has one when its handler asks for it."""
        if self.spending is None:
            self.spending = Spending(
                self.metering, self.job, lambda: self.deadline, made=True, classifiers=self.classifiers
            )
        return self.spending

    def meter(self) -> Meter:
        return self.tally().meter

    def keeper(self) -> Stepping:
        """Few handlers have steps: what they need is loaded with the first. One for all threads of a handler:
        it numbers the attempt's calls."""
        if self.stepping is None:
            from tidemill.worker.stepping import Stepping

            with _FIRST_STEP:
                self.stepping = self.stepping or Stepping(self.metering, self.job)
        return self.stepping

    def steps(self) -> Steps:
        if self.definition is not None and self.definition.batch is not None:
            from tidemill.tasks.steps import refused_in_batch

            raise refused_in_batch()
        return self.keeper().steps

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        from tidemill.worker.committing import EndInWorker, transaction

        assert self.definition is not None  # noqa: S101 - an unknown task is never started
        return transaction(self.metering.store, self.job, self.definition, EndInWorker(self))

    def reserved(self, sent: float) -> None:
        """Its claim took units for it, at that time of the loop or later."""
        start_by = self.metering.start_by(self.job, sent)
        self.spending = Spending(
            self.metering,
            self.job,
            lambda: self.deadline,
            start_by=start_by,
            classifiers=self.classifiers,
        )

    @property
    def classifiers(self) -> Classifiers | None:
        return None if self.definition is None else classifiers_of(self.definition.pools)

    def settlement(self, outcome: Outcome) -> Settlement:
        job, spending = self.job, self.spending
        spent = None if spending is None else spending.spent(outcome)
        return Settlement(job.id, job.fence, job.claim, outcome, spent, self.charged)

    def _news(self) -> News:
        if self.news is None:
            self.news = News(deque(maxlen=LOG_LINES), deque(maxlen=LOG_LINES))
        return self.news


def storable(text: str) -> str:
    """Text every store can keep: no lone surrogates, no NUL."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")
