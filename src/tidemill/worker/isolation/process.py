"""One child process, seen from its worker.

Each child process has its own thread, which starts it and lives until it has ended. The Linux kernel kills
the child when this *thread* ends."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import select
import subprocess
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue

from tidemill.core.late_calls import Departure
from tidemill.core.needs import Need
from tidemill.core.outcomes import JobRelease, Outcome
from tidemill.core.result_waits import WaitTarget
from tidemill.errors import StoreError
from tidemill.tasks.step_calls import StepRequest
from tidemill.worker.attempt import Attempt
from tidemill.worker.batch_outcomes import BatchItem, BatchOutcome
from tidemill.worker.isolation.messages import (
    BatchRunReply,
    CancelRequest,
    ChildQuestion,
    CommitReply,
    CommitRequest,
    LateStartReply,
    LogReport,
    MessageFromChild,
    MessageToChild,
    ObservationReport,
    PrepareReply,
    PrepareRequest,
    ProblemReport,
    ProgressReport,
    ReserveReply,
    ReserveRequest,
    RollbackReport,
    RunReply,
    RunRequest,
    StepReplyMessage,
    StepRequestMessage,
    StopReply,
    UsageMessage,
    WaitEndReport,
    WaitReply,
    WaitRequest,
    decode_from_child,
    encode_message,
)
from tidemill.worker.isolation.result_waits import ProcessWaits
from tidemill.worker.isolation.spawn import ChildDeath, describe_death, kill_session, spawn_child
from tidemill.worker.outcomes import OutcomeSignal

MAX_IDLE_SECONDS = 60.0
"""Seconds after which an idle child process is closed."""
STOP_TIMEOUT_SECONDS = 2.0
"""Seconds a cancelled handler has to end before its process is killed. I21 allows 5."""
CLOSE_TIMEOUT_SECONDS = 5.0
"""Seconds a child has to close its lifespan before it is killed."""


class IsolatedProcess:
    """A child process and the thread that talks to it.

    - `on_exit`: is called when the process has ended.
    - `application`: the import path of the application; None if there is none.
    - `lifespan`: True if the child opens the application's lifespan.
    - `stopped`: True if a cancelled handler has ended in time. The process can then run the next job."""

    def __init__(
        self,
        on_exit: Callable[[IsolatedProcess], None],
        application: str | None = None,
        *,
        lifespan: bool = True,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_exit, self._application, self.lifespan = on_exit, application, lifespan
        self.stopped = False
        self._failure: ChildDeath | None = None
        self._has_run = False
        self._pipe: Connection | None = None
        self._sending = threading.Lock()
        self.ended = asyncio.Event()
        self._requests: SimpleQueue[
            tuple[MessageToChild, Attempt | None, asyncio.Future[MessageFromChild]] | None
        ]
        self._requests = SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self._waits: ProcessWaits | None = None
        self._killed = False
        self._take_lock = threading.Lock()
        self._taken = True
        self.alive = True
        threading.Thread(target=self._run_thread, name="tidemill-isolated", daemon=True).start()

    def take(self) -> bool:
        """Reserves the process for a job and returns True. Returns False if the process has ended.
        `give_back` ends the reservation."""
        with self._take_lock:
            self._taken = self.alive
            return self._taken

    def give_back(self) -> None:
        with self._take_lock:
            self._taken = False

    async def prepare(self, message: PrepareRequest) -> PrepareReply:
        try:
            ready = await self._request(message, None)
        except ChildDeath as error:
            raise type(error)(f"before the handler began, {error}") from None
        return ready if isinstance(ready, PrepareReply) else PrepareReply()

    async def run(
        self, message: MessageToChild, attempt: Attempt, waits: ProcessWaits
    ) -> Outcome | list[BatchItem] | BatchOutcome:
        """Runs a job in the child process and returns its outcome; for a batch, the results of its jobs.

        If the caller is cancelled, the handler is cancelled too. The caller must then kill the process,
        unless `stopped` is True. Raises `ChildDeath` if the process dies."""
        self.stopped = self._has_run = False
        self._waits = waits
        running = asyncio.ensure_future(self._request(message, attempt))
        try:
            ended = await asyncio.shield(running)
        except asyncio.CancelledError:
            if not self._send_cancel():
                running.cancel()  # else its end would count as a crash of the job
                self.kill()
                raise
            ended = await self._when_stopped(running)
        if isinstance(ended, BatchRunReply):
            return ended.items
        if isinstance(ended, StopReply):
            self.stopped = True
            # Not a subclass: on Python 3.11 `asyncio.timeout` does not turn a subclass into TimeoutError.
            raise asyncio.CancelledError
        if isinstance(ended, LateStartReply):
            attempt.usage_sink().missed_start(ended.late)
            raise OutcomeSignal(JobRelease())
        if not isinstance(ended, RunReply):
            raise ChildDeath(f"the process answered {type(ended).__name__} out of turn")
        attempt.charged = ended.charged
        return ended.outcome

    async def _when_stopped(self, running: asyncio.Future[MessageFromChild]) -> MessageFromChild:
        try:
            async with asyncio.timeout(STOP_TIMEOUT_SECONDS):
                return await running
        except TimeoutError:
            raise asyncio.CancelledError from None

    def close_when_idle(self) -> None:
        """Asks the process to close its lifespan and to end after its current request."""
        self.alive = False
        self._requests.put(None)

    def kill(self) -> None:
        """Sends SIGKILL to the child process and to everything that it started in its session."""
        self.alive = False
        self._killed = True
        process = self._process
        if process is not None:
            kill_session(process)
        self._requests.put(None)

    async def _request(self, message: MessageToChild, attempt: Attempt | None) -> MessageFromChild:
        future: asyncio.Future[MessageFromChild] = self._loop.create_future()
        self._requests.put((message, attempt, future))
        if (
            self._failure is not None
        ):  # set before the queue is drained, so either this check or the drain fails the request
            future.cancel()
            raise self._failure
        return await future

    def _run_thread(self) -> None:
        ours: Connection | None = None
        theirs: Connection | None = None
        future: asyncio.Future[MessageFromChild] | None = None
        try:
            ours, theirs = multiprocessing.Pipe()
            uvloop = type(self._loop).__module__.partition(".")[0] == "uvloop"
            self._process = spawn_child(theirs, self._application, uvloop=uvloop)
            if self._killed:
                self.kill()
            self._pipe = ours
            while (request := self._next()) is not None:
                message, attempt, future = request
                self._send(message)
                self._resolve(future, self._read_until_reply(ours, attempt))
        except Exception as error:  # noqa: BLE001 - a handler may write anything into the pipe
            self._failure = describe_death(self._process, error)
            for waiting in (future, *self._drain_requests()):
                if waiting is not None:
                    self._resolve(waiting, self._failure)
            self.kill()
        finally:
            with self._sending:
                self._pipe = None
                for end in (ours, theirs):
                    if end is not None:
                        end.close()
            self._end()

    def _send(self, message: MessageToChild) -> None:
        """Sends a message to the child. It may block until the child reads, so only the thread of this
        process may call it."""
        with self._sending:
            if self._pipe is not None:
                self._pipe.send_bytes(encode_message(message))
            self._has_run = isinstance(message, RunRequest) or self._has_run

    def _send_cancel(self) -> bool:
        """Asks the child to cancel its handler, without blocking. Returns False if the message would block,
        or if the job was not sent yet."""
        if not self._sending.acquire(blocking=False):
            return False
        try:
            if self._pipe is None:
                return True
            if not self._has_run or not _is_writable(self._pipe):
                return False
            with contextlib.suppress(OSError):
                self._pipe.send_bytes(encode_message(CancelRequest()))
        finally:
            self._sending.release()
        return True

    def _next(self) -> tuple[MessageToChild, Attempt | None, asyncio.Future[MessageFromChild]] | None:
        while True:
            with contextlib.suppress(Empty):
                return self._requests.get(timeout=MAX_IDLE_SECONDS)
            with self._take_lock:
                if not self._taken:
                    self.alive = False
                    return None

    def _drain_requests(self) -> list[asyncio.Future[MessageFromChild]]:
        futures: list[asyncio.Future[MessageFromChild]] = []
        with contextlib.suppress(Empty):
            while True:
                if (request := self._requests.get_nowait()) is not None:
                    futures.append(request[2])
        return futures

    def _read_until_reply(self, pipe: Connection, attempt: Attempt | None) -> MessageFromChild:
        while True:
            message = decode_from_child(pipe.recv_bytes())
            if isinstance(message, PrepareReply | RunReply | BatchRunReply | StopReply | LateStartReply):
                return message
            if attempt is None:
                continue
            if isinstance(message, ReserveRequest | StepRequestMessage | CommitRequest | WaitRequest):
                self._send(self._answer(attempt, message))
            elif isinstance(message, WaitEndReport):
                self._loop.call_soon_threadsafe(self._end_wait, message.target)
            else:
                _apply_report(attempt, message)

    def _answer(self, attempt: Attempt, question: ChildQuestion) -> MessageToChild:
        match question:
            case ReserveRequest(need, departure):
                return self._reserve(attempt, need, departure)
            case StepRequestMessage(step_request):
                return self._answer_step(attempt, step_request)
            case CommitRequest(outcome):
                attempt.committed = outcome
                return CommitReply(attempt.settlement(outcome))
            case WaitRequest(target):
                return asyncio.run_coroutine_threadsafe(self._begin_wait(target), self._loop).result()

    async def _begin_wait(self, target: WaitTarget) -> WaitReply:
        return WaitReply() if self._waits is None else await self._waits.begin(target)

    def _end_wait(self, target: WaitTarget) -> None:
        if self._waits is not None:
            self._waits.end(target)

    def _reserve(self, attempt: Attempt, need: Need, departure: Departure | None) -> ReserveReply:
        if departure is not None:
            attempt.usage_sink().depart_sync(need, departure)
            return ReserveReply()
        future = asyncio.run_coroutine_threadsafe(attempt.usage_sink().reserve(need), self._loop)
        try:
            return ReserveReply(future.result())
        except StoreError as error:
            return ReserveReply(problem=str(error))

    def _answer_step(self, attempt: Attempt, question: StepRequest) -> StepReplyMessage:
        future = asyncio.run_coroutine_threadsafe(attempt.checkpoints().ask(question), self._loop)
        try:
            return StepReplyMessage(future.result())
        except StoreError as error:
            return StepReplyMessage(problem=str(error))

    def _resolve(
        self, future: asyncio.Future[MessageFromChild], answer: MessageFromChild | ChildDeath
    ) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the worker has ended
            self._loop.call_soon_threadsafe(_resolve_future, future, answer)

    def _end(self) -> None:
        self.alive = False
        process = self._process
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=CLOSE_TIMEOUT_SECONDS)
            self.kill()
            process.wait()
            self._process = None  # the system may reuse its pid from here on
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._report_gone)

    def _report_gone(self) -> None:
        self.ended.set()
        self._on_exit(self)


def _is_writable(pipe: Connection) -> bool:
    """True if a short message can be written without blocking."""
    poll = select.poll()
    poll.register(pipe.fileno(), select.POLLOUT)
    return bool(poll.poll(0))


def _apply_report(
    attempt: Attempt,
    report: ProgressReport | LogReport | UsageMessage | ObservationReport | ProblemReport | RollbackReport,
) -> None:
    match report:
        case ProgressReport(fraction, note):
            attempt.progress(fraction, note)
        case LogReport(line):
            attempt.log(line)
        case UsageMessage(usage, number):
            attempt.usage_sink().used(usage, number)
        case ObservationReport(seen, watched):
            attempt.usage_sink().observe(seen, watched=watched)
        case ProblemReport(problem):
            attempt.usage_sink().warn(problem)
        case RollbackReport():
            attempt.committed = None


def _resolve_future(future: asyncio.Future[MessageFromChild], answer: MessageFromChild | ChildDeath) -> None:
    if future.done():
        return
    if isinstance(answer, ChildDeath):
        future.set_exception(answer)
    else:
        future.set_result(answer)
