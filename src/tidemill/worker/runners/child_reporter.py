"""What a handler in a child process asks and tells: `Context` talks to these, they talk to the worker."""

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
from tidemill.core.departures import Departure
from tidemill.core.needs import Need
from tidemill.core.outcomes import Done
from tidemill.core.spending import Observation, Usage
from tidemill.errors import StoreUnavailable
from tidemill.tasks.definition import TaskDefinition
from tidemill.tasks.metering import Meter
from tidemill.tasks.pools import classifiers_of
from tidemill.tasks.step_questions import Reply as StepReply
from tidemill.tasks.step_questions import StepQuestion
from tidemill.tasks.steps import Steps, refused_in_batch
from tidemill.tasks.transactions import Transaction
from tidemill.worker.attempt import storable
from tidemill.worker.committing import transaction
from tidemill.worker.runners.messages import (
    AskStep,
    Cancel,
    Commit,
    CommitReply,
    FromChild,
    Heard,
    Line,
    Prepare,
    Progress,
    Question,
    Reply,
    Reserve,
    Reserved,
    Rollback,
    Run,
    StepAnswered,
    Used,
    Warned,
    encode,
    for_child,
)
from tidemill.worker.runners.places import CannotIsolate

Order = Prepare | Run | Cancel


class WorkerPipe:
    """The child's end of the pipe. A thread reads it, so that an answer arrives also while a handler blocks
    the event loop. The worker answers questions in the order they were asked."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._sending = threading.Lock()
        self._asked: deque[concurrent.futures.Future[Reply]] = deque()

    def listen(self, ordered: Callable[[Order | None], None]) -> None:
        """`ordered` is called from the reading thread, with None when the worker has hung up."""
        threading.Thread(target=self._read, args=(ordered,), name="tidemill-pipe", daemon=True).start()

    def first(self) -> Prepare | None:
        """Waits for the first order. To be called before `listen`."""
        try:
            message = for_child(self._pipe.recv_bytes())
        except EOFError:
            return None
        return message if isinstance(message, Prepare) else None

    def send(self, message: FromChild) -> None:
        with self._sending:
            self._pipe.send_bytes(encode(message))

    def ask(self, question: Question) -> concurrent.futures.Future[Reply]:
        asked: concurrent.futures.Future[Reply] = concurrent.futures.Future()
        with self._sending:
            self._asked.append(asked)
            self._pipe.send_bytes(encode(question))
        return asked

    def _read(self, ordered: Callable[[Order | None], None]) -> None:
        while True:
            try:
                message = for_child(self._pipe.recv_bytes())
            except (EOFError, OSError):
                ordered(None)
                return
            if isinstance(message, Prepare | Run | Cancel):
                ordered(message)
            elif (asked := self._asked.popleft()).set_running_or_notify_cancel():
                asked.set_result(message)


class UnitsTooOld(Exception):
    """The process stood still before the handler was called."""


class ChildReporter:
    """Sends news of one attempt to the worker. `stopped` is set when the worker cancels the attempt. `late`
    is by how many seconds the handler came too late to be called. `store` is the application's, None when
    the child cannot reach it."""

    def __init__(self, pipe: WorkerPipe, run: Run, definition: TaskDefinition, store: object) -> None:
        self._pipe, self._job, self._definition, self._store = pipe, run.job, definition, store
        self._tally = ChildTally(pipe, run)
        self._meter = Meter(run.job.needs, run.pools, self._tally, classifiers_of(definition.pools))
        batch = definition.batch is not None
        self._steps = None if batch else Steps(run.job.id, StepAnswers(pipe, self._tally.wall))
        self.stopped = False
        self.late = 0.0

    def begin(self) -> None:
        """The handler is called next. Raises `UnitsTooOld` when its units are too old for that."""
        self.late = max(0.0, self._tally.now() - self._tally.late_at())
        if self.late:
            raise UnitsTooOld

    def progress(self, fraction: float, note: str | None) -> None:
        self._pipe.send(Progress(fraction, None if note is None else storable(note)))

    def log(self, line: str) -> None:
        self._pipe.send(Line(storable(line)))

    def cancelled(self) -> bool:
        return self.stopped

    def meter(self) -> Meter:
        return self._meter

    def steps(self) -> Steps:
        if self._steps is None:
            raise refused_in_batch()
        return self._steps

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        if self._store is None:
            raise CannotIsolate("ctx.transaction() needs the application's store, which was not found here")
        return transaction(self._store, self._job, self._definition, EndInChild(self._pipe))


class EndInChild:
    """The child commits the transaction; the worker knows what the attempt has spent."""

    def __init__(self, pipe: WorkerPipe) -> None:
        self._pipe = pipe

    async def commits(self, outcome: Done) -> Settlement:
        answer = await asyncio.wrap_future(self._pipe.ask(Commit(outcome)))
        if not isinstance(answer, CommitReply):
            raise StoreUnavailable(f"the worker answered {type(answer).__name__} to Commit")
        return answer.settlement

    def rolled_back(self) -> None:
        self._pipe.send(Rollback())


class ChildTally:
    """Tells the worker what the attempt uses of its pools, and asks it for more."""

    def __init__(self, pipe: WorkerPipe, run: Run) -> None:
        self._pipe = pipe
        self._clock = SystemClock()
        self._began, self._wall, self._timeout = run.began, run.wall, run.timeout
        self._late_at = run.began + run.late_in

    def used(self, usage: Usage, number: int | None = None) -> None:
        self._pipe.send(Used(usage, number))

    def heard(self, seen: Observation, *, watched: bool = False) -> None:
        self._pipe.send(Heard(seen, watched))

    def warned(self, problem: str) -> None:
        self._pipe.send(Warned(problem))

    def wall(self) -> float:
        return self._wall + self._clock.boot() - self._began

    def left(self) -> float:
        return self._timeout - (self._clock.boot() - self._began)

    async def reserve(self, need: Need) -> float | None:
        answer = await asyncio.wrap_future(self._pipe.ask(Reserve(need)))
        if not isinstance(answer, Reserved) or answer.problem is not None:
            problem = answer.problem if isinstance(answer, Reserved) else None
            raise StoreUnavailable(problem or f"the worker answered {type(answer).__name__} to Reserve")
        return answer.wait

    def now(self) -> float:
        return self._clock.boot()

    def late_at(self) -> float:
        return self._late_at

    async def depart(self, need: Need, departure: Departure) -> None:
        await asyncio.wrap_future(self._pipe.ask(Reserve(need, departure)))

    def depart_sync(self, need: Need, departure: Departure) -> None:
        self._pipe.ask(Reserve(need, departure)).result()

    def departed(self, need: Need, departure: Departure) -> None:
        self._pipe.ask(Reserve(need, departure))


class StepAnswers:
    """Asks the worker what the store knows of the attempt's steps."""

    def __init__(self, pipe: WorkerPipe, wall: Callable[[], float]) -> None:
        self._pipe, self.wall = pipe, wall

    async def ask(self, question: StepQuestion) -> StepReply:
        return _step_reply(await asyncio.wrap_future(self._pipe.ask(AskStep(question))))

    def ask_sync(self, question: StepQuestion) -> StepReply:
        return _step_reply(self._pipe.ask(AskStep(question)).result())


def _step_reply(answer: Reply) -> StepReply:
    if not isinstance(answer, StepAnswered) or answer.reply is None:
        problem = answer.problem if isinstance(answer, StepAnswered) else None
        raise StoreUnavailable(problem or f"the worker answered {type(answer).__name__} to AskStep")
    return answer.reply
