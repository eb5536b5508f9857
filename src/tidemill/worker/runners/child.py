"""The inside of an isolated process: one job at a time, until its worker hangs up."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from multiprocessing.connection import Connection
from typing import Any

from tidemill.clock import SystemClock
from tidemill.core.departures import Departure
from tidemill.core.job import Error
from tidemill.core.needs import Need
from tidemill.core.outcomes import Fail
from tidemill.core.retry import Retry
from tidemill.core.spending import Observation, Usage
from tidemill.errors import InvalidPayload, StoreUnavailable
from tidemill.hooks.calls import BEGIN_CALL
from tidemill.logs import LogSettings, configure
from tidemill.tasks.batches import Failed
from tidemill.tasks.context import Context
from tidemill.tasks.definition import TaskDefinition
from tidemill.tasks.metering import Meter
from tidemill.tasks.pools import classifiers_of
from tidemill.tasks.step_questions import Reply, StepQuestion
from tidemill.tasks.steps import Steps, refused_in_batch
from tidemill.tasks.transactions import Transaction
from tidemill.telemetry.current import CURRENT
from tidemill.worker import batch_verdicts as verdicts
from tidemill.worker.attempt import storable
from tidemill.worker.batch_verdicts import stored
from tidemill.worker.parent import die_with_parent
from tidemill.worker.refused import is_overloaded, refused
from tidemill.worker.runners.messages import (
    AskStep,
    Ended,
    Heard,
    Line,
    Place,
    Prepare,
    Progress,
    Ready,
    Reserve,
    Reserved,
    Returned,
    Run,
    StepAnswered,
    ToChild,
    Used,
    Warned,
    encode,
    for_child,
)
from tidemill.worker.runners.places import NOT_APART, CannotIsolate, find
from tidemill.worker.translate import outcome_of


class PipeReporter:
    """News of an attempt, sent up the pipe. A cancelled job's process is killed, so `cancelled` is
    only ever true when the worker itself is gone."""

    def __init__(self, pipe: Connection, run: Run, definition: TaskDefinition) -> None:
        self._pipe = pipe
        self._tally = PipeTally(pipe, run)
        self._meter = Meter(run.job.needs, run.pools, self._tally, classifiers_of(definition.pools))
        self._steps = None if run.place.batch else Steps(run.job.id, PipeKeeper(self._tally))

    def progress(self, fraction: float, note: str | None) -> None:
        self._pipe.send_bytes(encode(Progress(fraction, None if note is None else storable(note))))

    def log(self, line: str) -> None:
        self._pipe.send_bytes(encode(Line(storable(line))))

    def cancelled(self) -> bool:
        return not self._tally.asking.locked() and self._pipe.poll()

    def meter(self) -> Meter:
        return self._meter

    def steps(self) -> Steps:
        if self._steps is None:
            raise refused_in_batch()
        return self._steps

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        raise CannotIsolate("ctx.transaction() ends the job on a connection of its worker's")


class PipeTally:
    """What the attempt tells of its pools, sent up the pipe. One question at a time has its answer."""

    def __init__(self, pipe: Connection, run: Run) -> None:
        self._pipe = pipe
        self._clock = SystemClock()
        self._began, self._wall, self._timeout = self._clock.boot(), run.wall, run.timeout
        self._late_at = self._began + run.late_in
        self.asking = threading.Lock()

    def used(self, usage: Usage, number: int | None = None) -> None:
        self._pipe.send_bytes(encode(Used(usage, number)))

    def heard(self, seen: Observation, *, watched: bool = False) -> None:
        self._pipe.send_bytes(encode(Heard(seen, watched)))

    def warned(self, problem: str) -> None:
        self._pipe.send_bytes(encode(Warned(problem)))

    def wall(self) -> float:
        return self._wall + self._clock.boot() - self._began

    def left(self) -> float:
        return self._timeout - (self._clock.boot() - self._began)

    async def reserve(self, need: Need) -> float | None:
        return await asyncio.to_thread(self._ask, need)

    def now(self) -> float:
        return self._clock.boot()

    def late_at(self) -> float:
        return self._late_at

    async def depart(self, need: Need, departure: Departure) -> None:
        await asyncio.to_thread(self.depart_sync, need, departure)

    def depart_sync(self, need: Need, departure: Departure) -> None:
        self.ask(Reserve(need, departure))

    departed = depart_sync

    def ask(self, question: Reserve | AskStep) -> ToChild:
        with self.asking:
            self._pipe.send_bytes(encode(question))
            answer: ToChild = for_child(self._pipe.recv_bytes())
        return answer

    def _ask(self, need: Need) -> float | None:
        answer = self.ask(Reserve(need))
        if not isinstance(answer, Reserved) or answer.problem is not None:
            raise StoreUnavailable(answer.problem if isinstance(answer, Reserved) else "answered out of turn")
        return answer.wait


class PipeKeeper:
    """What the attempt's steps ask of the store, asked up the pipe."""

    def __init__(self, tally: PipeTally) -> None:
        self._tally = tally
        self.wall = tally.wall

    async def ask(self, question: StepQuestion) -> Reply:
        return await asyncio.to_thread(self.ask_sync, question)

    def ask_sync(self, question: StepQuestion) -> Reply:
        answer = self._tally.ask(AskStep(question))
        if not isinstance(answer, StepAnswered) or answer.reply is None:
            problem = answer.problem if isinstance(answer, StepAnswered) else None
            raise StoreUnavailable(problem or "answered out of turn")
        return answer.reply


def main(pipe: Connection, parent: int, logs: LogSettings | None) -> None:
    """A session of its own lets the worker kill whatever the handler started along with it, and
    keeps a terminal's Ctrl-C away: draining is the worker's decision."""
    os.setsid()
    die_with_parent(signal.SIGKILL, parent)
    # A handler, not SIG_IGN, which programs started by the job would inherit.
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGINT, lambda *_: None)
    found: dict[Place, TaskDefinition] = {}
    while True:
        try:
            message = for_child(pipe.recv_bytes())
        except EOFError:
            return
        match message:
            case Prepare(place):
                pipe.send_bytes(encode(_prepare(place, found)))
                if logs is not None:  # after the import: a program that sets up its own comes first
                    configure(format=logs.format, level=logs.level)
                    logs = None
            case Run():
                # What a handler sets in its context ends with its attempt, as it does in a worker.
                attempt = contextvars.copy_context()
                run = _run_call if message.place.batch else _run
                ended = attempt.run(
                    run, message, found[message.place], PipeReporter(pipe, message, found[message.place])
                )
                pipe.send_bytes(encode(ended))


def _prepare(place: Place, found: dict[Place, TaskDefinition]) -> Ready:
    if place not in found:
        try:
            found[place] = find(place)
        except CannotIsolate as error:
            return Ready(str(error))
    return Ready()


def _run(run: Run, definition: TaskDefinition, reporter: PipeReporter) -> Ended:
    CURRENT.set(run.job)
    BEGIN_CALL.set(reporter.meter().begin_call)
    try:
        args, kwargs = definition.payload.decode(run.job.payload)
    except InvalidPayload as error:
        return Ended(Fail(Error("InvalidPayload", str(error)), "invalid payload"))
    if definition.takes_context:
        args = (Context.of(run.job, reporter), *args)
    try:
        result = _call(definition, lambda: definition.handler(*args, **kwargs))
    except CannotIsolate as error:
        return Ended(Fail(Error("CannotIsolate", str(error)), NOT_APART))
    # Everything, a Rust panic too: leaving here would read as a crash. Signals do not raise in this process.
    except BaseException as error:  # noqa: BLE001
        judged = refused(reporter.meter(), error)
        policy = _policy(run, definition)
        failed = outcome_of(error, policy, run.job.attempt, run.job.priority, run.chance)
        return Ended(judged or failed, failed if is_overloaded(reporter.meter(), error) else None)
    return Ended(stored(result, definition.result))


def _run_call(run: Run, definition: TaskDefinition, reporter: PipeReporter) -> Returned:
    """Its worker has read the payloads before: those that cannot be are not here."""
    CURRENT.set(run.job)
    BEGIN_CALL.set(reporter.meter().begin_call)
    jobs = (run.job, *run.others)
    batch = tuple(job.id for job in jobs)
    try:
        items = [item for job in jobs for item in definition.payload.decode(job.payload)[0]]
        args = (Context.of(run.job, reporter, batch=batch), items) if definition.takes_context else (items,)
        results = verdicts.check(_call(definition, lambda: definition.handler(*args)), len(jobs))
    except BaseException as error:  # noqa: BLE001 - as above
        policy = _policy(run, definition)
        return Returned(verdicts.raised(error, reporter.meter(), jobs, policy, run.chance))
    return Returned(
        [result if isinstance(result, Failed) else stored(result, definition.result) for result in results]
    )


def _policy(run: Run, definition: TaskDefinition) -> Retry:
    """Under another name it is a plain function, or one that is registered as several tasks."""
    return definition.retry if definition.name == run.job.task else Retry(**run.policy)  # type: ignore[arg-type]


def _call(definition: TaskDefinition, call: Callable[[], Any]) -> Any:
    if not definition.is_async:
        return call()

    async def on_a_loop() -> Any:
        return await call()

    return asyncio.run(on_a_loop())
