"""The child's connection to its worker: reports and requests of a handler go through one pipe."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from multiprocessing.connection import Connection

from tidemill.clock import SystemClock
from tidemill.core.claims import Settlement
from tidemill.core.feedback import Observation, PoolUsage
from tidemill.core.late_calls import Departure
from tidemill.core.needs import Need
from tidemill.core.outcomes import Success
from tidemill.errors import StoreUnavailable
from tidemill.tasks.context import JobTransaction
from tidemill.tasks.definition import TaskDefinition
from tidemill.tasks.pools import classifiers_of
from tidemill.tasks.step_calls import StepReply, StepRequest
from tidemill.tasks.steps import StepRunner, no_steps_in_batch_error
from tidemill.tasks.usage import UsageMeter
from tidemill.worker.attempt import replace_unstorable
from tidemill.worker.isolation.handler_import import CannotIsolate
from tidemill.worker.isolation.messages import (
    CancelRequest,
    ChildQuestion,
    CommitReply,
    CommitRequest,
    LogReport,
    MessageFromChild,
    ObservationReport,
    PrepareRequest,
    ProblemReport,
    ProgressReport,
    ReserveReply,
    ReserveRequest,
    RollbackReport,
    RunRequest,
    StepReplyMessage,
    StepRequestMessage,
    UsageMessage,
    WorkerReply,
    decode_for_child,
    encode_message,
)
from tidemill.worker.transactional_settle import settle_in_transaction

ChildOrder = PrepareRequest | RunRequest | CancelRequest


class WorkerPipe:
    """The child's end of the pipe to its worker. A thread reads the pipe.

    The worker answers requests in the order in which they were sent."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._sending = threading.Lock()
        self._requests: deque[concurrent.futures.Future[WorkerReply]] = deque()

    def listen(self, on_order: Callable[[ChildOrder | None], None]) -> None:
        """Starts the thread that reads the pipe. The thread calls `on_order` with each order of the worker,
        and with None when the worker closes the pipe."""
        threading.Thread(target=self._read, args=(on_order,), name="tidemill-pipe", daemon=True).start()

    def first(self) -> PrepareRequest | None:
        """Waits for the first order of the worker, a `PrepareRequest`, and returns it. Returns None if the
        pipe is closed. Call it before `listen`."""
        try:
            message = decode_for_child(self._pipe.recv_bytes())
        except EOFError:
            return None
        return message if isinstance(message, PrepareRequest) else None

    def send(self, message: MessageFromChild) -> None:
        with self._sending:
            self._pipe.send_bytes(encode_message(message))

    def ask(self, question: ChildQuestion) -> concurrent.futures.Future[WorkerReply]:
        reply: concurrent.futures.Future[WorkerReply] = concurrent.futures.Future()
        with self._sending:
            self._requests.append(reply)
            self._pipe.send_bytes(encode_message(question))
        return reply

    def _read(self, on_order: Callable[[ChildOrder | None], None]) -> None:
        while True:
            try:
                message = decode_for_child(self._pipe.recv_bytes())
            except (EOFError, OSError):
                on_order(None)
                return
            if isinstance(message, PrepareRequest | RunRequest | CancelRequest):
                on_order(message)
            elif (reply := self._requests.popleft()).set_running_or_notify_cancel():
                reply.set_result(message)


class UnitsTooOld(Exception):
    """Raised if the handler must not start, because its units were reserved too long ago. The process was
    probably suspended."""


class ChildReporter:
    """Sends the reports of one attempt from the child process to the worker.

    - `stopped`: True if the worker has cancelled the attempt.
    - `late`: by how many seconds the handler missed its latest start; 0 if it started in time.
    - `store`: the application's store; None if the child process cannot reach it."""

    def __init__(self, pipe: WorkerPipe, run: RunRequest, definition: TaskDefinition, store: object) -> None:
        self._pipe, self._job, self._definition, self._store = pipe, run.job, definition, store
        self._sink = ChildUsageSink(pipe, run)
        self._meter = UsageMeter(run.job.needs, run.pools, self._sink, classifiers_of(definition.pools))
        batch = definition.batch is not None
        self._steps = None if batch else StepRunner(run.job.id, ChildCheckpoints(pipe, self._sink.wall))
        self.stopped = False
        self.late = 0.0

    def begin(self) -> None:
        """Raises `UnitsTooOld` if the handler must not start, because its units were reserved too long ago.
        Otherwise does nothing."""
        self.late = max(0.0, self._sink.now() - self._sink.late_at())
        if self.late:
            raise UnitsTooOld

    def progress(self, fraction: float, note: str | None) -> None:
        self._pipe.send(ProgressReport(fraction, None if note is None else replace_unstorable(note)))

    def log(self, line: str) -> None:
        self._pipe.send(LogReport(replace_unstorable(line)))

    def cancelled(self) -> bool:
        return self.stopped

    def meter(self) -> UsageMeter:
        return self._meter

    def steps(self) -> StepRunner:
        if self._steps is None:
            raise no_steps_in_batch_error()
        return self._steps

    def transaction(self) -> AbstractAsyncContextManager[JobTransaction]:
        if self._store is None:
            raise CannotIsolate("ctx.transaction() needs the application's store, which was not found here")
        return settle_in_transaction(
            self._store, self._job, self._definition, ChildTransactionEnd(self._pipe)
        )


class ChildTransactionEnd:
    """Settles a job inside the handler's transaction, in a child process (implements `TransactionEnd`).

    The child asks the worker for the settlement, writes it and commits."""

    def __init__(self, pipe: WorkerPipe) -> None:
        self._pipe = pipe

    async def commits(self, outcome: Success) -> Settlement:
        answer = await asyncio.wrap_future(self._pipe.ask(CommitRequest(outcome)))
        if not isinstance(answer, CommitReply):
            raise StoreUnavailable(f"the worker answered {type(answer).__name__} to Commit")
        return answer.settlement

    def rolled_back(self) -> None:
        self._pipe.send(RollbackReport())


class ChildUsageSink:
    """Sends the attempt's usage of its pools to the worker, and asks the worker for more units."""

    def __init__(self, pipe: WorkerPipe, run: RunRequest) -> None:
        self._pipe = pipe
        self._clock = SystemClock()
        self._began, self._wall, self._timeout = run.began, run.wall, run.timeout
        self._late_at = run.began + run.late_in

    def used(self, usage: PoolUsage, number: int | None = None) -> None:
        self._pipe.send(UsageMessage(usage, number))

    def observe(self, seen: Observation, *, watched: bool = False) -> None:
        self._pipe.send(ObservationReport(seen, watched))

    def warn(self, problem: str) -> None:
        self._pipe.send(ProblemReport(problem))

    def wall(self) -> float:
        return self._wall + self._clock.boot() - self._began

    def left(self) -> float:
        return self._timeout - (self._clock.boot() - self._began)

    async def reserve(self, need: Need) -> float | None:
        answer = await asyncio.wrap_future(self._pipe.ask(ReserveRequest(need)))
        if not isinstance(answer, ReserveReply) or answer.problem is not None:
            problem = answer.problem if isinstance(answer, ReserveReply) else None
            raise StoreUnavailable(problem or f"the worker answered {type(answer).__name__} to Reserve")
        return answer.wait

    def now(self) -> float:
        return self._clock.boot()

    def late_at(self) -> float:
        return self._late_at

    async def depart(self, need: Need, departure: Departure) -> None:
        await asyncio.wrap_future(self._pipe.ask(ReserveRequest(need, departure)))

    def depart_sync(self, need: Need, departure: Departure) -> None:
        self._pipe.ask(ReserveRequest(need, departure)).result()

    def departed(self, need: Need, departure: Departure) -> None:
        self._pipe.ask(ReserveRequest(need, departure))


class ChildCheckpoints:
    """Reads and writes the checkpoints of the attempt's steps, by requests to the worker."""

    def __init__(self, pipe: WorkerPipe, wall: Callable[[], float]) -> None:
        self._pipe, self.wall = pipe, wall

    async def ask(self, question: StepRequest) -> StepReply:
        return _read_step_reply(await asyncio.wrap_future(self._pipe.ask(StepRequestMessage(question))))

    def ask_sync(self, question: StepRequest) -> StepReply:
        return _read_step_reply(self._pipe.ask(StepRequestMessage(question)).result())


def _read_step_reply(answer: WorkerReply) -> StepReply:
    if not isinstance(answer, StepReplyMessage) or answer.reply is None:
        problem = answer.problem if isinstance(answer, StepReplyMessage) else None
        raise StoreUnavailable(problem or f"the worker answered {type(answer).__name__} to AskStep")
    return answer.reply
