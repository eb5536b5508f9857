"""The test kit: runs an application on an empty memory store, under the control of the test.

    def test_checkout():                        async def test_checkout():
        with testing.kit(app) as kit:               async with testing.kit(app) as kit:
            checkout(order=7)                           await checkout(order=7)
            kit.assert_enqueued(send, order=7)          kit.assert_enqueued(send, order=7)
            kit.run_for(3600)                           await kit.run_for(3600)

The sync kit has a virtual event loop, so a sleep in a handler takes no real time. The async kit runs handlers
on the loop of the test. That loop may be virtual too (`@pytest.mark.tidemill`, `run_virtual`). On a normal
loop handlers can use sockets, and sleeps take real time.

Neither kit waits for a retry, a delay or a pool. `run_for` moves the store's clock to the next due time.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from tidemill.app import Tidemill
from tidemill.client.background_loop import refuse_on_loop
from tidemill.core.filters import Filter
from tidemill.core.jobs import Job
from tidemill.core.states import FINAL, State
from tidemill.errors import ConfigurationError
from tidemill.testing.clocks import KitClock, check_advance_seconds
from tidemill.testing.failure_messages import format_failures
from tidemill.testing.job_assertions import JobAssertions
from tidemill.testing.kit_environment import UNSET, KitEnvironment, check_app
from tidemill.testing.virtual_loop import START_TIME, VirtualLoop, call_without_loop, cancel_remaining_tasks

T = TypeVar("T")


class UnexpectedFailure(AssertionError):
    """Raised if a job fails for good while a kit runs it. The message contains the handler's traceback."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        super().__init__(format_failures(jobs))
        self.jobs = tuple(jobs)


class _KitRunner(JobAssertions):
    """The part that the sync and the async kit share: runs jobs and moves the clock."""

    def __init__(self, environment: KitEnvironment, concurrency: int) -> None:
        super().__init__(environment)
        self._concurrency = concurrency

    def advance(self, seconds: float | timedelta) -> None:
        """Moves the clock forward without running jobs."""
        self._environment.clock.advance(seconds)

    async def _run_until_idle(self, *, check: bool) -> list[Job]:
        before = self._load_final_generations()
        await self._drain()
        return self._finished_since(before, check=check)

    async def _run_for(self, seconds: float | timedelta, *, check: bool) -> list[Job]:
        clock, before = self._environment.clock, self._load_final_generations()
        end = clock.wall() + check_advance_seconds(seconds)
        await self._drain()
        while (wait := self._environment.next_due()) is not None and clock.wall() + wait <= end:
            clock.advance(wait)
            await self._drain()
        clock.advance_to(end)
        await self._drain()
        return self._finished_since(before, check=check)

    async def _drain(self) -> None:
        """Runs workers one after the other until no queue has ready jobs. Each worker serves the queues that
        have jobs when it starts. One worker also runs if only a flow or schedule has to be advanced."""
        served: set[str] = set()
        has_run = False
        while (new := self._busy_queues() - served) or (
            not has_run and self._environment.has_worklist_items()
        ):
            served, has_run = served | new, True
            await self._app.client.store()  # opens the store and declares the queues
            with self._environment.handlers_on_this_thread():
                worker = self._app.worker(
                    queues=sorted(served or {"default"}),
                    concurrency=self._concurrency,
                    until_idle=True,
                    heartbeat_thread=False,
                    isolation=False,
                )
                await worker.run()

    def _busy_queues(self) -> set[str]:
        now = self.now
        waiting = self._find(Filter(states=(State.READY, State.SCHEDULED)))
        return {job.queue for job in waiting if job.due <= now}

    def _load_final_generations(self) -> dict[str, int]:
        ended = self._find(Filter(states=tuple(FINAL)))
        return {job.id: job.generation for job in ended}

    def _finished_since(self, before: dict[str, int], *, check: bool) -> list[Job]:
        ended = [
            job for job in self._find(Filter(states=tuple(FINAL))) if before.get(job.id) != job.generation
        ]
        failures = [job for job in ended if job.state is State.FAILED]
        if check and failures:
            raise UnexpectedFailure(failures)
        return ended


class Kit(_KitRunner):
    """The kit for sync tests, returned by `with testing.kit(app) as kit:`. It runs jobs when the test says
    so."""

    def __init__(self, environment: KitEnvironment, concurrency: int, loop: VirtualLoop) -> None:
        super().__init__(environment, concurrency)
        self._loop = loop

    def run_until_idle(self, *, check: bool = True) -> list[Job]:
        """Runs jobs until no job is running and none can start now. Returns the jobs that finished.

        Jobs that wait for a retry, a delay or a pool stay in the store. With `check=True` it raises
        UnexpectedFailure if a job failed for good.
        """
        return self.run(self._run_until_idle(check=check))

    def run_for(self, seconds: float | timedelta, *, check: bool = True) -> list[Job]:
        """Lets `seconds` pass and runs every job that can start in that time. Returns the jobs that finished.

        With `check=True` it raises UnexpectedFailure if a job failed for good.
        """
        return self.run(self._run_for(seconds, check=check))

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in the kit's virtual time, such as `kit.run(job.cancel())`."""
        try:
            refuse_on_loop("run")
        except ConfigurationError:
            main.close()
            raise ConfigurationError(
                "a kit entered by `with` was run on the thread of a running event loop, which it would "
                "stop; in an async test write `async with testing.kit(app) as kit`"
            ) from None
        return self._loop.run_until_complete(main)


class AsyncKit(_KitRunner):
    """The kit for async tests, returned by `async with testing.kit(app) as kit:`. It runs jobs when the test
    says so."""

    async def run_until_idle(self, *, check: bool = True) -> list[Job]:
        """Runs jobs until no job is running and none can start now. Returns the jobs that finished.

        Jobs that wait for a retry, a delay or a pool stay in the store. With `check=True` it raises
        UnexpectedFailure if a job failed for good.
        """
        return await self._run_until_idle(check=check)

    async def run_for(self, seconds: float | timedelta, *, check: bool = True) -> list[Job]:
        """Lets `seconds` pass and runs every job that can start in that time. Returns the jobs that finished.

        With `check=True` it raises UnexpectedFailure if a job failed for good.
        """
        return await self._run_for(seconds, check=check)


class kit:  # noqa: N801 - called like a function
    """Replaces the application's store by an empty memory store until the block ends: `with testing.kit(app)
    as kit:`.

    - `state`: replaces the value of the application's lifespan (`ctx.state`); the lifespan does not run.
    - `concurrency`: how many jobs run at the same time.
    - `seed`: determines ids, random delays and the order of simultaneous events.
    - `start`: the wall time at the start, in Unix seconds."""

    def __init__(
        self,
        app: Tidemill,
        *,
        state: Any = UNSET,
        concurrency: int = 10,
        seed: int = 0,
        start: float = START_TIME,
    ) -> None:
        check_app(app)
        self._app, self._state, self._concurrency = app, state, concurrency
        self._seed, self._start = seed, start
        self._loop: VirtualLoop | None = None
        self._replacement: AbstractContextManager[None] | None = None

    if not TYPE_CHECKING:  # type checkers report unknown attributes themselves

        def __getattr__(self, name: str) -> NoReturn:
            if hasattr(Kit, name):
                raise ConfigurationError(
                    f"{name}: this kit is not entered, so jobs go to the application's real store; write "
                    "`with testing.kit(app) as kit`, or `async with` in an async test"
                )
            raise AttributeError(f"a kit has no {name!r}")

    def __enter__(self) -> Kit:
        self._check_not_entered()
        self._loop = VirtualLoop(seed=self._seed, start=self._start)
        return Kit(self._replace_store(KitClock(self._start, self._loop)), self._concurrency, self._loop)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            call_without_loop(self._app.close_sync)
        finally:
            self._restore_store()

    async def __aenter__(self) -> AsyncKit:
        return AsyncKit(self._replace_store(KitClock(self._start)), self._concurrency)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._app.close()
        finally:
            self._restore_store()

    @contextmanager
    def awaited(self) -> Iterator[AsyncKit]:
        """Returns a context manager that yields an async kit. Unlike `async with`, it needs no running event
        loop, so a sync pytest fixture can use it."""
        environment = self._replace_store(KitClock(self._start))
        try:
            yield AsyncKit(environment, self._concurrency)
        finally:
            self.__exit__(None, None, None)

    def _replace_store(self, clock: KitClock) -> KitEnvironment:
        self._check_not_entered()
        environment = KitEnvironment(self._app, clock, seed=self._seed, state=self._state)
        self._replacement = environment.use_store()
        self._replacement.__enter__()
        return environment

    def _check_not_entered(self) -> None:
        """Raises ConfigurationError if a `with` block already uses this kit. With nested blocks, the end of
        the inner block would restore the real store while the outer block still runs."""
        if self._replacement is not None:
            raise ConfigurationError("this kit is entered already; write testing.kit(app) for another")

    def _restore_store(self) -> None:
        away, self._replacement = self._replacement, None
        if away is not None:
            away.__exit__(None, None, None)
        loop, self._loop = self._loop, None
        if loop is not None:
            cancel_remaining_tasks(loop)
            loop.close()
