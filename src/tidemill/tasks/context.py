"""What a handler sees of its own attempt."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeVar, TypeVarTuple, overload

from tidemill.core.claims import Claimed
from tidemill.core.traces import trace_id
from tidemill.core.units import Units

if TYPE_CHECKING:
    from tidemill.core.checkpoints import OnUnknown
    from tidemill.core.flow_jobs import InFlow
    from tidemill.tasks.metering import Meter
    from tidemill.tasks.pools import Pool
    from tidemill.tasks.steps import Steps
    from tidemill.tasks.transactions import Transaction

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVarTuple("A")


class Reporter(Protocol):
    """Where news of an attempt goes: the worker's heartbeat, or the pipe to it."""

    def progress(self, fraction: float, note: str | None) -> None: ...
    def log(self, line: str) -> None: ...
    def cancelled(self) -> bool: ...
    def meter(self) -> Meter: ...
    def steps(self) -> Steps: ...
    def transaction(self) -> AbstractAsyncContextManager[Transaction]: ...


class Context:
    """`attempt` counts from 1. `state` is what the application's lifespan opened. `batch` are the ids of the
    jobs a batch handler was called for, in the order of its items; `job_id` is the first of them. A plain
    handler has none. `flow` says which flow and which step of it the job is, None for a job of no flow; of a
    batch, that of the first."""

    __slots__ = (
        "_inside",
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
        flow: InFlow | None = None,
    ) -> None:
        self._reporter = reporter
        self._inside = False
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
    def of(cls, job: Claimed, reporter: Reporter, state: Any = None, *, batch: tuple[str, ...] = ()) -> Self:
        """What a handler sees of the job in its worker's hands."""
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
        """True when the attempt was told to stop: its job was cancelled, its lease lost, its timeout is
        over, or the worker's grace time. Stop soon: what a thread still returns is not recorded. The
        process of an isolated handler is killed 2 seconds later."""
        return self._reporter.cancelled()

    async def progress(self, fraction: float, note: str | None = None) -> None:
        """Show how far the attempt is, from 0 to 1, and what it is doing. It returns at once: news goes
        to the store with a heartbeat, twice a second at most, of which only the latest is kept. A sync
        handler calls `progress_sync`."""
        self.progress_sync(fraction, note)

    def progress_sync(self, fraction: float, note: str | None = None) -> None:
        """`progress` for sync handlers."""
        if not 0 <= fraction <= 1:
            raise ValueError(f"fraction: must lie between 0 and 1, is {fraction}")
        self._reporter.progress(fraction, note)

    def log(self, message: str) -> None:
        """Keep a line with the job: the last 200 of each attempt are shown with it."""
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
        """Say what a call really used: `ctx.used(response)` reads it, and what the provider says about its
        limits, from the response or exception of any client; `ctx.used(tokens=700)` says it by hand.
        Amounts of several calls are added up. `ctx.used(pool, …)` when it is not the task's first pool
        nor that of the `ctx.spend` around. It waits for nothing and works in threads too. A unit the pool
        does not count, a value that is no response, and a task without a pool are logged as a warning
        (`FeedbackProblem`) and not raised: the call is paid for, and a failed attempt would make it again."""
        self._reporter.meter().used(pool, response, key, _amounts(units))

    def spend(
        self, pool: Pool, /, *, key: str | None = None, **units: float
    ) -> AbstractAsyncContextManager[None]:
        """Units for another metered call inside the handler: `async with ctx.spend(voyage, tokens=4_000):`.
        A wait of a few seconds is waited here. For a longer one the attempt ends, uncharged, and the job
        comes back when the units are there, which are kept for it: what was done before is done again, except
        steps. The units stay taken until the attempt ends, and count as `ctx.used` says."""
        self._refuse_inside("ctx.spend")
        return self._reporter.meter().spend(pool, key, _amounts(units))

    # Typed without `paid`, keywords of the function pass through; with it only positions do, because no
    # type can say "these keywords and mine": `functools.partial` carries them then.
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
        """Call a function once for this job: `meta = await ctx.step("meta", ask_model, songs, paid=True)`.
        Its result is stored, and a later attempt that comes by with the same name and arguments gets it
        without a call, typed as the function says it returns. Arguments and result are JSON data. A plain
        function runs in a thread.

        `paid=True` is for a call that costs money: it is marked before it is made, its result is kept
        even when the job has another owner by then, and when a worker died in between nobody knows
        whether it was paid for. Then `on_unknown="retry"` calls again, and `on_unknown="park"` fails the
        job for a person to look at. Give a paid function's keywords by `functools.partial`."""
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
    async def transaction(self) -> AsyncIterator[Transaction]:
        """On a postgresql:// store: write rows and end the job in one transaction.
        `async with ctx.transaction() as tx: await tx.connection.execute(…); tx.done(result)`.

        It begins by looking whether the job is still this attempt's, and stops the attempt if not. When the
        block ends, the job is done, and that commits with the rows or not at all; then return. When it
        raises, nothing is kept. Call providers before the block: `ctx.step` and `ctx.spend` are refused in
        it, and the server ends a transaction that is left alone for ten seconds."""
        self._refuse_inside("ctx.transaction")
        async with self._reporter.transaction() as given:
            self._inside = True
            try:
                yield given
            finally:
                self._inside = False

    def _refuse_inside(self, verb: str) -> None:
        if self._inside:
            from tidemill.tasks.transactions import refused_inside

            raise refused_inside(verb)


def _amounts(units: Units) -> Units:
    for unit, amount in units.items():
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 <= amount < math.inf:
            raise ValueError(f"{unit}: must be a number, 0 or more, is {amount!r}")
    return {unit: float(amount) for unit, amount in units.items()}
