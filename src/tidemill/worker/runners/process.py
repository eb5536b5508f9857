"""One isolated process, seen from its worker.

A thread of its own starts it, talks to it and stays until it is gone: the kernel kills a child
when the *thread* that started it ends, so no short-lived thread may start one.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from queue import Empty, SimpleQueue

from tidemill.core.departures import Departure
from tidemill.core.needs import Need
from tidemill.core.outcomes import Outcome
from tidemill.errors import StoreError
from tidemill.logs import in_force
from tidemill.tasks.step_questions import StepQuestion
from tidemill.worker.attempt import Attempt
from tidemill.worker.batch_verdicts import Item, Verdict
from tidemill.worker.runners.child import main
from tidemill.worker.runners.messages import (
    AskStep,
    Ended,
    FromChild,
    Heard,
    Line,
    Prepare,
    Progress,
    Ready,
    Reserve,
    Reserved,
    Returned,
    StepAnswered,
    ToChild,
    Used,
    Warned,
    encode,
    from_child,
)

IDLE = 60.0
"""An isolated process nobody needed for this long is let go."""


class Died(Exception):
    """The process ended under its job. The message says how."""


class IsolatedProcess:
    def __init__(self, gone: Callable[[IsolatedProcess], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._gone = gone
        self._asked: SimpleQueue[tuple[ToChild, Attempt | None, asyncio.Future[FromChild]] | None]
        self._asked = SimpleQueue()
        self._process: SpawnProcess | None = None
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

    async def prepare(self, message: Prepare) -> str | None:
        """The problem with the handler, if any."""
        try:
            ready = await self._ask(message, None)
        except Died as error:
            raise Died(f"before the handler began, {error}") from None
        return ready.problem if isinstance(ready, Ready) else None

    async def run(self, message: ToChild, attempt: Attempt) -> Outcome | list[Item] | Verdict:
        ended = await self._ask(message, attempt)
        if isinstance(ended, Returned):
            return ended.items
        if not isinstance(ended, Ended):
            raise Died(f"the process answered {type(ended).__name__} out of turn")
        attempt.charged = ended.charged
        return ended.outcome

    def kill(self) -> None:
        """SIGKILL for the process and everything it started in its session."""
        self.alive = False
        self._killed = True
        process = self._process
        if process is not None and process.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
        self._asked.put(None)

    async def _ask(self, message: ToChild, attempt: Attempt | None) -> FromChild:
        future: asyncio.Future[FromChild] = self._loop.create_future()
        self._asked.put((message, attempt, future))
        return await future

    def _serve(self) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        future: asyncio.Future[FromChild] | None = None
        try:
            arguments = (theirs, os.getpid(), in_force())
            process = context.Process(target=main, args=arguments, name="tidemill-isolated")
            process.start()
            self._process = process
            if self._killed:
                self.kill()
            theirs.close()
            while (asked := self._next()) is not None:
                message, attempt, future = asked
                ours.send_bytes(encode(message))
                self._tell(future, self._listen(ours, attempt))
        except Exception as error:  # noqa: BLE001 - a handler may write anything into the pipe
            if future is not None or (future := self._next_asked()) is not None:
                self._tell(future, Died(self._how(error)))
        finally:
            ours.close()
            self._end()

    def _next(self) -> tuple[ToChild, Attempt | None, asyncio.Future[FromChild]] | None:
        while True:
            with contextlib.suppress(Empty):
                return self._asked.get(timeout=IDLE)
            with self._handing_out:
                if not self._taken:
                    self.alive = False
                    return None

    def _next_asked(self) -> asyncio.Future[FromChild] | None:
        with contextlib.suppress(Empty):
            asked = self._asked.get_nowait()
            return None if asked is None else asked[2]
        return None

    def _listen(self, pipe: Connection, attempt: Attempt | None) -> FromChild:
        while True:
            message = from_child(pipe.recv_bytes())
            match message:
                case Progress(fraction, note) if attempt is not None:
                    attempt.progress(fraction, note)
                case Line(line) if attempt is not None:
                    attempt.log(line)
                case Used(usage, number) if attempt is not None:
                    attempt.tally().used(usage, number)
                case Heard(seen, watched) if attempt is not None:
                    attempt.tally().heard(seen, watched=watched)
                case Warned(problem) if attempt is not None:
                    attempt.tally().warned(problem)
                case Reserve(need, departure) if attempt is not None:
                    pipe.send_bytes(encode(self._reserve(attempt, need, departure)))
                case AskStep(question) if attempt is not None:
                    pipe.send_bytes(encode(self._answer_step(attempt, question)))
                case Ready() | Ended() | Returned():
                    return message

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

    def _how(self, error: Exception) -> str:
        if self._process is None:
            return f"the process could not be started: {error}"
        self._process.join(timeout=1)
        code = self._process.exitcode
        if code is None:
            return f"the process could not be understood: {error}"
        if code < 0:
            return f"the process was ended by {signal.Signals(-code).name}"
        return f"the process ended with exit code {code}"

    def _tell(self, future: asyncio.Future[FromChild], answer: FromChild | Died) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(_resolve, future, answer)

    def _end(self) -> None:
        self.alive = False
        process = self._process
        if process is not None:
            process.join(timeout=1)
            self.kill()
            process.join()
            self._process = None  # from here on its pid may be anybody's
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._gone, self)


def _resolve(future: asyncio.Future[FromChild], answer: FromChild | Died) -> None:
    if future.done():
        return
    if isinstance(answer, Died):
        future.set_exception(answer)
    else:
        future.set_result(answer)
