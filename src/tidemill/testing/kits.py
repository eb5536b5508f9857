"""The kit: an application on a fresh store in memory, run by hand, its time computed.

    def test_checkout():                        async def test_checkout():
        with testing.kit(app) as kit:               async with testing.kit(app) as kit:
            checkout(order=7)                           await checkout(order=7)
            kit.assert_enqueued(send, order=7)          kit.assert_enqueued(send, order=7)
            kit.run_for(3600)                           await kit.run_for(3600)

The plain kit brings a virtual event loop of its own: a handler that sleeps for an hour takes none.
The awaited one runs handlers on the test's loop. Is that a virtual one (`@pytest.mark.tidemill`,
`run_virtual`), it is the same; on an ordinary one handlers may use sockets, and what they sleep
takes its time. In both, waiting for a retry, a delay or a pool takes none: between two jobs the clock
of the store is moved to when the next may start.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from tidemill.app import Tidemill
from tidemill.client.portal import refuse_on_a_loop
from tidemill.core.filters import Filter
from tidemill.core.job import Job
from tidemill.core.states import FINAL, State
from tidemill.errors import ConfigurationError
from tidemill.testing.apart import call_apart
from tidemill.testing.looking import Looking
from tidemill.testing.place import UNSET, KitClock, Place, check_app, forward
from tidemill.testing.virtual import START, VirtualLoop, cancel_rest
from tidemill.testing.wording import failed

T = TypeVar("T")


class UnexpectedFailure(AssertionError):
    """A job failed for good while a kit ran it. The message has the handler's traceback."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        super().__init__(failed(jobs))
        self.jobs = tuple(jobs)


class _Running(Looking):
    """What both kits run jobs with."""

    def __init__(self, place: Place, concurrency: int) -> None:
        super().__init__(place)
        self._concurrency = concurrency

    def advance(self, seconds: float | timedelta) -> None:
        """Let time pass without running anything."""
        self._place.clock.advance(seconds)

    async def _until_idle(self, *, check: bool) -> list[Job]:
        before = self._ends()
        await self._drain()
        return self._ended_since(before, check=check)

    async def _for(self, seconds: float | timedelta, *, check: bool) -> list[Job]:
        clock, before = self._place.clock, self._ends()
        end = clock.wall() + forward(seconds)
        await self._drain()
        while (wait := self._place.next_due()) is not None and clock.wall() + wait <= end:
            clock.advance(wait)
            await self._drain()
        clock.advance_to(end)
        await self._drain()
        return self._ended_since(before, check=check)

    async def _drain(self) -> None:
        """A worker, on every queue that has something to run, until nothing is ready or running. A
        handler may have enqueued to a queue that had nothing before. Flows and schedules may wait for a
        worker though no queue has anything."""
        served: set[str] = set()
        looked = False
        while (new := self._busy_queues() - served) or (not looked and self._place.has_agenda()):
            served, looked = served | new, True
            await self._app.client.store()  # opened, and the queues declared
            with self._place.handlers_on_this_thread():
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

    def _ends(self) -> dict[str, int]:
        ended = self._find(Filter(states=tuple(FINAL)))
        return {job.id: job.generation for job in ended}

    def _ended_since(self, before: dict[str, int], *, check: bool) -> list[Job]:
        ended = [
            job for job in self._find(Filter(states=tuple(FINAL))) if before.get(job.id) != job.generation
        ]
        failures = [job for job in ended if job.state is State.FAILED]
        if check and failures:
            raise UnexpectedFailure(failures)
        return ended


class Kit(_Running):
    """For tests without an event loop. See the module."""

    def __init__(self, place: Place, concurrency: int, loop: VirtualLoop) -> None:
        super().__init__(place, concurrency)
        self._loop = loop

    def run_until_idle(self, *, check: bool = True) -> list[Job]:
        """Run jobs until none is running and none can start; retries, delayed jobs and those that
        wait for a pool stay for later. Answers those that ended. With `check`, one that failed for good
        is an UnexpectedFailure."""
        return self.run(self._until_idle(check=check))

    def run_for(self, seconds: float | timedelta, *, check: bool = True) -> list[Job]:
        """Let that much time pass, and run every job that can start meanwhile: delayed ones, retries, and
        what waited for a pool."""
        return self.run(self._for(seconds, check=check))

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the kit's virtual time, such as `kit.run(job.cancel())`."""
        try:
            refuse_on_a_loop("run")
        except ConfigurationError:
            main.close()
            raise ConfigurationError(
                "a kit entered by `with` was run on the thread of a running event loop, which it would "
                "stop; in an async test write `async with testing.kit(app) as kit`"
            ) from None
        return self._loop.run_until_complete(main)


class AsyncKit(_Running):
    """For tests on an event loop. See the module."""

    async def run_until_idle(self, *, check: bool = True) -> list[Job]:
        """Run jobs until none is running and none can start; retries, delayed jobs and those that
        wait for a pool stay for later. Answers those that ended. With `check`, one that failed for good
        is an UnexpectedFailure."""
        return await self._until_idle(check=check)

    async def run_for(self, seconds: float | timedelta, *, check: bool = True) -> list[Job]:
        """Let that much time pass, and run every job that can start meanwhile: delayed ones, retries, and
        what waited for a pool."""
        return await self._for(seconds, check=check)


class kit:  # noqa: N801 - read as the function it is called like
    """Put an application on a fresh store in memory for a test, and back afterwards.

    `state` takes the place of what the application's lifespan opens (`ctx.state`), which then is not
    run. `seed` decides ids, jitter and the order of what happens at once; `start` is the wall time.
    """

    def __init__(
        self,
        app: Tidemill,
        *,
        state: Any = UNSET,
        concurrency: int = 10,
        seed: int = 0,
        start: float = START,
    ) -> None:
        check_app(app)
        self._app, self._state, self._concurrency = app, state, concurrency
        self._seed, self._start = seed, start
        self._loop: VirtualLoop | None = None
        self._away: AbstractContextManager[None] | None = None

    if not TYPE_CHECKING:  # a type checker has its own word for what is not there

        def __getattr__(self, name: str) -> NoReturn:
            if hasattr(Kit, name):
                raise ConfigurationError(
                    f"{name}: this kit is not entered, so jobs go to the application's real store; write "
                    "`with testing.kit(app) as kit`, or `async with` in an async test"
                )
            raise AttributeError(f"a kit has no {name!r}")

    def __enter__(self) -> Kit:
        self._refuse_twice()
        self._loop = VirtualLoop(seed=self._seed, start=self._start)
        return Kit(self._move(KitClock(self._start, self._loop)), self._concurrency, self._loop)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            call_apart(self._app.close_sync)
        finally:
            self._return()

    async def __aenter__(self) -> AsyncKit:
        return AsyncKit(self._move(KitClock(self._start)), self._concurrency)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._app.close()
        finally:
            self._return()

    @contextmanager
    def awaited(self) -> Iterator[AsyncKit]:
        """An awaited kit that is entered before its loop runs, as a fixture is."""
        place = self._move(KitClock(self._start))
        try:
            yield AsyncKit(place, self._concurrency)
        finally:
            self.__exit__(None, None, None)

    def _move(self, clock: KitClock) -> Place:
        self._refuse_twice()
        place = Place(self._app, clock, seed=self._seed, state=self._state)
        self._away = place.moved()
        self._away.__enter__()
        return place

    def _refuse_twice(self) -> None:
        """At the end of an inner block, what the outer one still sends would go to the real store."""
        if self._away is not None:
            raise ConfigurationError("this kit is entered already; write testing.kit(app) for another")

    def _return(self) -> None:
        away, self._away = self._away, None
        if away is not None:
            away.__exit__(None, None, None)
        loop, self._loop = self._loop, None
        if loop is not None:
            cancel_rest(loop)
            loop.close()
