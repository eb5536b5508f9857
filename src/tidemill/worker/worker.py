"""A worker: claims jobs, runs them, says how they ended, and does its share of the chores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from tidemill.clock import Clock, Entropy
from tidemill.contract.store import Store
from tidemill.tasks.definition import Middleware, TaskDefinition
from tidemill.worker.crew import Crew
from tidemill.worker.log import logger
from tidemill.worker.options import FreshId, WorkerOptions
from tidemill.worker.stats import Stats

Lifespan = Callable[[], AbstractAsyncContextManager[Any]]


class Worker:
    """Built anywhere, run once on an event loop. The store is opened and closed by its owner.

    `lifespan` opens what handlers share; what it yields is their `ctx.state`.
    """

    def __init__(
        self,
        store: Store,
        tasks: Mapping[str, TaskDefinition],
        *,
        options: WorkerOptions,
        clock: Clock,
        entropy: Entropy,
        lifespan: Lifespan | None = None,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        self._store, self._tasks, self._options = store, tasks, options
        self._clock, self._entropy = clock, entropy
        self._lifespan: Lifespan = lifespan or nullcontext
        self._middleware = middleware
        self._crew: Crew | None = None
        self._stopping = self._hurried = False
        self.id = _fresh(options.id, entropy)
        self.stats = Stats(since=clock.wall())

    async def run(self) -> None:
        """Until stopped and drained, or, with `until_idle`, until there is nothing to do."""
        async with self._lifespan() as state:
            self._crew = Crew(
                self._store,
                self._tasks,
                self._options,
                self.id,
                self.stats,
                clock=self._clock,
                entropy=self._entropy,
                middleware=self._middleware,
                state=state,
            )
            if self._stopping:
                self._crew.stop(hurry=self._hurried)
            logger().info("worker started", worker=self.id, queues=dict(self._options.queues))
            await self._crew.run()
            logger().info("worker stopped", worker=self.id, done=self.stats.done, failed=self.stats.failed)

    def stop(self) -> None:
        """Drain: claim nothing more, let running jobs finish within the grace time."""
        self._stopping = True
        if self._crew is not None:
            self._crew.stop(hurry=False)

    def stop_now(self) -> None:
        """Hand everything back at once, uncharged."""
        self._stopping = self._hurried = True
        if self._crew is not None:
            self._crew.stop(hurry=True)


def _fresh(given: str | None, entropy: Entropy) -> str:
    made = entropy.new_id()
    if given is None or isinstance(given, FreshId):
        return given or made
    return f"{given}-{made[-12:]}"
