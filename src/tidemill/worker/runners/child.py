"""The inside of a child process: jobs of one worker, one at a time, until the worker hangs up.

It opens the application's lifespan once and runs every job on the same event loop, sync handlers in a
thread: a handler meets what it meets in a worker.
"""

from __future__ import annotations

import asyncio
import functools
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from multiprocessing.connection import Connection
from typing import Any

from tidemill.core.job import Error
from tidemill.core.outcomes import Fail
from tidemill.core.retry import Retry
from tidemill.errors import InvalidPayload
from tidemill.hooks.calls import BEGIN_CALL
from tidemill.logs import configure
from tidemill.tasks.batches import Failed
from tidemill.tasks.context import Context
from tidemill.tasks.definition import Middleware, TaskDefinition
from tidemill.tasks.waits import ATTEMPT_WAITS
from tidemill.telemetry.current import CURRENT, TOGETHER
from tidemill.worker import batch_verdicts as verdicts
from tidemill.worker.batch_verdicts import stored
from tidemill.worker.parent import die_with_parent, mark_as_child
from tidemill.worker.refused import refused
from tidemill.worker.runners.child_reporter import ChildReporter, Order, UnitsTooOld, WorkerPipe
from tidemill.worker.runners.main_module import MainNotImported, import_main
from tidemill.worker.runners.messages import (
    Cancel,
    ChildStart,
    Ended,
    Place,
    Prepare,
    Ready,
    Returned,
    Run,
    StartedLate,
    StopReply,
    read_child_start,
)
from tidemill.worker.runners.middleware import divided, surrounded
from tidemill.worker.runners.places import NOT_APART, Application, CannotIsolate, find, find_application
from tidemill.worker.runners.process_waits import ChildWaits
from tidemill.worker.runners.threads import Threads
from tidemill.worker.translate import describe, outcome_of


def main() -> None:
    """The worker has started this process in a new session. So it can kill all that a handler started, and
    Ctrl-C in a terminal reaches the worker only."""
    handle, begin = int(sys.argv[1]), read_child_start(sys.argv[2])
    die_with_parent(signal.SIGKILL, begin.parent)
    mark_as_child()
    # A handler, not SIG_IGN, which programs started by the job would inherit.
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGINT, lambda *_: None)
    sys.argv[:] = begin.argv
    pipe = WorkerPipe(Connection(handle))
    if (order := pipe.first()) is None:
        return
    child = Child(pipe, begin)
    child.look_for(order)  # a worker's modules are imported before there is an event loop
    with asyncio.Runner(loop_factory=_loop_factory(begin)) as runner:
        runner.run(child.serve(order))


def _loop_factory(begin: ChildStart) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if not begin.uvloop:
        return None
    import uvloop

    return uvloop.new_event_loop


class Child:
    """Found tasks are kept by name. `_state` is what the lifespan yielded. `_cancel_next`: the worker has
    cancelled the job before it was started here."""

    def __init__(self, pipe: WorkerPipe, begin: ChildStart) -> None:
        self._pipe, self._begin, self._logs = pipe, begin, begin.logs
        self._main_imported = False
        self._application: Application | None = None
        self._opened = False
        self._state: Any = None
        self._found: dict[tuple[str, Place | None], TaskDefinition | CannotIsolate] = {}
        self._definition: TaskDefinition | None = None
        self._running: asyncio.Task[Any] | None = None
        self._reporter: ChildReporter | None = None
        self._cancel_next = False

    async def serve(self, first: Prepare) -> None:
        loop = asyncio.get_running_loop()
        self._threads = Threads(1)
        self._waits = ChildWaits(self._pipe)
        ATTEMPT_WAITS.set(self._waits)
        orders: asyncio.Queue[Prepare | Run | None] = asyncio.Queue()
        orders.put_nowait(first)

        def ordered(order: Order | None) -> None:
            if isinstance(order, Cancel):
                loop.call_soon_threadsafe(self._cancel)
            else:
                loop.call_soon_threadsafe(orders.put_nowait, order)

        self._pipe.listen(ordered)
        async with AsyncExitStack() as stack:
            while (order := await orders.get()) is not None:
                if isinstance(order, Prepare):
                    self._pipe.send(await self._prepare(order, stack))
                else:
                    await self._answer(order)

    def _cancel(self) -> None:
        if self._running is None or self._reporter is None:
            self._cancel_next = True
        else:
            self._reporter.stopped = True
            self._running.cancel()

    async def _prepare(self, order: Prepare, stack: AsyncExitStack) -> Ready:
        self._cancel_next = False  # it was about the job before
        found = self.look_for(order)
        if isinstance(found, CannotIsolate):
            return Ready(str(found))
        self._definition = found
        here = len(self._middleware)
        if self._application is not None and order.middleware not in (None, here):
            return Ready(f"the application has {here} middleware here and {order.middleware} in its worker")
        self._log_as_the_worker()
        if self._application is not None and not self._opened:
            try:
                opened = self._application.opened(lifespan=order.lifespan)
                self._state = await stack.enter_async_context(opened)
            except Exception as error:  # noqa: BLE001 - a lifespan may raise anything
                described = describe(error)
                return Ready(f"{described.type}: {described.message}", opened=False)
            self._opened = True
        return Ready()

    @property
    def _middleware(self) -> Sequence[Middleware]:
        return () if self._application is None else divided(self._application.middlewares)[1]

    def look_for(self, order: Prepare) -> TaskDefinition | CannotIsolate:
        key = (order.task, order.place)
        if key not in self._found:
            try:
                self._import_main()
                self._found[key] = self._in_application(order.task) or find(order.place)
            except CannotIsolate as error:
                self._found[key] = error
        return self._found[key]

    def _import_main(self) -> None:
        if self._begin.main is not None and not self._main_imported:
            try:
                import_main(self._begin.main)
            except MainNotImported as error:
                raise CannotIsolate(str(error)) from error
            self._main_imported = True

    def _in_application(self, task: str) -> TaskDefinition | None:
        if self._begin.application is None:
            return None
        self._application = self._application or find_application(self._begin.application)
        return self._application.tasks.get(task)

    def _log_as_the_worker(self) -> None:
        """After the import: a program that sets up its own logs comes first."""
        if self._logs is not None:
            configure(format=self._logs.format, level=self._logs.level)
            self._logs = None

    async def _answer(self, run: Run) -> None:
        """Runs the handler in a new task: context variables that it sets end with it, as in a worker."""
        if self._cancel_next:
            self._pipe.send(StopReply())
            return
        definition = self._definition
        assert definition is not None  # noqa: S101 - the worker has prepared it
        has_store = self._application is not None and self._application.shares_store
        store = self._application.store if self._application is not None and has_store else None
        self._reporter = reporter = ChildReporter(self._pipe, run, definition, store)
        self._waits.jobs = (run.job, *run.others)
        handle = self._handle if definition.batch is None else self._handle_call
        self._running = running = asyncio.create_task(handle(run, definition, reporter))
        await asyncio.wait([running])
        self._running, self._waits.jobs = None, ()
        if reporter.late:  # middleware may have kept the exception to itself
            self._pipe.send(StartedLate(reporter.late))
        else:  # a task that is cancelled before its first step runs no line of `handle`
            self._pipe.send(StopReply() if running.cancelled() else running.result())

    async def _handle(
        self, run: Run, definition: TaskDefinition, reporter: ChildReporter
    ) -> Ended | StopReply | StartedLate:
        CURRENT.set(run.job)
        BEGIN_CALL.set(reporter.meter().begin_call)
        try:
            args, kwargs = definition.payload.decode(run.job.payload)
        except InvalidPayload as error:
            return Ended(Fail(Error("InvalidPayload", str(error)), "invalid payload"))
        context = Context.of(run.job, reporter, self._state)
        if definition.takes_context:
            args = (context, *args)
        try:
            call = functools.partial(self._call, reporter, definition, args, kwargs)
            result = await surrounded(self._middleware, context, call)()
        except UnitsTooOld:
            return StartedLate(reporter.late)
        except CannotIsolate as error:
            return Ended(Fail(Error("CannotIsolate", str(error)), NOT_APART))
        # Everything, a Rust panic too: leaving here would read as a crash. Signals raise nothing here.
        except BaseException as error:  # noqa: BLE001
            if reporter.stopped and isinstance(error, asyncio.CancelledError):
                return StopReply()
            decision = refused(reporter.meter(), error, run.job)
            policy = _policy(run, definition)
            failed = outcome_of(error, policy, run.job.attempt, run.job.priority, run.chance)
            if decision is None:
                return Ended(failed)
            return Ended(decision.outcome, failed if decision.overloaded else None)
        return Ended(stored(result, definition.result))

    async def _handle_call(
        self, run: Run, definition: TaskDefinition, reporter: ChildReporter
    ) -> Returned | StopReply | StartedLate:
        """The worker has read the payloads: those that cannot be read are not here."""
        jobs = (run.job, *run.others)
        CURRENT.set(run.job)
        TOGETHER.set(jobs)
        BEGIN_CALL.set(reporter.meter().begin_call)
        batch = tuple(job.id for job in jobs)
        try:
            items = [item for job in jobs for item in definition.payload.decode(job.payload)[0]]
            context = Context.of(run.job, reporter, self._state, batch=batch)
            args = (context, items) if definition.takes_context else (items,)
            call = functools.partial(self._call, reporter, definition, args, {})
            results = verdicts.check(await surrounded(self._middleware, context, call)(), len(jobs))
        except UnitsTooOld:
            return StartedLate(reporter.late)
        except BaseException as error:  # noqa: BLE001 - as above
            if reporter.stopped and isinstance(error, asyncio.CancelledError):
                return StopReply()
            policy = _policy(run, definition)
            return Returned(verdicts.raised(error, reporter.meter(), jobs, policy, run.chance))
        return Returned(
            [
                result if isinstance(result, Failed) else stored(result, definition.result)
                for result in results
            ]
        )

    async def _call(
        self,
        reporter: ChildReporter,
        definition: TaskDefinition,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        if definition.is_async:
            reporter.begin()
            return await definition.handler(*args, **kwargs)
        await self._threads.free()
        try:
            reporter.begin()
        except UnitsTooOld:
            self._threads.leave()
            raise
        call = self._threads.start(definition.handler, args, kwargs)
        try:
            return await asyncio.shield(call.future)
        except asyncio.CancelledError:
            # A thread cannot be stopped. Its handler may look at ctx.cancelled; if it does not, the worker
            # kills this process. The worker records no result that comes after this.
            await asyncio.wait([call.future])
            raise


def _policy(run: Run, definition: TaskDefinition) -> Retry:
    """Under another name it is a plain function, or one that is registered as several tasks."""
    return definition.retry if definition.name == run.job.task else Retry(**run.policy)  # type: ignore[arg-type]
