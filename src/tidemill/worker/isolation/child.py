"""The program of a child process. It runs jobs of one worker, one at a time, until the worker closes the
pipe.

A handler runs here as it would in a worker."""

from __future__ import annotations

import asyncio
import functools
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from multiprocessing.connection import Connection
from typing import Any

from tidemill.core.jobs import Error
from tidemill.core.outcomes import FinalFailure
from tidemill.core.retry import Retry
from tidemill.errors import InvalidPayload
from tidemill.hooks.watched_call import BEGIN_CALL
from tidemill.logs import configure
from tidemill.tasks.batches import FailedItem
from tidemill.tasks.context import ATTEMPT_WAITS, Context
from tidemill.tasks.definition import Middleware, TaskDefinition, apply_middleware, split_middleware
from tidemill.telemetry.current_attempt import CURRENT_ATTEMPT, CURRENT_BATCH
from tidemill.worker.batch_outcomes import check_results, decide_batch_error, encode_result
from tidemill.worker.handler_threads import HandlerThreads
from tidemill.worker.isolation.bootstrap import MainImportError, die_with_parent, import_main, mark_as_child
from tidemill.worker.isolation.child_reporter import ChildOrder, ChildReporter, UnitsTooOld, WorkerPipe
from tidemill.worker.isolation.handler_import import (
    CANNOT_ISOLATE,
    CannotIsolate,
    ChildApplication,
    import_application,
    import_task,
)
from tidemill.worker.isolation.messages import (
    BatchRunReply,
    CancelRequest,
    ChildStart,
    HandlerPath,
    LateStartReply,
    PrepareReply,
    PrepareRequest,
    RunReply,
    RunRequest,
    StopReply,
    decode_child_start,
)
from tidemill.worker.isolation.result_waits import ChildWaits
from tidemill.worker.outcomes import decide_refusal, describe_error, outcome_of_error


def main() -> None:
    """Runs the child process until the worker closes the pipe."""
    handle, begin = int(sys.argv[1]), decode_child_start(sys.argv[2])
    die_with_parent(signal.SIGKILL, begin.parent)
    mark_as_child()
    # A signal handler, not SIG_IGN: programs that the job starts would inherit SIG_IGN.
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGINT, lambda *_: None)
    sys.argv[:] = begin.argv
    pipe = WorkerPipe(Connection(handle))
    if (order := pipe.first()) is None:
        return
    child = ChildRunner(pipe, begin)
    child.find_task(order)  # import the worker's modules before there is an event loop
    with asyncio.Runner(loop_factory=_loop_factory(begin)) as runner:
        runner.run(child.serve(order))


def _loop_factory(begin: ChildStart) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if not begin.uvloop:
        return None
    import uvloop

    return uvloop.new_event_loop


class ChildRunner:
    """Prepares and runs the jobs of a child process.

    - `_found`: caches tasks by name and import path.
    - `_state`: the value that the lifespan yielded.
    - `_cancel_next`: True if the worker cancelled a job before the job has started here."""

    def __init__(self, pipe: WorkerPipe, begin: ChildStart) -> None:
        self._pipe, self._begin, self._logs = pipe, begin, begin.logs
        self._main_imported = False
        self._application: ChildApplication | None = None
        self._opened = False
        self._state: Any = None
        self._found: dict[tuple[str, HandlerPath | None], TaskDefinition | CannotIsolate] = {}
        self._definition: TaskDefinition | None = None
        self._running: asyncio.Task[Any] | None = None
        self._reporter: ChildReporter | None = None
        self._cancel_next = False

    async def serve(self, first: PrepareRequest) -> None:
        loop = asyncio.get_running_loop()
        self._threads = HandlerThreads(1)
        self._waits = ChildWaits(self._pipe)
        ATTEMPT_WAITS.set(self._waits)
        orders: asyncio.Queue[PrepareRequest | RunRequest | None] = asyncio.Queue()
        orders.put_nowait(first)

        def on_order(order: ChildOrder | None) -> None:
            if isinstance(order, CancelRequest):
                loop.call_soon_threadsafe(self._cancel)
            else:
                loop.call_soon_threadsafe(orders.put_nowait, order)

        self._pipe.listen(on_order)
        async with AsyncExitStack() as stack:
            while (order := await orders.get()) is not None:
                if isinstance(order, PrepareRequest):
                    self._pipe.send(await self._prepare(order, stack))
                else:
                    await self._run_job(order)

    def _cancel(self) -> None:
        if self._running is None or self._reporter is None:
            self._cancel_next = True
        else:
            self._reporter.stopped = True
            self._running.cancel()

    async def _prepare(self, order: PrepareRequest, stack: AsyncExitStack) -> PrepareReply:
        self._cancel_next = False  # a cancellation of the previous job
        found = self.find_task(order)
        if isinstance(found, CannotIsolate):
            return PrepareReply(str(found))
        self._definition = found
        count = len(self._middleware)
        if self._application is not None and order.middleware not in (None, count):
            return PrepareReply(
                f"the application has {count} middleware here and {order.middleware} in its worker"
            )
        self._configure_logs()
        if self._application is not None and not self._opened:
            try:
                opened = self._application.opened(lifespan=order.lifespan)
                self._state = await stack.enter_async_context(opened)
            except Exception as error:  # noqa: BLE001 - a lifespan may raise anything
                described = describe_error(error)
                return PrepareReply(f"{described.type}: {described.message}", opened=False)
            self._opened = True
        return PrepareReply()

    @property
    def _middleware(self) -> Sequence[Middleware]:
        return () if self._application is None else split_middleware(self._application.middlewares)[1]

    def find_task(self, order: PrepareRequest) -> TaskDefinition | CannotIsolate:
        key = (order.task, order.handler)
        if key not in self._found:
            try:
                self._import_main()
                self._found[key] = self._find_in_application(order.task) or import_task(order.handler)
            except CannotIsolate as error:
                self._found[key] = error
        return self._found[key]

    def _import_main(self) -> None:
        if self._begin.main is not None and not self._main_imported:
            try:
                import_main(self._begin.main)
            except MainImportError as error:
                raise CannotIsolate(str(error)) from error
            self._main_imported = True

    def _find_in_application(self, task: str) -> TaskDefinition | None:
        if self._begin.application is None:
            return None
        self._application = self._application or import_application(self._begin.application)
        return self._application.tasks.get(task)

    def _configure_logs(self) -> None:
        """Sets up logging as in the worker. Call it after the import of the program, whose own log setup
        takes precedence."""
        if self._logs is not None:
            configure(format=self._logs.format, level=self._logs.level)
            self._logs = None

    async def _run_job(self, run: RunRequest) -> None:
        """Runs one job and sends its outcome to the worker. Context variables of the handler do not reach the
        next job."""
        if self._cancel_next:
            self._pipe.send(StopReply())
            return
        definition = self._definition
        assert definition is not None  # noqa: S101 - the worker has prepared it
        has_store = self._application is not None and self._application.shares_store
        store = self._application.store if self._application is not None and has_store else None
        self._reporter = reporter = ChildReporter(self._pipe, run, definition, store)
        self._waits.jobs = (run.job, *run.others)
        handle = self._handle if definition.batch is None else self._handle_batch
        self._running = running = asyncio.create_task(handle(run, definition, reporter))
        await asyncio.wait([running])
        self._running, self._waits.jobs = None, ()
        if reporter.late:  # middleware may have swallowed the exception
            self._pipe.send(LateStartReply(reporter.late))
        else:  # a task cancelled before its first step runs no line of `handle`
            self._pipe.send(StopReply() if running.cancelled() else running.result())

    async def _handle(
        self, run: RunRequest, definition: TaskDefinition, reporter: ChildReporter
    ) -> RunReply | StopReply | LateStartReply:
        CURRENT_ATTEMPT.set(run.job)
        BEGIN_CALL.set(reporter.meter().begin_call)
        try:
            args, kwargs = definition.payload.decode(run.job.payload)
        except InvalidPayload as error:
            return RunReply(FinalFailure(Error("InvalidPayload", str(error)), "invalid payload"))
        context = Context.of(run.job, reporter, self._state)
        if definition.takes_context:
            args = (context, *args)
        try:
            call = functools.partial(self._call, reporter, definition, args, kwargs)
            result = await apply_middleware(self._middleware, context, call)()
        except UnitsTooOld:
            return LateStartReply(reporter.late)
        except CannotIsolate as error:
            return RunReply(FinalFailure(Error("CannotIsolate", str(error)), CANNOT_ISOLATE))
        # Catches everything, even a Rust panic: an uncaught error would count as a crash. Signals raise
        # nothing here.
        except BaseException as error:  # noqa: BLE001
            if reporter.stopped and isinstance(error, asyncio.CancelledError):
                return StopReply()
            decision = decide_refusal(reporter.meter(), error, run.job)
            policy = _retry_policy(run, definition)
            failed = outcome_of_error(error, policy, run.job.attempt, run.job.priority, run.chance)
            if decision is None:
                return RunReply(failed)
            return RunReply(decision.outcome, failed if decision.overloaded else None)
        return RunReply(encode_result(result, definition.result))

    async def _handle_batch(
        self, run: RunRequest, definition: TaskDefinition, reporter: ChildReporter
    ) -> BatchRunReply | StopReply | LateStartReply:
        """Runs the jobs of a batch in one call of the handler, and returns the reply for the worker."""
        jobs = (run.job, *run.others)
        CURRENT_ATTEMPT.set(run.job)
        CURRENT_BATCH.set(jobs)
        BEGIN_CALL.set(reporter.meter().begin_call)
        batch = tuple(job.id for job in jobs)
        try:
            items = [item for job in jobs for item in definition.payload.decode(job.payload)[0]]
            context = Context.of(run.job, reporter, self._state, batch=batch)
            args = (context, items) if definition.takes_context else (items,)
            call = functools.partial(self._call, reporter, definition, args, {})
            results = check_results(await apply_middleware(self._middleware, context, call)(), len(jobs))
        except UnitsTooOld:
            return LateStartReply(reporter.late)
        except BaseException as error:  # noqa: BLE001 - as above
            if reporter.stopped and isinstance(error, asyncio.CancelledError):
                return StopReply()
            policy = _retry_policy(run, definition)
            return BatchRunReply(decide_batch_error(error, reporter.meter(), jobs, policy, run.chance))
        return BatchRunReply(
            [
                result if isinstance(result, FailedItem) else encode_result(result, definition.result)
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
            # A thread cannot be stopped. Its handler may check ctx.cancelled; otherwise the worker kills
            # this process. The worker ignores a result that comes after this.
            await asyncio.wait([call.future])
            raise


def _retry_policy(run: RunRequest, definition: TaskDefinition) -> Retry:
    """Returns the retry policy of the job. It comes from `definition` if that is the job's task, and else
    from the worker."""
    return definition.retry if definition.name == run.job.task else Retry(**run.policy)  # type: ignore[arg-type]
