"""Workers, and the processes they run in."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tidemill.app.telling import Tells
from tidemill.core.queues import QueueSettings
from tidemill.logs import configure, in_force, write_events
from tidemill.urls import StoreUrl

if TYPE_CHECKING:
    from tidemill.settings.arguments import WorkerArguments
    from tidemill.worker.options import WorkerOptions
    from tidemill.worker.worker import Worker

Beside = AbstractAsyncContextManager[None]


class Works(Tells):
    def worker(self, **options: Unpack[WorkerArguments]) -> Worker:
        """A worker to be run inside `async with app`. Options are `WorkerArguments`; without `queues` it
        serves every queue that was declared or that a task is on, by weight."""
        from tidemill.worker.runners.isolated import IsolatedRunner
        from tidemill.worker.runners.places import application_place
        from tidemill.worker.worker import Worker

        self._log_as_set()
        find = functools.partial(application_place, self, self.loaded_as)
        return Worker(
            self.store,
            self.tasks,
            self.pools,
            schedules=None if self._schedules is None else self._schedules.declared,
            options=self.worker_options(**options),
            clock=self.clock,
            entropy=self.entropy,
            signals=self.signals,
            tally=self.tally,
            location=_location(self.url),
            lifespan=self._lifespan,
            middleware=self.middlewares,
            isolation=functools.partial(
                IsolatedRunner, find_application=find, shares_store=self.shares_store
            ),
            telling=self.telling if self._tells else None,
            secrets=self.secrets,
        )

    def worker_options(self, **options: Unpack[WorkerArguments]) -> WorkerOptions:
        """What a worker would run with: these options, then the environment, the TOML file and the
        defaults. Checked, without building a worker."""
        from tidemill.settings.workers import worker_options

        known = dict(self.queues)
        for task in self.tasks.values():
            known.setdefault(task.queue, QueueSettings())
        return worker_options(self.settings, options, known)

    @asynccontextmanager
    async def opened(self, *, lifespan: bool = True) -> AsyncIterator[Any]:
        """The store and the lifespan, open: what a worker's child process runs jobs in. Gives `ctx.state`. A
        child does not open a store that is in the worker's memory."""
        enter = self._lifespan if lifespan and self._lifespan is not None else nullcontext
        async with self if self.shares_store else nullcontext(), enter() as state:
            yield state

    async def work(self, beside: Beside | None = None, **options: Unpack[WorkerArguments]) -> None:
        """Run a worker on this loop until SIGTERM or SIGINT: the first drains, another a second later
        hands everything back. `beside` is entered when the store is open, and left when the worker has
        ended."""
        from tidemill.worker.drain import on_signals

        async with self, beside or nullcontext():
            worker = self.worker(**options)
            with on_signals(worker.stop, worker.stop_now):
                await worker.run()

    def run_worker(self, beside: Beside | None = None, **options: Unpack[WorkerArguments]) -> None:
        """Run a worker until it is told to stop. Blocks; takes uvloop when it is installed."""
        best_loop()(self.work(beside, **options))

    async def supervise(self, command: Sequence[str], processes: int, *, until_idle: bool = False) -> None:
        """Keep that many worker processes running until SIGTERM or SIGINT. `command` starts one;
        `tidemill worker --processes N` is the usual way here."""
        from tidemill.worker.drain import on_signals
        from tidemill.worker.supervisor import Supervisor

        async with self:
            supervisor = Supervisor(
                command,
                processes,
                store=self.store,
                entropy=self.entropy,
                signals=self.signals,
                until_idle=until_idle,
            )
            with on_signals(supervisor.stop, supervisor.stop):
                await supervisor.run()

    def _log_as_set(self) -> None:
        """By now a level may have been asked for, on the command line or by the settings."""
        given = self.settings.given("log")
        if given and in_force() is None:
            configure(**given)
        write_events(self.signals)


def best_loop() -> Callable[[Coroutine[Any, Any, None]], None]:
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


def _location(url: StoreUrl) -> str:
    """A relative path is told from the root: in another folder it is another file."""
    return str(StoreUrl(url.scheme, str(Path(url.path).absolute())) if url.path else url)
