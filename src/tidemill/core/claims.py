"""Claims: the right to run a job, and what its holder says about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import msgspec

from tidemill.core.flow_jobs import InFlow
from tidemill.core.job import Job
from tidemill.core.needs import Need
from tidemill.core.outcomes import Answer, Outcome
from tidemill.core.spending import Spent
from tidemill.core.states import State

if TYPE_CHECKING:
    from tidemill.core.pool_news import PoolNews


class Share(msgspec.Struct, frozen=True):
    """How many jobs of a claim a queue may take before the others have had theirs."""

    queue: str
    jobs: int


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`number` counts a worker's claims: repeating one after a lost reply returns the same jobs.

    Every share is served first, in order; what is left of `limit` goes to the queues in order.
    With `ids`, exactly those jobs are meant and shares do not apply.
    """

    worker: str
    number: int
    shares: tuple[Share, ...]
    limit: int
    lease: float
    ids: tuple[str, ...] | None = None


class Claimed(msgspec.Struct):
    """One job in a worker's hands. `attempt` is the number this run will be charged as.

    Jobs of a batch task come in calls, one behind the other; `call` is the id of the first of them, '' for
    any other job. That first one holds what the call takes of its pools, so the `spent` of its settlement
    is about the call, and the others' settlements have none. `extra` was taken too, for calls its handler
    asked for in an attempt before (P18)."""

    id: str
    queue: str
    task: str
    payload: bytes
    fence: int
    claim: int
    attempt: int
    priority: int
    lane: str
    crashes: int
    generation: int
    timeout: float | None
    trace: str | None
    created: float
    due: float
    part: str
    needs: tuple[Need, ...] = ()
    call: str = ""
    extra: tuple[Need, ...] = ()
    flow: InFlow | None = None

    @property
    def suspect(self) -> bool:
        """True for a job with a crash on record: it runs in a child process."""
        return self.crashes > 0


class Claims(msgspec.Struct, kw_only=True):
    """`next_due` is how many seconds on something of these queues comes due, if known.

    `more` says that jobs were left behind which another worker could start now, `lingers` that some
    of a batch wait for company: they will start though nothing else comes. `news` is what the claim did to
    pools; a claim that is repeated has none. `waited` is P20.
    """

    jobs: list[Claimed]
    more: bool = False
    next_due: float | None = None
    blocked: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    lingers: bool = False
    news: tuple[PoolNews, ...] = ()
    waited: float | None = None

    def after(self, waited: float) -> Self:
        """P20: with the wait that the store measured, unless the claim is a repetition."""
        if self.waited is not None:
            self.waited = max(0.0, waited)
        return self


class Settlement(msgspec.Struct, frozen=True):
    """`spent` is about the pools of the job; None for a job that needs none. `charged` is what becomes of
    it when its pool's budget for overloads is used up, in the place of `outcome`."""

    job: str
    fence: int
    claim: int
    outcome: Outcome
    spent: Spent | None = None
    charged: Outcome | None = None


class Settled(msgspec.Struct):
    """One answer per settlement, in their order; the next jobs when they were asked for. `news` is what the
    settlements did to pools."""

    answers: list[Answer]
    claims: Claims | None = None
    news: tuple[PoolNews, ...] = ()


class Said(msgspec.Struct, frozen=True):
    """A log line. `age` is how many seconds ago it was said: the store's clock alone dates it."""

    line: str
    age: float = 0.0


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A claim still in its worker's hands, with news of the run.

    `renew=False` lists the job without prolonging its lease: it has outrun its timeout.
    """

    job: str
    fence: int
    claim: int
    renew: bool = True
    progress: float | None = None
    note: str | None = None
    log: tuple[Said, ...] = ()


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a worker holds. `received` is the last claim number whose reply it saw:
    a running job of an earlier claim that is not listed was lost on the way and goes back."""

    worker: str
    received: int
    lease: float
    held: tuple[Held, ...] = ()
    host: str = ""
    pid: int = 0
    queues: tuple[str, ...] = ()
    concurrency: int = 0


def is_current(job: Job, fence: int, claim: int) -> bool:
    return job.state is State.RUNNING and job.claim == claim and job.fence == fence


def answer_to(job: Job | None, fence: int, claim: int) -> Answer:
    """What a fenced write is told: only OK may change anything."""
    if job is None:
        return Answer.GONE
    if job.claim != claim or job.fence != fence:
        return Answer.STALE
    return Answer.OK if job.state is State.RUNNING else Answer.AGAIN
