"""One isolated process, seen from its worker.

A thread of its own starts it, talks to it and stays until it is gone: the kernel kills a child
when the *thread* that started it ends, so no short-lived thread may start one.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import multiprocessing.spawn
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue

import msgspec

from tidemill.core.departures import Departure
from tidemill.core.needs import Need
from tidemill.core.outcomes import Outcome, Release
from tidemill.core.waits import WaitTarget
from tidemill.errors import StoreError
from tidemill.logs import in_force
from tidemill.tasks.step_questions import StepQuestion
from tidemill.worker.attempt import Attempt
from tidemill.worker.batch_verdicts import Item, Verdict
from tidemill.worker.runners.main_module import importable_main
from tidemill.worker.runners.messages import (
    AskStep,
    Cancel,
    ChildStart,
    Commit,
    CommitReply,
    Ended,
    FromChild,
    Heard,
    Line,
    Prepare,
    Progress,
    Question,
    Ready,
    Reserve,
    Reserved,
    Returned,
    Rollback,
    Run,
    StartedLate,
    StepAnswered,
    StopReply,
    ToChild,
    Used,
    WaitAnswer,
    WaitBegin,
    WaitEnd,
    Warned,
    encode,
    from_child,
)
from tidemill.worker.runners.process_waits import ProcessWaits
from tidemill.worker.translate import Ends

IDLE = 60.0
"""An isolated process nobody needed for this long is let go."""
STOP_WITHIN = 2.0
"""Seconds a cancelled handler has to end before its process is killed. I21 allows 5."""
CLOSE_WITHIN = 5.0
"""Seconds a child has to close its lifespan before it is killed."""

_CHILD = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2])['path']; "
    "from tidemill.worker.runners.child import main; main()"
)


class Died(Exception):
    """The process ended under its job. The message says how."""


class SpawnFailed(Died):
    """The system started no process, so no code of the job can be the cause."""


class IsolatedProcess:
    """`application` is where the child finds the worker's application, None when it cannot. `lifespan` says
    that the child opens the application's lifespan. `stopped`: the handler was cancelled and has ended, so
    the process can run the next job."""

    def __init__(
        self,
        gone: Callable[[IsolatedProcess], None],
        application: str | None = None,
        *,
        lifespan: bool = True,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._gone, self._application, self.lifespan = gone, application, lifespan
        self.stopped = False
        self._failure: Died | None = None
        self._has_run = False
        self._pipe: Connection | None = None
        self._sending = threading.Lock()
        self.ended = asyncio.Event()
        self._asked: SimpleQueue[tuple[ToChild, Attempt | None, asyncio.Future[FromChild]] | None]
        self._asked = SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self._waits: ProcessWaits | None = None
        self._killed = False
        self._handing_out = threading.Lock()
        self._taken = True
        self.alive = True
        threading.Thread(target=self._serve, name="tidemill-isolated", daemon=True).start()

    def take(self) -> bool:
        """False when it has ended. A process that is taken does not retire before it is given back."""
        with self._handing_out:
            self._taken = self.alive
            return self._taken

    def give_back(self) -> None:
        with self._handing_out:
            self._taken = False

    async def prepare(self, message: Prepare) -> Ready:
        try:
            ready = await self._ask(message, None)
        except Died as error:
            raise type(error)(f"before the handler began, {error}") from None
        return ready if isinstance(ready, Ready) else Ready()

    async def run(
        self, message: ToChild, attempt: Attempt, waits: ProcessWaits
    ) -> Outcome | list[Item] | Verdict:
        """Cancels the handler when it is cancelled itself. The caller kills the process then, unless
        `stopped` is set."""
        self.stopped = self._has_run = False
        self._waits = waits
        running = asyncio.ensure_future(self._ask(message, attempt))
        try:
            ended = await asyncio.shield(running)
        except asyncio.CancelledError:
            if not self._send_cancel():
                running.cancel()  # or its end would read as a crash of the job
                self.kill()
                raise
            ended = await self._when_stopped(running)
        if isinstance(ended, Returned):
            return ended.items
        if isinstance(ended, StopReply):
            self.stopped = True
            # No subclass: on Python 3.11 `asyncio.timeout` makes no TimeoutError of one.
            raise asyncio.CancelledError
        if isinstance(ended, StartedLate):
            attempt.tally().missed_start(ended.late)
            raise Ends(Release())
        if not isinstance(ended, Ended):
            raise Died(f"the process answered {type(ended).__name__} out of turn")
        attempt.charged = ended.charged
        return ended.outcome

    async def _when_stopped(self, running: asyncio.Future[FromChild]) -> FromChild:
        try:
            async with asyncio.timeout(STOP_WITHIN):
                return await running
        except TimeoutError:
            raise asyncio.CancelledError from None

    def hang_up(self) -> None:
        """Let an idle process close its lifespan and end."""
        self.alive = False
        self._asked.put(None)

    def kill(self) -> None:
        """SIGKILL for the process and everything it started in its session."""
        self.alive = False
        self._killed = True
        process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        self._asked.put(None)

    async def _ask(self, message: ToChild, attempt: Attempt | None) -> FromChild:
        future: asyncio.Future[FromChild] = self._loop.create_future()
        self._asked.put((message, attempt, future))
        if self._failure is not None:  # set before the queue was emptied: one of the two sees the other
            future.cancel()
            raise self._failure
        return await future

    def _serve(self) -> None:
        ours: Connection | None = None
        theirs: Connection | None = None
        future: asyncio.Future[FromChild] | None = None
        try:
            ours, theirs = multiprocessing.Pipe()
            self._process = self._start(theirs)
            if self._killed:
                self.kill()
            self._pipe = ours
            while (asked := self._next()) is not None:
                message, attempt, future = asked
                self._send(message)
                self._tell(future, self._listen(ours, attempt))
        except Exception as error:  # noqa: BLE001 - a handler may write anything into the pipe
            self._failure = self._how(error)
            for waiting in (future, *self._all_asked()):
                if waiting is not None:
                    self._tell(waiting, self._failure)
            self.kill()
        finally:
            with self._sending:
                self._pipe = None
                for end in (ours, theirs):
                    if end is not None:
                        end.close()
            self._end()

    def _start(self, pipe: Connection) -> subprocess.Popen[bytes]:
        """Not by `multiprocessing`, whose child always imports the main module."""
        command = multiprocessing.spawn.get_command_line()
        interpreter = command[: command.index("-c")]  # with its flags
        begin = ChildStart(
            path=[str(entry) for entry in sys.path],
            argv=sys.argv,
            parent=os.getpid(),
            uvloop=type(self._loop).__module__.partition(".")[0] == "uvloop",
            main=importable_main(),
            application=self._application,
            logs=in_force(),
        )
        try:
            return subprocess.Popen(  # noqa: S603 - this interpreter
                [*interpreter, "-c", _CHILD, str(pipe.fileno()), msgspec.json.encode(begin).decode()],
                pass_fds=[pipe.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            pipe.close()

    def _send(self, message: ToChild) -> None:
        """Waits until the child reads: only for the thread."""
        with self._sending:
            if self._pipe is not None:
                self._pipe.send_bytes(encode(message))
            self._has_run = isinstance(message, Run) or self._has_run

    def _send_cancel(self) -> bool:
        """False when that would wait for the child, or when the job is not there yet. The event loop must not
        wait for a child that was stopped. True for a process that has died: its answer says so."""
        if not self._sending.acquire(blocking=False):
            return False
        try:
            if self._pipe is None:
                return True
            if not self._has_run or not _has_room(self._pipe):
                return False
            with contextlib.suppress(OSError):
                self._pipe.send_bytes(encode(Cancel()))
        finally:
            self._sending.release()
        return True

    def _next(self) -> tuple[ToChild, Attempt | None, asyncio.Future[FromChild]] | None:
        while True:
            with contextlib.suppress(Empty):
                return self._asked.get(timeout=IDLE)
            with self._handing_out:
                if not self._taken:
                    self.alive = False
                    return None

    def _all_asked(self) -> list[asyncio.Future[FromChild]]:
        futures: list[asyncio.Future[FromChild]] = []
        with contextlib.suppress(Empty):
            while True:
                if (asked := self._asked.get_nowait()) is not None:
                    futures.append(asked[2])
        return futures

    def _listen(self, pipe: Connection, attempt: Attempt | None) -> FromChild:
        while True:
            message = from_child(pipe.recv_bytes())
            if isinstance(message, Ready | Ended | Returned | StopReply | StartedLate):
                return message
            if attempt is None:
                continue
            if isinstance(message, Reserve | AskStep | Commit | WaitBegin):
                self._send(self._answer(attempt, message))
            elif isinstance(message, WaitEnd):
                self._loop.call_soon_threadsafe(self._end_wait, message.target)
            else:
                _note(attempt, message)

    def _answer(self, attempt: Attempt, question: Question) -> ToChild:
        match question:
            case Reserve(need, departure):
                return self._reserve(attempt, need, departure)
            case AskStep(asked):
                return self._answer_step(attempt, asked)
            case Commit(outcome):
                attempt.committed = outcome
                return CommitReply(attempt.settlement(outcome))
            case WaitBegin(target):
                return asyncio.run_coroutine_threadsafe(self._begin_wait(target), self._loop).result()

    async def _begin_wait(self, target: WaitTarget) -> WaitAnswer:
        return WaitAnswer() if self._waits is None else await self._waits.begin(target)

    def _end_wait(self, target: WaitTarget) -> None:
        if self._waits is not None:
            self._waits.end(target)

    def _reserve(self, attempt: Attempt, need: Need, departure: Departure | None) -> Reserved:
        if departure is not None:
            attempt.tally().depart_sync(need, departure)
            return Reserved()
        asked = asyncio.run_coroutine_threadsafe(attempt.tally().reserve(need), self._loop)
        try:
            return Reserved(asked.result())
        except StoreError as error:
            return Reserved(problem=str(error))

    def _answer_step(self, attempt: Attempt, question: StepQuestion) -> StepAnswered:
        asked = asyncio.run_coroutine_threadsafe(attempt.keeper().ask(question), self._loop)
        try:
            return StepAnswered(asked.result())
        except StoreError as error:
            return StepAnswered(problem=str(error))

    def _how(self, error: Exception) -> Died:
        if self._process is None:
            return SpawnFailed(f"the process could not be started: {error}")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1)
        code = self._process.returncode
        if code is None:
            return Died(f"the process could not be understood: {error}")
        if code < 0:
            return Died(f"the process was ended by {signal.Signals(-code).name}")
        return Died(f"the process ended with exit code {code}")

    def _tell(self, future: asyncio.Future[FromChild], answer: FromChild | Died) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(_resolve, future, answer)

    def _end(self) -> None:
        self.alive = False
        process = self._process
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=CLOSE_WITHIN)
            self.kill()
            process.wait()
            self._process = None  # from here on its pid may be anybody's
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._is_gone)

    def _is_gone(self) -> None:
        self.ended.set()
        self._gone(self)


def _has_room(pipe: Connection) -> bool:
    """True when a short message can be written at once."""
    poll = select.poll()
    poll.register(pipe.fileno(), select.POLLOUT)
    return bool(poll.poll(0))


def _note(attempt: Attempt, news: Progress | Line | Used | Heard | Warned | Rollback) -> None:
    match news:
        case Progress(fraction, note):
            attempt.progress(fraction, note)
        case Line(line):
            attempt.log(line)
        case Used(usage, number):
            attempt.tally().used(usage, number)
        case Heard(seen, watched):
            attempt.tally().heard(seen, watched=watched)
        case Warned(problem):
            attempt.tally().warned(problem)
        case Rollback():
            attempt.committed = None


def _resolve(future: asyncio.Future[FromChild], answer: FromChild | Died) -> None:
    if future.done():
        return
    if isinstance(answer, Died):
        future.set_exception(answer)
    else:
        future.set_result(answer)
