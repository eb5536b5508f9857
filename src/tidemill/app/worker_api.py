"""The worker methods of an application: run a worker, or supervise several processes."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tidemill.app.notifications import NotificationApi
from tidemill.core.queues import QueueSettings
from tidemill.logs import configure, current_settings, write_events
from tidemill.store_url import StoreUrl

if TYPE_CHECKING:
    from tidemill.settings.worker_options import WorkerArguments
    from tidemill.worker.options import WorkerOptions
    from tidemill.worker.worker import Worker


SideContext = AbstractAsyncContextManager[None]


class WorkerApi(NotificationApi):
    def worker(self, **options: Unpack[WorkerArguments]) -> Worker:
        """Returns a worker; run it inside `async with app`. `WorkerArguments` describes the options.

        Without `queues`, it serves all queues that are declared or used by a task, with their weights."""
        from tidemill.worker.isolation.handler_import import find_application_path
        from tidemill.worker.isolation.runner import IsolatedRunner
        from tidemill.worker.worker import Worker

        self._log_as_set()
        find = functools.partial(find_application_path, self, self.application_spec)
        return Worker(
            self.store,
            self.tasks,
            self.pools,
            schedules=None if self._schedules is None else self._schedules.declared,
            periodics=list(self.periodics.values()),
            options=self.worker_options(**options),
            clock=self.clock,
            entropy=self.entropy,
            signals=self.signals,
            snapshot_writer=self.snapshot_writer,
            location=_absolute_location(self.url),
            lifespan=self._lifespan,
            middleware=self.middlewares,
            isolation=functools.partial(
                IsolatedRunner, find_application=find, shares_store=self.shares_store
            ),
            notifications=self.notifications if self._notifies else None,
            secrets=self.secrets,
        )

    def worker_options(self, **options: Unpack[WorkerArguments]) -> WorkerOptions:
        """Returns the checked options with which `worker(**options)` would run, without creating a worker.
        Options that you do not pass come from the environment, the TOML file or the defaults."""
        from tidemill.settings.worker_options import resolve_worker_options

        known = dict(self.queues)
        for task in self.tasks.values():
            known.setdefault(task.queue, QueueSettings())
        return resolve_worker_options(self.settings, options, known)

    @asynccontextmanager
    async def opened(self, *, lifespan: bool = True) -> AsyncIterator[Any]:
        """Opens the store and the lifespan in a child process of a worker, and yields the value for
        `ctx.state`.

        `lifespan=False` skips the lifespan; the value is then None. A memory store is not opened."""
        enter = self._lifespan if lifespan and self._lifespan is not None else nullcontext
        async with self if self.shares_store else nullcontext(), enter() as state:
            yield state

    async def work(self, beside: SideContext | None = None, **options: Unpack[WorkerArguments]) -> None:
        """Runs a worker on this event loop until SIGTERM or SIGINT.

        The first signal drains the worker. A second signal, at least a second later, cancels the running
        handlers; their jobs run again, and these attempts do not count.

        `beside`: a context manager that is entered when the store is open, and left when the worker has
        ended."""
        from tidemill.worker.drain import stop_on_signals

        async with self, beside or nullcontext():
            worker = self.worker(**options)
            with stop_on_signals(worker.stop, worker.stop_now):
                await worker.run()

    def run_worker(self, beside: SideContext | None = None, **options: Unpack[WorkerArguments]) -> None:
        """Runs a worker and blocks until a signal stops it. Uses uvloop if it is installed. `beside` is
        described at `work`."""
        choose_loop_runner()(self.work(beside, **options))

    async def supervise(self, command: Sequence[str], processes: int, *, until_idle: bool = False) -> None:
        """Keeps `processes` worker processes running until SIGTERM or SIGINT.

        - `command`: the command line that starts one worker process.
        - `until_idle`: True if a process that ends because there is nothing to do is not restarted."""
        from tidemill.worker.drain import stop_on_signals
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
            with stop_on_signals(supervisor.stop, supervisor.stop):
                await supervisor.run()

    def _log_as_set(self) -> None:
        """Configures logging from the settings, unless the program has configured it. Runs when a worker is
        created, because the command line may change the settings until then."""
        log_settings = self.settings.configured("log")
        if log_settings and current_settings() is None:
            configure(**log_settings)
        write_events(self.signals)


def choose_loop_runner() -> Callable[[Coroutine[Any, Any, None]], None]:
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


def _absolute_location(url: StoreUrl) -> str:
    """Returns the URL as text, with an absolute path. A relative path would mean another file in another
    working directory."""
    return str(StoreUrl(url.scheme, str(Path(url.path).absolute())) if url.path else url)
