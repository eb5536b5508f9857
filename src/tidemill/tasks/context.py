"""The `Context` of a handler: progress, log, usage, steps and transactions. Also registers with the worker
that a handler waits for another job or flow."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeVar, TypeVarTuple, overload

from tidemill.core.claims import ClaimedJob
from tidemill.core.jobs import trace_id
from tidemill.core.needs import Units
from tidemill.core.result_waits import WaitTarget
from tidemill.errors import ConfigurationError

if TYPE_CHECKING:
    from tidemill.contract.store import Store
    from tidemill.core.checkpoints import OnUnknown
    from tidemill.core.jobs import FlowPosition
    from tidemill.tasks.pools import Pool
    from tidemill.tasks.steps import StepRunner
    from tidemill.tasks.usage import UsageMeter


class JobTransaction:
    """The object in `async with ctx.transaction() as tx:`.

    `tx.connection` is an asyncpg connection with an open transaction. The rows and the success of the job
    commit together at the end of the block."""

    __slots__ = ("connection", "result")

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.result: Any = None

    def done(self, result: Any) -> None:
        """Sets the job's result. It is stored instead of the handler's return value, which is ignored."""
        self.result = result


def not_in_transaction_error(verb: str) -> ConfigurationError:
    return ConfigurationError(
        f"{verb} inside ctx.transaction(): a transaction must not stay open across a call that takes its "
        "time; make the call before the block"
    )


def no_database_error() -> ConfigurationError:
    return ConfigurationError(
        "ctx.transaction(): this store is not in a database that a handler could write to with it; use a "
        "postgresql:// store, or write your rows and let the handler return"
    )


class OpenWait(Protocol):
    """One wait of an attempt for another job or flow."""

    async def check(self, store: Store) -> None:
        """Raises WaitRefused if the wait can never end. The waiting code calls it before each sleep."""
        ...

    def end(self) -> None: ...


class AttemptWaits(Protocol):
    async def begin(self, target: WaitTarget) -> OpenWait | None:
        """Starts a wait of the current attempt and returns it. None if the attempt has ended or must stop.
        Raises WaitRefused if the attempt must not wait."""
        ...


ATTEMPT_WAITS: ContextVar[AttemptWaits | None] = ContextVar("tidemill_waits", default=None)


@asynccontextmanager
async def open_wait(target: WaitTarget, patience: float | None) -> AsyncIterator[OpenWait | None]:
    """Registers that the current attempt waits for `target`, until the block ends. Yields the registered
    wait.

    `patience` is the timeout of the wait in seconds. With 0, or outside of an attempt, it registers nothing
    and yields None."""
    waits = ATTEMPT_WAITS.get()
    wait = None if waits is None or patience == 0 else await waits.begin(target)
    try:
        yield wait
    finally:
        if wait is not None:
            wait.end()


P = ParamSpec("P")
R = TypeVar("R")
A = TypeVarTuple("A")


class Reporter(Protocol):
    """Receives the reports of an attempt, such as progress and log lines. In a child process it is the pipe
    to the worker."""

    def progress(self, fraction: float, note: str | None) -> None: ...
    def log(self, line: str) -> None: ...
    def cancelled(self) -> bool: ...
    def meter(self) -> UsageMeter: ...
    def steps(self) -> StepRunner: ...
    def transaction(self) -> AbstractAsyncContextManager[JobTransaction]: ...


class Context:
    """The running job, as its handler sees it.

    - `attempt`: the number of the attempt, from 1.
    - `state`: the value that the application's lifespan yielded.
    - `job_id`: the id of the job; in a batch, the id of the first job.
    - `batch`: the ids of all jobs of a batch, in the order of the items; empty without a batch.
    - `flow`: the position of the job, or of the batch's first job, in its flow; None without a flow."""

    __slots__ = (
        "_in_transaction",
        "_reporter",
        "attempt",
        "batch",
        "flow",
        "generation",
        "job_id",
        "queue",
        "state",
        "task",
        "trace_id",
    )

    def __init__(
        self,
        reporter: Reporter,
        *,
        job_id: str,
        task: str,
        queue: str,
        attempt: int,
        generation: int = 0,
        trace: str | None = None,
        state: Any = None,
        batch: tuple[str, ...] = (),
        flow: FlowPosition | None = None,
    ) -> None:
        self._reporter = reporter
        self._in_transaction = False
        self.job_id = job_id
        self.task = task
        self.queue = queue
        self.attempt = attempt
        self.generation = generation
        self.trace_id = job_id if trace is None else trace_id(trace, job_id)
        self.state = state
        self.batch = batch
        self.flow = flow

    @classmethod
    def of(
        cls, job: ClaimedJob, reporter: Reporter, state: Any = None, *, batch: tuple[str, ...] = ()
    ) -> Self:
        """Returns the context of a claimed job."""
        return cls(
            reporter,
            job_id=job.id,
            task=job.task,
            queue=job.queue,
            attempt=job.attempt,
            generation=job.generation,
            trace=job.trace,
            state=state,
            batch=batch,
            flow=job.flow,
        )

    @property
    def cancelled(self) -> bool:
        """True if the attempt must stop. Reasons: the job was cancelled, its lease was lost, its timeout is
        over, or the worker's grace time is over.

        The handler should return soon. The result of a handler in a thread is no longer recorded. The process
        of an isolated handler is killed 2 seconds later."""
        return self._reporter.cancelled()

    async def progress(self, fraction: float, note: str | None = None) -> None:
        """Reports the progress of the attempt, from 0 to 1, with an optional note. In a sync handler, call
        `progress_sync`.

        The method returns at once. The store gets the latest report, at most twice a second."""
        self.progress_sync(fraction, note)

    def progress_sync(self, fraction: float, note: str | None = None) -> None:
        """`progress` for sync handlers."""
        if not 0 <= fraction <= 1:
            raise ValueError(f"fraction: must lie between 0 and 1, is {fraction}")
        self._reporter.progress(fraction, note)

    def log(self, message: str) -> None:
        """Adds a line to the job's log; the last 200 of each attempt are kept."""
        self._reporter.log(message)

    def used(
        self,
        pool: Pool | object = None,
        response: object = None,
        /,
        *,
        key: str | None = None,
        **units: float,
    ) -> None:
        """Reports the usage of a provider call.

        `ctx.used(response)` reads the usage and the provider's limits from the response or exception of any
        client. `ctx.used(tokens=700)` gives the usage by hand. The amounts of several calls are added.

        Without `pool`, the report is for the pool of the surrounding `ctx.spend`, or else for the task's
        first pool. `ctx.used(pool, …)` names another pool. `key` is the key of a keyed pool.

        You may call it from threads; it never waits. A mistake, such as a unit that the pool does not count,
        is logged as a warning (`FeedbackProblem`). It raises no error, because a retry would pay for the call
        again."""
        self._reporter.meter().used(pool, response, key, _check_amounts(units))

    def spend(
        self, pool: Pool, /, *, key: str | None = None, **units: float
    ) -> AbstractAsyncContextManager[None]:
        """Reserves units of a pool for another provider call: `async with ctx.spend(voyage, tokens=4_000):`.

        The units stay reserved until the attempt ends. `ctx.used` reports the real usage.

        If the units are not available within 5 seconds, the attempt ends and does not count. The job runs
        again, from the beginning, when the units are available. Stored steps are not repeated."""
        self._refuse_inside("ctx.spend")
        return self._reporter.meter().spend(pool, key, _check_amounts(units))

    # Without `paid`, keywords of the function are typed. With it only positional arguments are, because no
    # type can express "these keywords and mine"; `functools.partial` carries keywords then.
    @overload
    async def step(
        self,
        name: str,
        call: Callable[[*A], Awaitable[R]],
        /,
        *args: *A,
        paid: bool,
        on_unknown: OnUnknown = "retry",
    ) -> R: ...

    @overload
    async def step(
        self, name: str, call: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...

    @overload
    async def step(self, name: str, call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    async def step(
        self, name: str, call: Callable[[*A], R], /, *args: *A, paid: bool, on_unknown: OnUnknown = "retry"
    ) -> R: ...

    async def step(  # type: ignore[misc]  # mypy misses that *args takes any *A
        self, name: str, call: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        """Calls a function once for this job and stores its result: `meta = await ctx.step("meta", ask_model,
        songs, paid=True)`.

        A later attempt that calls the step with the same name and arguments gets the stored result. Arguments
        and result must be JSON data. A function that is not async runs in a thread.

        `paid=True` is for a call that costs money. The store records the call before it is made. The result
        is stored even if another worker has taken over the job.

        If a worker dies during a paid call, the call may have been paid. `on_unknown="retry"` then calls the
        function again. `on_unknown="park"` fails the job, so that a person can check.

        With `paid`, pass keyword arguments of the function in a `functools.partial`, for type checkers."""
        self._refuse_inside("ctx.step")
        return await self._reporter.steps().run(name, call, args, kwargs)

    @overload
    def step_sync(self, name: str, call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    def step_sync(
        self, name: str, call: Callable[[*A], R], /, *args: *A, paid: bool, on_unknown: OnUnknown = "retry"
    ) -> R: ...

    def step_sync(  # type: ignore[misc]  # as above
        self, name: str, call: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        """`step` for sync handlers: the function runs in the handler's own thread."""
        self._refuse_inside("ctx.step_sync")
        return self._reporter.steps().run_sync(name, call, args, kwargs)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[JobTransaction]:
        """Writes rows and ends the job in one transaction, on a postgresql:// store.

          async with ctx.transaction() as tx:
              await tx.connection.execute(…)
              tx.done(result)

        At the end of the block the rows and the success of the job commit together, or nothing commits.
        Return from the handler after the block. If the attempt no longer holds the job, it stops.

        Call providers before the block. Inside the block, `ctx.step` and `ctx.spend` raise an error. The
        server ends a transaction that is idle for ten seconds."""
        self._refuse_inside("ctx.transaction")
        async with self._reporter.transaction() as transaction:
            self._in_transaction = True
            try:
                yield transaction
            finally:
                self._in_transaction = False

    def _refuse_inside(self, verb: str) -> None:
        if self._in_transaction:
            raise not_in_transaction_error(verb)


def _check_amounts(units: Units) -> Units:
    for unit, amount in units.items():
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 <= amount < math.inf:
            raise ValueError(f"{unit}: must be a number, 0 or more, is {amount!r}")
    return {unit: float(amount) for unit, amount in units.items()}
